"""Runs independent tasks; knows nothing of what they do."""
