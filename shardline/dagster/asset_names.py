"""How versions are called in Dagster: `digits/v1` is the asset `digits_v1` of the group `digits`.

The graph shows only the last part of an asset key, so that part has to tell the dataset too.
"""

import re

import dagster as dg

from shardline.api import Version

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")


def get_asset_name(version: str) -> str:
    """The name of a version's asset; InvalidNameError if it names no version."""
    Version("memory://names", version)  # knows what a version may be called
    return _replace_characters(version.replace("/", "_"))


def get_asset_key(version: str) -> dg.AssetKey:
    """The key of a version's asset."""
    return dg.AssetKey(get_asset_name(version))


def group_name(version: str) -> str:
    """The group of a version's asset: its dataset."""
    return _replace_characters(version.partition("/")[0])


def _replace_characters(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)
