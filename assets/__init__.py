"""The Dagster assets: the demo's loose files, and later the versions of datasets."""

from assets.loose_files import DemoFolder, loose_files

__all__ = ["DemoFolder", "loose_files"]
