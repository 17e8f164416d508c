"""Readers of snapshots: tf.data, Arrow, pandas and plain file names."""
