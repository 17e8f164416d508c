"""Transforms of records of one schema: features are renamed, dropped or computed."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Self

from shardline.hints import Hint
from shardline.schema.schema import Key, Schema, find_duplicate_names, validate_unique_sides

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardline.canonical_json import Json
    from shardline.schema.schema import Feature
    from shardline.udf.udf_declaration import UDF, BoundUDF


@dataclass(frozen=True, slots=True)
class Transform:
    """Transform of records: names of existing features, and new features.

    `names` maps every feature of `before` to its new name, None for a dropped feature.
    """

    before: Schema
    after: Schema
    names: Mapping[Key, str | None]
    fields: tuple[UDF, ...] = ()

    @property
    def new(self) -> Schema:
        """Schema of the new features only."""
        return Schema(tuple(f for udf in self.fields for f in udf.features), self.before.payload)

    def identity(self) -> Json | None:
        """Return everything the result depends on besides the records; None if unknown."""
        identities = [udf.identity() for udf in self.fields]
        if None in identities:
            return None
        schemas = (self.before.fingerprint, self.after.fingerprint)
        return get_transform_identity(schemas, self.names, identities)


def get_transform_identity(
    schemas: tuple[str, str], names: Mapping[Key, str | None], fields: Sequence[Json | None]
) -> Json:
    """Return the identity of a transform between two fingerprints with these UDF identities."""
    changed = [[*key, new] for key, new in sorted(names.items()) if new != key[1]]
    return {"schemas": list(schemas), "names": changed, "fields": list(fields)}


def map_unchanged_names(schema: Schema) -> dict[Key, str | None]:
    """Map every feature to its current name."""
    return {feature.key: feature.name for feature in schema.features}


class BoundUDFs:
    """UDFs of a transform, bound when the first record is read.

    All tasks of an operation share them. Another process binds them again.
    """

    def __init__(self, transform: Transform) -> None:
        self.transform = transform
        self._lock = Lock()
        self._bound: list[BoundUDF] | None = None

    def bound(self) -> list[BoundUDF]:
        """Bind the UDFs once and return them."""
        with self._lock:
            if self._bound is None:
                self._bound = [udf.bind(self.transform.before) for udf in self.transform.fields]
            return self._bound

    def reads(self) -> list[Feature]:
        """Return the features that any UDF reads, without duplicates."""
        return list(
            {feature.key: feature for udf in self.bound() for feature in udf.reads}.values()
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for udf in self._bound or ():
                udf.close()
            self._bound = None

    def __getstate__(self) -> Transform:
        return self.transform

    def __setstate__(self, transform: Transform) -> None:
        self.__init__(transform)  # type: ignore[misc] # as if it were made there


def validate_side_names(transform: Transform) -> None:
    """Raise an error for a new name that exists on the other side of a SequenceExample."""
    before, after = (
        find_duplicate_names(feature.key for feature in schema.features)
        for schema in (transform.before, transform.after)
    )
    advice = Hint.of("choose another name, or drop or rename the existing feature")
    validate_unique_sides(after - before, advice)
