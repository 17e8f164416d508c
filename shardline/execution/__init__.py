"""Executors that run independent tasks, with no knowledge of their content."""
