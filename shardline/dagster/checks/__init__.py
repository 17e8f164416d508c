"""Asset checks: what must pass before a downstream asset may read."""
