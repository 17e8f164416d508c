"""Previews: small plots and pictures of a snapshot."""
