"""Previews of snapshots: small charts and images."""
