"""Storage of objects on local disks and in object stores."""

from shardline.storage.location import Location, parse_location
from shardline.storage.names import validate_name, validate_no_credentials, validate_object_name
from shardline.storage.store import (
    PROBE_NAME,
    ObjectInfo,
    RootLocation,
    Store,
    object_uri,
    open_store,
)
from shardline.storage.temporary_files import TEMPORARY_NAME

__all__ = [
    "PROBE_NAME",
    "TEMPORARY_NAME",
    "Location",
    "ObjectInfo",
    "RootLocation",
    "Store",
    "object_uri",
    "open_store",
    "parse_location",
    "validate_name",
    "validate_no_credentials",
    "validate_object_name",
]
