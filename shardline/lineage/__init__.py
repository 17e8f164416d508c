"""Lineage: ancestry, traces, audits, exports and the report page."""
