"""Names and URIs: validation, and display in messages without secrets."""

from __future__ import annotations

import re

from shardline.errors import InvalidNameError
from shardline.hints import Hint
from shardline.redaction import has_credentials

_SHOWN_CHARACTERS = 120
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)
_SECRETIVE = re.compile(
    r"[@?#&;=\uff20\uff1f\uff03\ufe6b]|%(?:25)*(?:40|3[bdf]|2[36])", re.IGNORECASE
)
"""Characters before or around a secret in a URI, also percent-encoded or full-width."""


def format_name(text: str) -> str:
    """Quote an invalid name or URI for a message, without any part that may be a secret."""
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    if _SECRETIVE.search(text) or ":" in rest:
        return f"'{scheme[0]}…'" if scheme and scheme.end() <= 20 else "'…'"
    return ascii(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


def validate_no_credentials(text: str, where: str) -> str:
    """Return a path or URI that is to be written to `where`.

    Raises InvalidNameError if it contains credentials.
    """
    if has_credentials(text):
        raise InvalidNameError(
            f"{where} would contain credentials",
            code="embedded-credentials",
            hint=Hint.of(
                "leave out user name, password, key and signature, and set credentials in the "
                "environment"
            ),
        )
    return text


MAX_PART_BYTES = 255
MAX_OBJECT_NAME_BYTES = 511
"""With a prefix of equal length, a key stays within the 1,024 bytes of object stores."""
RESERVED_VERSIONS = frozenset({"shards", "quarantine"})
"""Folders of a dataset that are not versions."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
_DEVICE = r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])"
_DEVICE_PART = re.compile(rf"{_DEVICE}(?:\.|$)", re.IGNORECASE | re.ASCII)
_PART = (
    rf"(?!(?i:{_DEVICE})(?:[./]|$))"  # Windows opens a device regardless of an extension
    r"(?!\.{1,2}(?:/|$))"
    rf"[A-Za-z0-9._=@+-]{{1,{MAX_PART_BYTES}}}(?<!\.)"  # Windows drops a trailing dot
)
_OBJECT_NAME = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)


def validate_name(name: object, kind: str) -> str:
    """Return a valid name of a dataset, version or tag. Raises InvalidNameError otherwise.

    `kind` is the kind of name. A version must not have the name of another folder of the dataset.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidNameError(
            f"invalid {kind} name {format_name(str(name))}",
            hint=Hint.of(
                "use 1 to 64 lower-case letters, digits, '-' and '_', with a letter or digit first"
            ),
        )
    if _DEVICE_PART.match(name):
        raise InvalidNameError(
            f"invalid {kind} name {name!r}: reserved for a Windows device",
            code="reserved-name",
            hint=Hint.of("choose another name"),
        )
    if kind == "version" and name in RESERVED_VERSIONS:
        raise InvalidNameError(
            f"invalid version name {name!r}: reserved for a folder of the dataset",
            code="reserved-name",
            hint=Hint.of("choose another name"),
        )
    return name


def validate_object_name(name: str) -> str:
    """Return a valid object name below a root. Raises InvalidNameError otherwise."""
    if len(name) > MAX_OBJECT_NAME_BYTES:
        raise InvalidNameError(
            f"object name too long ({len(name)} characters, limit {MAX_OBJECT_NAME_BYTES})"
        )
    if not _OBJECT_NAME.fullmatch(name):
        problem = _find_problem(name)
        raise InvalidNameError(
            f"invalid object name {format_name(name)}" + (f": {problem}" if problem else ""),
            hint=None
            if problem
            else Hint.of("use letters, digits, '.', '_', '-', '=', '@' and '+', with '/' between"),
        )
    return name


def is_object_name(name: str) -> bool:
    """Return True if an object may have this name. Files with other names are foreign."""
    return len(name) <= MAX_OBJECT_NAME_BYTES and _OBJECT_NAME.fullmatch(name) is not None


def validate_folder_name(name: str) -> str:
    """Return a valid folder name below a root: an object name, or empty for the root."""
    return name and validate_object_name(name)


def _find_problem(name: str) -> str | None:
    """Return the problem of an object name, or None if it only has an invalid character."""
    parts = name.split("/")
    faults = [
        (not name, "empty"),
        (not parts[0], "starts with '/'"),
        ("" in parts, "empty part"),
        ("." in parts or ".." in parts, "'.' or '..' as a part"),
        (
            any(len(part) > MAX_PART_BYTES for part in parts),
            f"part longer than {MAX_PART_BYTES} characters",
        ),
        (any(part.endswith(".") for part in parts), "part ends with a dot, which Windows drops"),
        (any(map(_DEVICE_PART.match, parts)), "part reserved for a Windows device"),
    ]
    return next((fault for is_fault, fault in faults if is_fault), None)
