"""The Dagster code location: what is wired together and how it is run."""
