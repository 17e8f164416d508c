"""A table joined to records of one schema: rows by their keys, and the fields of those rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from shardline.errors import FieldsError
from shardline.fields.bound import Bound
from shardline.fields.lookup import DoubledKeys, lookup
from shardline.fields.made import made_of
from shardline.hints import Hint, Option
from shardline.sources.arrow_types import kind_of, misfit
from shardline.sources.fit import Fitted
from shardline.wording import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardline.fields.lookup import Doubled, Lookup
    from shardline.fields.made import Made
    from shardline.fields.tables import HeldTable
    from shardline.log.schema import Feature
    from shardline.sources.frames import Reasons

Missing: TypeAlias = Literal["fail", "default", "absent"]
"""What becomes of a record whose key is not in the table."""


class BoundJoin(Bound):
    """A table for records of one schema. With defaults, these are one more row of its columns."""

    def __init__(
        self,
        shown: str,
        key: Feature,
        keys: Lookup,
        columns: Mapping[Feature, pa.Array],
        missing: Missing,
    ) -> None:
        super().__init__([key], tuple(columns))
        self._shown = shown
        self._keys = keys
        self._columns = list(columns.values())
        self._missing = missing

    def compute(self, batch: pa.RecordBatch, *, every: bool) -> Made:
        """The new fields of some records."""
        (asked,) = self._given(batch).columns
        rows = self._keys.rows(asked)
        gone = rows < 0
        reasons: Reasons = {}
        tried = len(rows)
        if self._missing == "default":
            rows = np.where(gone, len(self._columns[0]) - 1, rows)
            gone[:] = False
        elif self._missing == "fail" and gone.any():
            reasons = self._reasons(asked, gone, every=every)
            tried = tried if every else min(reasons) + 1
        picked = pa.array(rows, mask=gone)
        columns = [Fitted(column.take(picked)) for column in self._columns]
        return made_of(self._shown, self.features, columns, reasons, tried=tried)

    def _reasons(
        self, asked: pa.Array, gone: np.ndarray[tuple[int], np.dtype[np.bool_]], *, every: bool
    ) -> Reasons:
        places = np.flatnonzero(gone).tolist()
        none = np.asarray(asked.is_null())
        without = f"is missing, and is the key to {self._shown}"
        unknown = f"its key is not in {self._shown}"
        return {
            at: (self.reads[0].name, without if none[at] else unknown)
            for at in (places if every else places[:1])
        }


def validate_key(shown: str, key: Feature) -> None:
    """Raise FieldsError for a feature that cannot be the key to a table."""
    if key.shape or key.sequence or key.kind == "float":
        steps = " in each step" if key.sequence else ""
        raise FieldsError(
            f"{shown}: unsupported key {key.name!r} ({key.kind} of shape {key.shape}{steps})",
            code="key-mismatch",
            hint=Hint.of("use a key that is a single int64 or bytes value"),
            feature=key.name,
        )


def keys_of(held: HeldTable, column: str, key: Feature, doubled: Doubled) -> Lookup:
    """The rows of a table by their keys, which are as those of the records: FieldsError if not."""
    where = f"{held.shown}, column {column!r}"
    large = held.large(column) if key.kind == "int64" else None
    if large is not None:
        raise FieldsError(
            f"{where}, {held.where(large)}: number too large for int64 key {key.name!r}",
            code="number-too-large",
            record=large,
            feature=column,
        )
    wanted = replace(key, name=column, required=True)
    for kind in held.types(column):
        if pa.types.is_floating(kind) or misfit(wanted, kind) is not None:
            raise FieldsError(
                f"{where}: kind differs from key {key.name!r} of the records "
                f"({kind_of(kind) or kind} and {key.kind})",
                code="key-mismatch",
                hint=Hint.of("convert the column or the feature"),
                feature=column,
            )
    keys = held.fitted(wanted)
    for at, why in sorted(keys.bad.items()):
        raise FieldsError(
            f"{where}, {held.where(at)}: {why} (key {key.name!r} of the records is {key.kind})",
            code="key-mismatch",
            record=at,
            feature=column,
        )
    if keys.array.null_count:
        at = int(np.argmax(np.asarray(keys.array.is_null())))
        raise FieldsError(
            f"{where}, {held.where(at)}: missing key",
            code="missing-key",
            hint=Hint.of("remove the row, or add its key"),
            record=at,
            feature=column,
        )
    try:
        return lookup(keys.array, doubled)
    except DoubledKeys as error:
        first, second = held.where(error.first), held.where(error.second)
        keys_found = counted(error.count, "duplicate key")
        raise FieldsError(
            f"{where}: {keys_found} (first in {first} and {second})",
            code="duplicate-key",
            hint=Hint.of(
                "remove a row, or pass ",
                Option("doubled", "first"),
                " or ",
                Option("doubled", "last"),
            ),
            record=error.second,
            feature=column,
        ) from None


def column_of(held: HeldTable, feature: Feature) -> pa.Array:
    """A column of a table as a field; FieldsError if a value in it is none of the field's."""
    column = held.fitted(feature)
    for at, why in sorted(column.bad.items()):
        raise FieldsError(
            f"{held.shown}, column {feature.name!r}, {held.where(at)}: {why}",
            code="value-mismatch",
            record=at,
            feature=feature.name,
        )
    return column.array
