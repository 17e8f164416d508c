"""Find numbers in JSON rows that have more digits than the floats they are read as."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from shardline import kernel
from shardline.errors import FieldsError, SchemaMismatchError
from shardline.hints import Hint
from shardline.kernel.columns import from_arrow
from shardline.schema.arrow_types import declared_by, taken_apart
from shardline.schema.conversion import TOO_LARGE, Fitted, fit
from shardline.schema.exact_numbers import Rounded, python_leaves
from shardline.sources.csv_cells import CellTally, fit_cells, row_over_int64
from shardline.sources.inference import Finder
from shardline.udf.results import joined, nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from shardline.schema.schema import Feature


class LargeNumbers:
    """The first row of each column with a number that lost digits."""

    def __init__(self) -> None:
        self.rounded: dict[str, int] = {}

    def look(self, name: str, first: int, values: Sequence[object]) -> None:
        """Look at some rows of a column that holds floats."""
        if name in self.rounded:
            return
        for row, value in enumerate(values, first):
            if any(isinstance(leaf, Rounded) for leaf in python_leaves(value)):
                self.rounded[name] = row
                return


_HASHED_ROWS = 8192


@dataclass(frozen=True)
class HeldTable:
    """A table that has been read.

    `where` tells of a row where it stands, `sha256` is that of the file it was read from. With
    `base64`, text for images and arrays is such. `there` are all columns of the table, also those
    that were not kept. `rounded` has the first row of each column of whole numbers in which one is
    rounded, as it is over 64 bits. `path` is that of the file.
    """

    shown: str
    batches: Sequence[pa.RecordBatch]
    where: Callable[[int], str]
    sha256: str | None = None
    base64: bool = False
    there: tuple[str, ...] = ()
    rounded: Mapping[str, int] = field(default_factory=dict)
    path: str | None = None

    @cached_property
    def names(self) -> list[str]:
        """The names of its columns."""
        return list(dict.fromkeys(name for batch in self.batches for name in batch.schema.names))

    @cached_property
    def rows(self) -> int:
        """How many rows it has."""
        return sum(batch.num_rows for batch in self.batches)

    def known(self, name: str) -> str:
        """The name of a column; FieldsError if there is no such."""
        if name not in self.names:
            has = ", ".join(map(repr, self.there or self.names)) or "none"
            raise FieldsError(
                f"{self.shown}: unknown column {name!r}",
                code="unknown-column",
                hint=Hint.of(f"the table has {has}"),
                feature=name,
            )
        return name

    def inferred(self, names: Sequence[str]) -> dict[str, Feature]:
        """The features that these columns suggest; SchemaMismatchError where none can be told."""
        self._refuse_large(names)
        finder = Finder(self.shown)
        for columns in self._columns(names):
            finder.add(pa.RecordBatch.from_arrays(columns, names))
        try:
            schema = finder.schema()
        except SchemaMismatchError as error:
            if error.code != "inexact-number" or error.feature is None or error.record is None:
                raise
            raise self._unkept(
                error.code, error.feature, error.record, "float rounds the number"
            ) from None
        return {feature.name: feature for feature in schema.features}

    def fitted(self, feature: Feature) -> Fitted:
        """One of the columns as a feature."""
        parts = [[self._fit(feature, *columns)] for columns in self._columns([feature.name])]
        return joined([feature], parts or [[nothing(feature)]])[0]

    def types(self, name: str) -> list[pa.DataType]:
        """What the values of a column are, where that is known before they are read."""
        leaves = [taken_apart(columns[0].type)[1] for columns in self._columns([name])]
        return [leaf for leaf in leaves if not pa.types.is_null(leaf)]

    def large(self, name: str) -> int | None:
        """The first row with a number over 64 bits, if all of the column are whole numbers."""
        if name in self.rounded:
            return self.rounded[name]
        first = 0
        for (column,) in self._columns([name]):
            feature = declared_by(name, column.type)
            if feature is not None and pa.types.is_uint64(taken_apart(column.type)[1]):
                over = [at for at, why in fit(feature, column).bad.items() if why == TOO_LARGE]
                if over:
                    return first + min(over)
            first += len(column)
        return None

    def digest(self, features: Sequence[Feature]) -> str:
        """The sha256 of the file; of a table without one, that of these columns as records."""
        if self.sha256 is not None:
            return self.sha256
        digest = hashlib.sha256()
        columns = [self.fitted(feature).array for feature in features]
        for first in range(0, self.rows, _HASHED_ROWS):
            parts = [array.slice(first, _HASHED_ROWS) for array in columns]
            buffers = [from_arrow(f.name, a) for f, a in zip(features, parts, strict=True)]
            digest.update(kernel.encode(buffers, len(parts[0])).data)
        return digest.hexdigest()

    def _refuse_large(self, names: Sequence[str]) -> None:
        for name in names:
            at = self.large(name)
            if at is not None:
                raise self._unkept("number-too-large", name, at, "number too large for int64")

    def _unkept(self, code: str, name: str, row: int, problem: str) -> FieldsError:
        """Return the error for a number that no inferred kind stores exactly."""
        return FieldsError(
            f"{self.shown}, column {name!r}, {self.where(row)}: {problem}",
            code=code,
            hint=Hint.of(
                "convert the column to text, or declare its kind, e.g. "
                f"`features=[Feature({name!r}, 'float')]`"
            ),
            record=row,
            feature=name,
        )

    def _columns(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        for batch in self.batches:
            there = batch.schema.names
            gone = pa.nulls(batch.num_rows)
            yield [batch.column(name) if name in there else gone for name in names]

    def _fit(self, feature: Feature, column: pa.Array) -> Fitted:
        return fit(feature, column, base64=self.base64)


class TableOfCells(HeldTable):
    """A table whose cells are text, whatever is written in them."""

    def inferred(self, names: Sequence[str]) -> dict[str, Feature]:
        """The features that these columns suggest; SchemaMismatchError where none can be told.

        Whole numbers of which one is over 64 bits are text, as when they are appended.
        """
        tally = CellTally(names)
        for columns in self._columns(names):
            tally.add(columns)
        return {feature.name: feature for feature in tally.schema(self.shown).features}

    def types(self, name: str) -> list[pa.DataType]:
        """Nothing is known of cells."""
        del name
        return []

    def large(self, name: str) -> int | None:
        """The first row with a number over 64 bits, if all of the column are whole numbers."""
        return row_over_int64(column for (column,) in self._columns([name]))

    def _fit(self, feature: Feature, column: pa.Array) -> Fitted:
        return fit_cells(feature, column)
