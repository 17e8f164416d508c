"""The audit: each `*_audit` module has the checks of one subject."""
