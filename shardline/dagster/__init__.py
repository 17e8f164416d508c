"""The Dagster integration: versions as assets, checks that gate them, and automation."""

from shardline.dagster.versions.appended import appended_version
from shardline.dagster.versions.combined import combined_version
from shardline.dagster.versions.definition import DeclarationError, DeclaredVersion
from shardline.dagster.versions.extended import extended_version
from shardline.dagster.versions.migrated import migrated_version
from shardline.dagster.versions.rebuilt import rebuilt_version
from shardline.operations.arrivals import LandingFolder

__all__ = [
    "DeclarationError",
    "DeclaredVersion",
    "LandingFolder",
    "appended_version",
    "combined_version",
    "extended_version",
    "migrated_version",
    "rebuilt_version",
]
