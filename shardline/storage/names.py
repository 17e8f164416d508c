"""Names inside a root: what a dataset, version, tag or object may be called."""

from __future__ import annotations

import re

from shardline.errors import BadNameError
from shardline.storage.secrecy import shown

MAX_PART_BYTES = 255
MAX_OBJECT_NAME_BYTES = 511
"""With a prefix of as much, a key stays within the 1024 bytes that object stores take."""
RESERVED_VERSIONS = frozenset({"shards", "quarantine"})
"""Folders of a dataset that are no versions."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
_DEVICE = r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])"
_DEVICE_PART = re.compile(rf"{_DEVICE}(?:\.|$)", re.IGNORECASE | re.ASCII)
_PART = (
    rf"(?!(?i:{_DEVICE})(?:[./]|$))"  # Windows opens a device whatever follows the dot
    r"(?!\.{1,2}(?:/|$))"
    rf"[A-Za-z0-9._=@+-]{{1,{MAX_PART_BYTES}}}(?<!\.)"  # Windows drops a dot at the end
)
_OBJECT_NAME = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)


def check_name(name: str, what: str) -> str:
    """Give back the name of a dataset, version or tag if it is a good one.

    `what` says which it is; a version must not be named like a dataset's other folders.
    """
    if not _NAME.fullmatch(name):
        raise BadNameError(
            f"{shown(name)} is no name for a {what}: use 1 to 64 lower-case letters, digits, '-' "
            "and '_', with a letter or digit first"
        )
    if _DEVICE_PART.match(name):
        raise BadNameError(
            f"{name!r} is no name for a {what}: Windows keeps it for a device; choose another"
        )
    if what == "version" and name in RESERVED_VERSIONS:
        raise BadNameError(
            f"{name!r} is no name for a version: a dataset has a folder of that name; "
            "choose another"
        )
    return name


def check_object_name(name: str) -> str:
    """Give back an object's name below a root if it is a good one."""
    if len(name) > MAX_OBJECT_NAME_BYTES:
        raise BadNameError(
            f"an object name of {len(name)} characters: at most {MAX_OBJECT_NAME_BYTES} are allowed"
        )
    if not _OBJECT_NAME.fullmatch(name):
        raise BadNameError(f"{shown(name)} is no object name: {_fault_of(name)}")
    return name


def is_object_name(name: str) -> bool:
    """Whether an object may have this name; what has another one is not ours."""
    return len(name) <= MAX_OBJECT_NAME_BYTES and _OBJECT_NAME.fullmatch(name) is not None


def check_folder_name(name: str) -> str:
    """Give back a folder's name below a root; it is named like an object, or "" for the root."""
    return name and check_object_name(name)


def _fault_of(name: str) -> str:
    parts = name.split("/")
    faults = [
        (not name, "it is empty"),
        (not parts[0], "it must be relative, without a '/' at its start"),
        ("" in parts, "it has an empty part; write one '/' between two parts and none at the end"),
        (
            "." in parts or ".." in parts,
            "its parts must not be '.' or '..'; write the name as it is from the root on",
        ),
        (
            any(len(part) > MAX_PART_BYTES for part in parts),
            f"a part of it is longer than {MAX_PART_BYTES} characters",
        ),
        (any(part.endswith(".") for part in parts), "a part ends with a dot, which Windows drops"),
        (any(map(_DEVICE_PART.match, parts)), "Windows keeps a part of it for a device"),
    ]
    return next(
        (fault for found, fault in faults if found),
        "use letters, digits, '.', '_', '-', '=', '@' and '+', and '/' between its parts",
    )
