"""Files stored next to a shard, each compared with the digest in the log."""
