"""The Dagster integration: versions as assets, checks that gate them, and automation."""

from shardline.dagster.versions.append import appended_version
from shardline.dagster.versions.combine import combined_version
from shardline.dagster.versions.declaration import DeclarationError, VersionDefs
from shardline.dagster.versions.extend import extended_version
from shardline.dagster.versions.migrate import migrated_version
from shardline.dagster.versions.rebuild import rebuilt_version
from shardline.operations.landing_folder import LandingFolder

__all__ = [
    "DeclarationError",
    "LandingFolder",
    "VersionDefs",
    "appended_version",
    "combined_version",
    "extended_version",
    "migrated_version",
    "rebuilt_version",
]
