"""What the logs of a root say about where shards, rows and snapshots come from."""
