"""A version's log: its entries, its schema, and how commits are made."""
