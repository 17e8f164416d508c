"""Table joins: key lookups by whole columns, however large the table is."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.errors import UDFError
from shardline.hints import Hint, Option
from shardline.schema.arrow_types import find_mismatch, infer_kind
from shardline.schema.conversion import ConvertedColumn, convert_values
from shardline.schema.schema import Feature
from shardline.sources.source import add_path
from shardline.text import format_count
from shardline.tfrecord.input_file import StoredFile
from shardline.udf.lookup_table import LookupTable, get_table_label, read_table
from shardline.udf.udf_declaration import (
    BoundUDF,
    describe_features,
    select_features,
    validate_features,
)
from shardline.udf.udf_result import make_result

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows: TypeAlias = NDArray[np.int64]
    from collections.abc import Mapping, Sequence

    from shardline.canonical_json import Json
    from shardline.schema.encoding import Reasons
    from shardline.schema.schema import Schema
    from shardline.sources.source_format import SourceFormat
    from shardline.udf.udf_result import UDFResult


OnDuplicate: TypeAlias = Literal["fail", "first", "last"]
"""Handling of a key that occurs more than once in a table."""

_FEW_KEYS = 2000
"""Arrow hashes the keys for each column looked up, which pays off only for few keys."""


class DuplicateKeysError(Exception):
    """Number of duplicate keys in a table, and the first two rows of the first."""

    def __init__(self, count: int, first: int, second: int) -> None:
        super().__init__(count, first, second)
        self.count = count
        self.first = first
        self.second = second


class KeyLookup(ABC):
    """Rows of a table by key: int64 or binary, without nulls."""

    @abstractmethod
    def rows(self, column: pa.Array) -> Rows:
        """Return the row of each key, -1 if not found; null never matches."""


def make_key_lookup(keys: pa.Array, on_duplicate: OnDuplicate) -> KeyLookup:
    """Index the keys of a table. Raises DuplicateKeysError for duplicates under "fail"."""
    encoded = keys.dictionary_encode()
    codes, unique = np.asarray(encoded.indices), encoded.dictionary
    firsts = np.unique(codes, return_index=True)[1]
    rows = firsts
    if len(unique) < len(keys):
        if on_duplicate == "fail":
            repeated = np.delete(np.arange(len(keys)), firsts)[0]
            count = int((np.bincount(codes) > 1).sum())
            raise DuplicateKeysError(count, int(firsts[codes[repeated]]), int(repeated))
        if on_duplicate == "last":
            rows = len(keys) - 1 - np.unique(codes[::-1], return_index=True)[1]
    if pa.types.is_int64(keys.type):
        return _SortedNumberLookup(np.asarray(unique), rows)
    return (
        _FewTextLookup(unique, rows) if len(unique) <= _FEW_KEYS else _ManyTextLookup(unique, rows)
    )


class _SortedNumberLookup(KeyLookup):
    def __init__(self, keys: Rows, rows: Rows) -> None:
        order = np.argsort(keys)
        self._keys, self._rows = keys[order], rows[order]

    def rows(self, column: pa.Array) -> Rows:
        if not len(self._keys):
            return np.full(len(column), -1)
        values = np.asarray(pc.fill_null(column, 0) if column.null_count else column)
        positions = np.minimum(np.searchsorted(self._keys, values), len(self._keys) - 1)
        is_match = (self._keys[positions] == values) & np.asarray(column.is_valid())
        return np.where(is_match, self._rows[positions], -1)


class _FewTextLookup(KeyLookup):
    def __init__(self, keys: pa.Array, rows: Rows) -> None:
        self._keys = keys
        self._rows = np.append(rows, -1)

    def rows(self, column: pa.Array) -> Rows:
        positions = pc.index_in(column.cast(pa.binary()), value_set=self._keys)
        rows: Rows = self._rows[np.asarray(pc.fill_null(positions, -1))]
        return rows


class _ManyTextLookup(KeyLookup):
    def __init__(self, keys: pa.Array, rows: Rows) -> None:
        self._rows: dict[Any, int] = dict(zip(keys.to_pylist(), rows.tolist(), strict=True))

    def rows(self, column: pa.Array) -> Rows:
        values = column.cast(pa.binary()).to_pylist()
        return np.fromiter(map(self._rows.get, values, repeat(-1)), np.int64, len(values))


OnMissing: TypeAlias = Literal["fail", "default", "absent"]
"""Handling of a record whose key is not in the table."""


class BoundTableJoin(BoundUDF):
    """Table bound to records of one schema; defaults are one more row of its columns."""

    def __init__(
        self,
        label: str,
        key: Feature,
        keys: KeyLookup,
        columns: Mapping[Feature, pa.Array],
        on_missing: OnMissing,
    ) -> None:
        super().__init__([key], tuple(columns))
        self._label = label
        self._keys = keys
        self._columns = list(columns.values())
        self._on_missing = on_missing

    def compute(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """The new fields of some records."""
        (keys,) = self._select_columns(batch).columns
        rows = self._keys.rows(keys)
        is_missing = rows < 0
        reasons: Reasons = {}
        tried = len(rows)
        if self._on_missing == "default":
            rows = np.where(is_missing, len(self._columns[0]) - 1, rows)
            is_missing[:] = False
        elif self._on_missing == "fail" and is_missing.any():
            reasons = self._describe_missing(keys, is_missing, every=every)
            tried = tried if every else min(reasons) + 1
        picked = pa.array(rows, mask=is_missing)
        columns = [ConvertedColumn(column.take(picked)) for column in self._columns]
        return make_result(self._label, self.features, columns, reasons, tried=tried)

    def _describe_missing(
        self, keys: pa.Array, is_missing: np.ndarray[tuple[int], np.dtype[np.bool_]], *, every: bool
    ) -> Reasons:
        missing_rows = np.flatnonzero(is_missing).tolist()
        none = np.asarray(keys.is_null())
        without = f"is missing, and is the key to {self._label}"
        unknown = f"its key is not in {self._label}"
        return {
            row: (self.reads[0].name, without if none[row] else unknown)
            for row in (missing_rows if every else missing_rows[:1])
        }


def validate_key(label: str, key: Feature) -> None:
    """Raise UDFError if the feature cannot be a table key."""
    if key.shape or key.sequence or key.kind == "float":
        steps = " in each step" if key.sequence else ""
        raise UDFError(
            f"{label}: unsupported key {key.name!r} ({key.kind} of shape {key.shape}{steps})",
            code="key-mismatch",
            hint=Hint.of("use a key that is a single int64 or bytes value"),
            feature=key.name,
        )


def index_table_keys(
    table: LookupTable, column: str, key: Feature, on_duplicate: OnDuplicate
) -> KeyLookup:
    """Index a table by a column with the type of the record key; UDFError if it differs."""
    where = f"{table.label}, column {column!r}"
    large = table.large(column) if key.kind == "int64" else None
    if large is not None:
        raise UDFError(
            f"{where}, {table.where(large)}: number too large for int64 key {key.name!r}",
            code="number-too-large",
            record=large,
            feature=column,
        )
    expected = replace(key, name=column, required=True)
    for kind in table.types(column):
        if pa.types.is_floating(kind) or find_mismatch(expected, kind) is not None:
            raise UDFError(
                f"{where}: kind differs from key {key.name!r} of the records "
                f"({infer_kind(kind) or kind} and {key.kind})",
                code="key-mismatch",
                hint=Hint.of("convert the column or the feature"),
                feature=column,
            )
    keys = table.fitted(expected)
    for row, reason in sorted(keys.bad.items()):
        raise UDFError(
            f"{where}, {table.where(row)}: {reason} "
            f"(key {key.name!r} of the records is {key.kind})",
            code="key-mismatch",
            record=row,
            feature=column,
        )
    if keys.array.null_count:
        row = int(np.argmax(np.asarray(keys.array.is_null())))
        raise UDFError(
            f"{where}, {table.where(row)}: missing key",
            code="missing-key",
            hint=Hint.of("remove the row, or add its key"),
            record=row,
            feature=column,
        )
    try:
        return make_key_lookup(keys.array, on_duplicate)
    except DuplicateKeysError as error:
        first, second = table.where(error.first), table.where(error.second)
        keys_found = format_count(error.count, "duplicate key")
        raise UDFError(
            f"{where}: {keys_found} (first in {first} and {second})",
            code="duplicate-key",
            hint=Hint.of(
                "remove a row, or pass ",
                Option("on_duplicate", "first"),
                " or ",
                Option("on_duplicate", "last"),
            ),
            record=error.second,
            feature=column,
        ) from None


def get_table_column(table: LookupTable, feature: Feature) -> pa.Array:
    """Return a column of a table as a feature; UDFError if a value does not fit."""
    column = table.fitted(feature)
    for row, reason in sorted(column.bad.items()):
        raise UDFError(
            f"{table.label}, column {feature.name!r}, {table.where(row)}: {reason}",
            code="value-mismatch",
            record=row,
            feature=feature.name,
        )
    return column.array


def table_join(
    table: object,
    key: str,
    *,
    features: Sequence[Feature | str] | None = None,
    table_key: str | None = None,
    on_missing: OnMissing = "fail",
    on_duplicate: OnDuplicate = "fail",
    defaults: Mapping[str, object] | None = None,
    format: SourceFormat | None = None,  # noqa: A002 - the word that callers and --format use
) -> TableJoin:
    """Declare features from a table: each record gets those of the row with its key.

    The table is held in memory as Arrow columns. The rows of a file are read on first use.

    Args:
        table: CSV, JSON lines, Parquet or Arrow file (path, URI or StoredFile), Arrow table, or
            a DataFrame of pandas or another library with the Arrow interface.
        key: Feature that is the key, an int64 or bytes of shape ().
        features: Columns to take, declared or by name. All but the key by default. Kinds that
            are not declared are inferred from the values.
        table_key: Column of the key, if its name differs from `key`.
        on_missing: Handling of a record without a key, or with an unknown key: "fail", "default"
            (use `defaults`) or "absent" (leave the features out, which makes them optional).
        on_duplicate: Row to use for a duplicate key: "fail" for neither, "first" or "last".
        defaults: Default for each feature.
        format: Format of a file whose name does not show it.
    """
    return TableJoin(
        table,
        key,
        None if features is None else tuple(features),
        key if table_key is None else table_key,
        on_missing,
        on_duplicate,
        dict(defaults or {}),
        format,
    )


@dataclass(frozen=True, slots=True)
class TableJoin:
    """Table whose columns become features; it is read at each use unless `settled`."""

    table: object
    key: str
    chosen: tuple[Feature | str, ...] | None
    column: str
    on_missing: OnMissing
    on_duplicate: OnDuplicate
    defaults: dict[str, object]
    format: SourceFormat | None

    def __post_init__(self) -> None:
        """Raise UDFError for invalid options."""
        for option, value, known in (
            ("on_missing", self.on_missing, get_args(OnMissing)),
            ("on_duplicate", self.on_duplicate, get_args(OnDuplicate)),
        ):
            if value not in known:
                raise UDFError(
                    f"invalid {option} {value!r}: expected {', '.join(known)}",
                    code="invalid-argument",
                )
        if bool(self.defaults) != (self.on_missing == "default"):
            raise UDFError(
                "default values require the default mode for missing keys, and vice versa",
                code="invalid-argument",
                hint=Hint.of(
                    "pass both ",
                    Option("defaults"),
                    " and ",
                    Option("on_missing", "default"),
                    ", or leave out both",
                ),
            )
        if self.chosen is not None:
            declared = [Feature(f, "bytes") if isinstance(f, str) else f for f in self.chosen]
            validate_features(self.label, declared)

    @property
    def label(self) -> str:
        """Table label for messages."""
        is_read = isinstance(self.table, LookupTable)
        return self.table.label if is_read else get_table_label(self.table)  # type: ignore[attr-defined] # it is held

    @property
    def _path(self) -> str | None:
        """Path or URI of the table, None for a table in memory."""
        if isinstance(self.table, LookupTable):
            return self.table.path
        return str(self.table) if isinstance(self.table, str | Path | StoredFile) else None

    @property
    def reads(self) -> tuple[str, ...]:
        """Name of the key feature."""
        return (self.key,)

    @property
    def features(self) -> tuple[Feature, ...]:
        """Columns that become features; undeclared columns require reading the table."""
        if self.declared is not None:
            return self.declared
        with add_path(self._path):
            return self._settled()[1]

    @property
    def declared(self) -> tuple[Feature, ...] | None:
        """Columns that become features, None if the table must be read to know them."""
        features = [feature for feature in self.chosen or () if isinstance(feature, Feature)]
        if not features or len(features) < len(self.chosen or ()):
            return None
        return tuple(self._make_optional(features))

    def settled(self) -> TableJoin:
        """Return a copy with the table loaded."""
        with add_path(self._path):
            table, features = self._settled()
        return replace(self, table=table, chosen=features, format=None)

    def identity(self) -> Json:
        """Return everything the results depend on besides the records."""
        with add_path(self._path):
            table, features = self._settled()
        hashed = () if table.sha256 else (*features, *table.inferred([self.column]).values())
        defaults = {f.name: _digest_array(self._default(f)) for f in features if self.defaults}
        return {
            "maker": "table",
            "sha256": table.digest(hashed),
            "features": describe_features(features),
            "key": self.key,
            "column": self.column,
            "missing": self.on_missing,
            "doubled": self.on_duplicate,
            "defaults": defaults,
        }

    def validate(self, schema: Schema) -> None:
        """Raise an error if records of this schema lack a valid key.

        Raises SchemaMismatchError for a missing key, UDFError for an unsuitable key.
        """
        self._key(schema)

    def _key(self, schema: Schema) -> Feature:
        (key,) = select_features(self.label, self.reads, schema)
        validate_key(self.label, key)
        return key

    def bind(self, schema: Schema) -> BoundUDF:
        """Bind the table to records of this schema."""
        with add_path(self._path):
            table, features = self._settled()
        key = self._key(schema)
        with add_path(table.path):
            keys = index_table_keys(table, self.column, key, self.on_duplicate)
            columns = {feature: get_table_column(table, feature) for feature in features}
        if self.on_missing == "default":
            for feature, column in columns.items():
                columns[feature] = pa.concat_arrays([column, self._default(feature)])
        return BoundTableJoin(self.label, key, keys, columns, self.on_missing)

    def _settled(self) -> tuple[LookupTable, tuple[Feature, ...]]:
        table = self.table if isinstance(self.table, LookupTable) else self._read()
        table.known(self.column)
        chosen: Sequence[Feature | str] = self.chosen or ()
        if self.chosen is None:
            chosen = [name for name in table.names if name != self.column]
            if not chosen:
                raise UDFError(
                    f"{self.label}: no column besides the key {self.column!r}",
                    code="no-features",
                )
        for feature in chosen:
            table.known(_get_feature_name(feature))
        for name in self.defaults:
            if name not in set(map(_get_feature_name, chosen)):
                raise UDFError(
                    f"{self.label}: default for unknown feature {name!r}",
                    code="unknown-feature",
                    feature=name,
                )
        names = [feature for feature in chosen if isinstance(feature, str)]
        inferred = table.inferred(names) if names else {}
        if len(inferred) < len(names):
            none = "no valid rows" if table.rows else "no rows"
            raise UDFError(
                f"{self.label}: cannot infer the kinds of the columns ({none})",
                code="unknown-kind",
                hint=Hint.of("declare the columns as features, e.g. `Feature('area', 'int64')`"),
            )
        features = [inferred[f] if isinstance(f, str) else f for f in chosen]
        return table, validate_features(self.label, self._make_optional(features))

    def _make_optional(self, features: Sequence[Feature]) -> list[Feature]:
        """Return the features, optional if `on_missing` is "absent"."""
        if self.on_missing != "absent":
            return list(features)
        return [replace(feature, required=False) for feature in features]

    def _read(self) -> LookupTable:
        columns = (
            None if self.chosen is None else {self.column, *map(_get_feature_name, self.chosen)}
        )
        declared = [feature for feature in self.chosen or () if isinstance(feature, Feature)]
        return read_table(self.table, self.format, columns, declared)

    def _default(self, feature: Feature) -> pa.Array:
        """Return the default of a feature as a column of one row."""
        value = self.defaults.get(feature.name)
        if value is None:
            raise UDFError(
                f"{self.label}: missing default for feature {feature.name!r}",
                code="missing-feature",
                hint=Hint.of("add a default, or pass ", Option("on_missing", "absent")),
                feature=feature.name,
            )
        fitted = convert_values(feature, [value])
        for reason in fitted.bad.values():
            raise UDFError(
                f"{self.label}: invalid default for feature {feature.name!r}: {reason}",
                code="value-mismatch",
                feature=feature.name,
            )
        return fitted.array


def _get_feature_name(feature: Feature | str) -> str:
    return feature if isinstance(feature, str) else feature.name


def _digest_array(array: pa.Array) -> str:
    """Return a digest of a value, because JSON cannot represent every value."""
    return hashlib.sha256(repr(array.to_pylist()).encode()).hexdigest()
