"""Asset checks of versions."""
