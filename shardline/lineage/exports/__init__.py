"""Exports of a version: dataset card, SHA256SUMS, Croissant, OpenLineage events."""
