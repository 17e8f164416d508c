"""Where bytes live."""

from shardline.storage.location import Location, parse_location
from shardline.storage.names import check_name, check_object_name, refuse_credentials
from shardline.storage.store import PROBE_NAME, ObjectInfo, Store, object_uri, open_store
from shardline.storage.temporary_files import TEMPORARY_NAME

__all__ = [
    "PROBE_NAME",
    "TEMPORARY_NAME",
    "Location",
    "ObjectInfo",
    "Store",
    "check_name",
    "check_object_name",
    "object_uri",
    "open_store",
    "parse_location",
    "refuse_credentials",
]
