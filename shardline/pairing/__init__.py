"""Pairs of records: which exist, how they are numbered, planned and encoded."""
