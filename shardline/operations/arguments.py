"""Validation of the arguments that several operations share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import InvalidArgumentError
from shardline.hints import Hint
from shardline.tfrecord.compression import (
    Compression,
    parse_compression,
    validate_shard_compression,
)

if TYPE_CHECKING:
    from shardline.log.version import StoredVersion


def shard_compression(
    into: StoredVersion, wanted: Compression | str | None, otherwise: Compression | None = None
) -> Compression | None:
    """Return how to pack new shards of a version.

    As wanted; else as its latest data commit, so that readers find a single compression; else, in
    a version without data, as `otherwise`.
    """
    if wanted is not None:
        chosen = parse_compression(wanted)
        validate_shard_compression(chosen)
        return chosen
    remembered = into.compression
    return otherwise if remembered is None else Compression(remembered)


def validate_same_root(into: StoredVersion, base: StoredVersion) -> None:
    """Raise InvalidArgumentError if two versions are in different roots."""
    if into.store.uri != base.store.uri:
        raise InvalidArgumentError(
            f"{into.name}: root {into.store.uri} differs from {base.store.uri} of {base.name}",
            code="root-mismatch",
            hint=Hint.of(f"write {into.name} into the root of {base.name}, then copy it"),
            version=into.name,
        )
