"""Datasets of this deployment, one module per dataset."""
