"""Version factories, one per operation."""
