"""Roots: validation and parsing of the local paths and URIs that hold datasets.

A root is validated as text before it is used. Ambiguous text is rejected, because a second reader
(a shell, a server, a colleague) may read it differently.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from shardline.errors import InvalidNameError
from shardline.hints import Hint
from shardline.storage.names import (
    MAX_OBJECT_NAME_BYTES,
    MAX_PART_BYTES,
    format_name,
    validate_object_name,
)

Scheme = Literal["file", "s3", "gs", "az", "memory"]

_KNOWN = "a local path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):", re.ASCII)
_PERCENT_CODE = re.compile(r"%(?:[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4})", re.ASCII)
_IP_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}", re.ASCII)
_BUCKETS = {
    "s3": re.compile(r"[a-z0-9](?:[a-z0-9-]|\.(?=[a-z0-9])){2,62}(?<=[a-z0-9])", re.ASCII),
    "gs": re.compile(r"[a-z0-9](?:[a-z0-9_-]|\.(?=[a-z0-9])){2,221}(?<=[a-z0-9])", re.ASCII),
    "az": re.compile(r"(?=.{3,63}$)[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII),
    "memory": re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII),
}
_LOOK_LIKE_SLASHES = "\u2044\u2215\u2216\u27cb\u27cd\u29f5\u29f8\u29f9\u2571\u2572\u1735"
_UNSEEN_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@dataclass(frozen=True, slots=True)
class Location:
    """Validated root. `bucket` is empty for a local root, whose `path` is absolute.

    Otherwise `path` is the prefix of all names, without `/` at its ends.
    """

    scheme: Scheme
    bucket: str
    path: str

    def __str__(self) -> str:
        if self.scheme == "file":
            return self.path
        return f"{self.scheme}://{self.bucket}" + (f"/{self.path}" if self.path else "")


def parse_location(root: str | Path) -> Location:
    """Parse a root. Raises InvalidNameError with a hint if it is invalid."""
    text = str(root)
    _validate_visible(text)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Location("file", "", _local_path(text))
    name, rest = scheme[1], text[scheme.end() :]
    if name != "file" and name not in _BUCKETS:
        raise _unknown_scheme(text, name, rest)
    if not rest.startswith("//"):
        raise _invalid(text, "missing slashes after the colon", f"write {name}://…")
    authority, slash, path = rest[2:].partition("/")
    _validate_authority(text, authority, path)
    if name == "file":
        if authority not in {"", "localhost"} or not slash:
            raise _invalid(text, "file URI with a host", "write file:///folder, or the path alone")
        return Location("file", "", _local_path("/" + path))
    known = cast("Scheme", name)
    return Location(known, _bucket(known, authority, text), _prefix(path, text))


def _validate_visible(text: str) -> None:
    """Raise InvalidNameError for text with invisible or misleading characters."""
    if not text:
        raise InvalidNameError(
            "empty location", code="invalid-location", hint=Hint.of(f"write {_KNOWN}")
        )
    for character in text:
        if unicodedata.category(character) in _UNSEEN_CATEGORIES:
            raise _invalid(
                text,
                f"invisible character in location (U+{ord(character):04X})",
                "leave the character out",
            )
        if not character.isascii() and _looks_like_punctuation(character):
            raise _invalid(
                text,
                f"character in location resembles punctuation (U+{ord(character):04X})",
                "write the ASCII character",
            )
    if "\\" in text:
        raise _invalid(text, "backslash in location", "write '/'")
    if _PERCENT_CODE.search(text):
        raise _invalid(text, "percent codes in location", "write the characters themselves")


def _invalid(text: str, problem: str, advice: str) -> InvalidNameError:
    """Build the error for an invalid location."""
    return InvalidNameError(
        f"{format_name(text)}: {problem}", code="invalid-location", hint=Hint.of(advice)
    )


def _looks_like_punctuation(character: str) -> bool:
    plain = unicodedata.normalize("NFKC", character)
    return character in _LOOK_LIKE_SLASHES or any(
        character.isascii() and not character.isalnum() for character in plain
    )


def _unknown_scheme(text: str, name: str, rest: str) -> InvalidNameError:
    problem = "unknown scheme"
    if name.lower() in {"file", *_BUCKETS}:
        problem, advice = "scheme in upper case", f"write {name.lower()}://"
    elif len(name) == 1:
        problem = "drive letter"
        advice = "write the path with '/', or use the path /mnt/c of WSL"
    elif name.lower() in {"s3a", "s3n"}:
        advice = "write s3://"
    elif name.lower() in {"gcs", "abfs", "abfss", "wasb", "wasbs", "adl", "azure"}:
        advice = f"write {'gs' if name.lower() == 'gcs' else 'az'}://"
    elif rest.startswith("//"):
        advice = f"write {_KNOWN}"
    else:
        problem = "neither a path nor a known URI"
        advice = f"write {_KNOWN}, or ./ before a relative path"
    return InvalidNameError(
        f"{format_name(text)}: {problem}", code="unknown-scheme", hint=Hint.of(advice)
    )


def _validate_authority(text: str, authority: str, path: str) -> None:
    if "@" in authority or "@" in path or ":" in authority:
        raise InvalidNameError(
            f"{format_name(text)}: location contains a user name, password, key or port",
            code="embedded-credentials",
            hint=Hint.of("leave it out, and set credentials and endpoints in the environment"),
        )
    if "?" in authority + path or "#" in authority + path:
        raise _invalid(
            text,
            "query or fragment in location",
            "leave out everything from '?' or '#' on, and set options in the environment",
        )


def _bucket(scheme: Scheme, bucket: str, text: str) -> str:
    container = "container" if scheme == "az" else "bucket"
    if not bucket:
        raise _invalid(text, f"missing {container}", f"write {scheme}://{container}/prefix")
    if not _BUCKETS[scheme].fullmatch(bucket) or _IP_ADDRESS.fullmatch(bucket):
        raise _invalid(
            text,
            f"invalid {container} name",
            "use lower-case letters, digits and '-', with a letter or digit at both ends",
        )
    return bucket


def _prefix(path: str, text: str) -> str:
    try:
        return path and validate_object_name(path.removesuffix("/"))
    except InvalidNameError as error:
        raise InvalidNameError(
            f"{format_name(text)}: {error}", code="invalid-location", hint=error.hint
        ) from None


def _local_path(text: str) -> str:
    path = str(Path.home()) + text[1:] if text == "~" or text.startswith("~/") else text
    if path.startswith("~"):
        raise _invalid(
            text, "home folder of another user", "write the whole path of the home folder"
        )
    if "://" in path:
        raise InvalidNameError(
            f"{format_name(text)}: unknown scheme",
            code="unknown-scheme",
            hint=Hint.of(f"write {_KNOWN}"),
        )
    if path.startswith("//"):
        raise _invalid(text, "network share", "mount the share and write its path")
    for part in path.split("/"):
        _check_part(part, text)
    if len(os.fsencode(path)) > 4096 - MAX_OBJECT_NAME_BYTES:
        raise InvalidNameError(
            f"path too long ({len(path)} characters)",
            code="invalid-location",
            hint=Hint.of("choose a shorter path"),
        )
    return str(Path(path).absolute())


def _check_part(part: str, text: str) -> None:
    if part == "..":
        raise _invalid(text, "'..' in location", "write the path without '..'")
    if len(os.fsencode(part)) > MAX_PART_BYTES:
        raise InvalidNameError(
            f"part of the path longer than {MAX_PART_BYTES} bytes", code="invalid-location"
        )
    if part not in {"", "."} and (part != part.strip() or part.endswith(".")):
        raise _invalid(
            text,
            "part of the path begins or ends with a space, or ends with a dot",
            "rename that folder",
        )
    if part and unicodedata.combining(part[0]):
        raise _invalid(text, "part of the path begins with a combining mark", "rename that folder")
