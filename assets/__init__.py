"""The Dagster assets: a factory for each way to make a version, and the demo that uses them."""

from assets.appended import appended_version
from assets.combined import combined_version
from assets.declared import DeclarationError, DeclaredVersion
from assets.extended import extended_version
from assets.migrated import migrated_version
from assets.rebuilt import rebuilt_version
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
