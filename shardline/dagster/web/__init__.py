"""The guarded Dagster web server."""
