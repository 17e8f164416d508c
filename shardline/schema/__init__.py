"""Schemas: features, logical types, validation, inference and conversion."""
