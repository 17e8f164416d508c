"""The Dagster code location of this deployment, and its demo."""
