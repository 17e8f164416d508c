"""What others read of a version: OpenLineage events, Croissant, SHA256SUMS, a dataset card."""
