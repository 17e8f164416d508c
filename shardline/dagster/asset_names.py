"""Names of versions in Dagster: `digits/v1` is the asset `digits_v1` in the group `digits`.

The asset graph shows only the last part of an asset key, so that part includes the dataset.
"""

import re

import dagster as dg

from shardline.api import Version

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")


def get_asset_name(version: str) -> str:
    """Return the name of a version's asset. Raises InvalidNameError for an invalid version name."""
    Version("memory://names", version)  # validates the name
    return _replace_characters(version.replace("/", "_"))


def get_asset_key(version: str) -> dg.AssetKey:
    """Return the key of a version's asset."""
    return dg.AssetKey(get_asset_name(version))


def group_name(version: str) -> str:
    """Return the group of a version's asset, which is its dataset."""
    return _replace_characters(version.partition("/")[0])


def _replace_characters(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)
