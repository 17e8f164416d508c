"""Files stored next to a shard, compared with their digests in the log."""
