"""Version factories: one for each way to make a version."""
