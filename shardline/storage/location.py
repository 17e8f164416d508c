"""Roots: which local paths and URIs are taken for the place where datasets live.

A root is checked as text before anything is done with it. What could mean two things is refused,
because a second reader of the text (a shell, a server, a colleague) may take the other one.
"""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from shardline.errors import BadNameError
from shardline.storage.names import MAX_OBJECT_NAME_BYTES, MAX_PART_BYTES, check_object_name
from shardline.storage.secrecy import shown

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
    """A checked root. `bucket` is empty for a local one, whose `path` is absolute.

    Elsewhere `path` is the prefix of all names, without `/` at its ends.
    """

    scheme: Scheme
    bucket: str
    path: str

    def __str__(self) -> str:
        if self.scheme == "file":
            return self.path
        return f"{self.scheme}://{self.bucket}" + (f"/{self.path}" if self.path else "")


def parse_location(root: str | Path) -> Location:
    """Check a root and take it apart; BadNameError says what is wrong and what to write."""
    text = str(root)
    _refuse_what_is_not_seen(text)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Location("file", "", _local_path(text))
    name, rest = scheme[1], text[scheme.end() :]
    if name != "file" and name not in _BUCKETS:
        raise BadNameError(f"{shown(text)}: {_unknown_scheme(name, rest)}")
    if not rest.startswith("//"):
        raise BadNameError(f"{shown(text)}: write two slashes behind the colon, {name}://…")
    authority, slash, path = rest[2:].partition("/")
    _refuse_extras(text, authority, path)
    if name == "file":
        if authority not in {"", "localhost"} or not slash:
            raise BadNameError(
                f"{shown(text)}: a file URI names no other host; write file:///folder, or the "
                "path alone"
            )
        return Location("file", "", _local_path("/" + path))
    known = cast("Scheme", name)
    return Location(known, _bucket(known, authority, text), _prefix(path, text))


def _refuse_what_is_not_seen(text: str) -> None:
    """Refuse what does not show, or shows as something else."""
    if not text:
        raise BadNameError(f"an empty location: write {_KNOWN}")
    for character in text:
        if unicodedata.category(character) in _UNSEEN_CATEGORIES:
            raise BadNameError(
                f"{shown(text)}: a location with an invisible character "
                f"(U+{ord(character):04X}); write it without"
            )
        if not character.isascii() and _looks_like_punctuation(character):
            raise BadNameError(
                f"{shown(text)}: a location with U+{ord(character):04X}, which looks like a dot, "
                "slash or other sign and is none; write the plain one"
            )
    if "\\" in text:
        raise BadNameError(f"{shown(text)}: a location with a backslash; write '/'")
    if _PERCENT_CODE.search(text):
        raise BadNameError(
            f"{shown(text)}: a location with percent codes; write the characters themselves"
        )


def _looks_like_punctuation(character: str) -> bool:
    plain = unicodedata.normalize("NFKC", character)
    return character in _LOOK_LIKE_SLASHES or any(
        one.isascii() and not one.isalnum() for one in plain
    )


def _unknown_scheme(name: str, rest: str) -> str:
    if name.lower() in {"file", *_BUCKETS}:
        return f"write the scheme in lower case, {name.lower()}://"
    if len(name) == 1:
        return "drive letters are not known here; write the path with '/', or use WSL's /mnt/c"
    if name.lower() in {"s3a", "s3n"}:
        return "write s3://"
    if name.lower() in {"gcs", "abfs", "abfss", "wasb", "wasbs", "adl", "azure"}:
        return f"write {'gs' if name.lower() == 'gcs' else 'az'}://"
    if rest.startswith("//"):
        return f"the scheme is not known; write {_KNOWN}"
    return f"this is neither a path nor a known URI; write {_KNOWN}, or ./ before a relative path"


def _refuse_extras(text: str, authority: str, path: str) -> None:
    if "@" in authority or "@" in path or ":" in authority:
        raise BadNameError(
            f"{shown(text)}: a location with a user name, password, key or port in it; leave it "
            "out: credentials and endpoints are taken from the environment"
        )
    if "?" in authority + path or "#" in authority + path:
        raise BadNameError(
            f"{shown(text)}: a location with a query or fragment; leave out all from '?' or '#' "
            "on: settings are taken from the environment"
        )


def _bucket(scheme: Scheme, bucket: str, text: str) -> str:
    what = "container" if scheme == "az" else "bucket"
    if not bucket:
        raise BadNameError(f"{shown(text)}: the {what} is missing; write {scheme}://{what}/prefix")
    if not _BUCKETS[scheme].fullmatch(bucket) or _IP_ADDRESS.fullmatch(bucket):
        raise BadNameError(
            f"{shown(text)}: no {what} can have that name; it has lower-case letters, digits and "
            "'-', with a letter or digit at both ends"
        )
    return bucket


def _prefix(path: str, text: str) -> str:
    try:
        return path and check_object_name(path.removesuffix("/"))
    except BadNameError as error:
        raise BadNameError(f"{shown(text)}: {error}") from None


def _local_path(text: str) -> str:
    path = str(Path.home()) + text[1:] if text == "~" or text.startswith("~/") else text
    if path.startswith("~"):
        raise BadNameError(f"{shown(text)}: write the whole path of that home folder")
    if "://" in path:
        raise BadNameError(f"{shown(text)}: the scheme is not known; write {_KNOWN}")
    if path.startswith("//"):
        raise BadNameError(
            f"{shown(text)}: network shares are not known here; mount it and write its path"
        )
    for part in path.split("/"):
        _check_part(part, text)
    if len(os.fsencode(path)) > 4096 - MAX_OBJECT_NAME_BYTES:
        raise BadNameError(f"a path of {len(path)} characters is too long; choose a shorter one")
    return str(Path(path).absolute())


def _check_part(part: str, text: str) -> None:
    if part == "..":
        raise BadNameError(f"{shown(text)}: a location with '..'; write the path without")
    if len(os.fsencode(part)) > MAX_PART_BYTES:
        raise BadNameError(f"a part of the path is longer than {MAX_PART_BYTES} bytes")
    if part not in {"", "."} and (part != part.strip() or part.endswith(".")):
        raise BadNameError(
            f"{shown(text)}: a part that begins or ends with a space, or ends with a dot; "
            "rename that folder"
        )
    if part and unicodedata.combining(part[0]):
        raise BadNameError(f"{shown(text)}: a part that begins with a combining mark")
