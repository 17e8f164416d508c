"""Fields from a table, joined to records by a key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pyarrow as pa

from shardline.errors import FieldsError
from shardline.fields.bound_join import (
    BoundJoin,
    Missing,
    column_of,
    keys_of,
    validate_key,
)
from shardline.fields.declared import checked_features, found_features
from shardline.fields.functions import told_features
from shardline.fields.lookup import Doubled
from shardline.fields.table_files import read_table, shown_as
from shardline.fields.tables import HeldTable
from shardline.files.stored import StoredFile
from shardline.hints import Hint, Option
from shardline.log.schema import Feature
from shardline.sources.base import add_path
from shardline.sources.values import fit_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardline.fields.bound import Bound
    from shardline.log.facts import Json
    from shardline.log.schema import Schema
    from shardline.sources.choose import Format


def joined_fields(
    table: object,
    key: str,
    *,
    features: Sequence[Feature | str] | None = None,
    table_key: str | None = None,
    missing: Missing = "fail",
    doubled: Doubled = "fail",
    defaults: Mapping[str, object] | None = None,
    format: Format | None = None,  # noqa: A002 - the word that callers and --format use
) -> JoinedFields:
    """Fields from a table: each record gets those of the row that has its key.

    `table` is a CSV, JSON lines, Parquet or Arrow file, by its path, its URI or as a StoredFile
    (`format` says which, where its name does not); an Arrow table; a DataFrame of pandas, or of
    others that speak Arrow. It is held in memory, as Arrow columns. `key` names the feature that
    is the key, an int64 or bytes of shape (), and `table_key` the column, if that is called
    otherwise. A file's rows are read when they are needed, not before.

    `features` are the columns to take: declared, or by their names; all but the key if it is left
    out. Kinds that are not declared are those that the values suggest.

    `missing` says what becomes of a record whose key is not in the table, or that has none: it
    fails, it gets the `defaults`, which must have a value for each field, or the fields are absent
    from it, and so not required. `doubled` says which row counts if a key is there twice: none,
    the first or the last.
    """
    return JoinedFields(
        table,
        key,
        None if features is None else tuple(features),
        key if table_key is None else table_key,
        missing,
        doubled,
        dict(defaults or {}),
        format,
    )


@dataclass(frozen=True, slots=True)
class JoinedFields:
    """A table whose columns become fields. It is read anew each time, unless it is `settled`."""

    table: object
    key: str
    chosen: tuple[Feature | str, ...] | None
    column: str
    missing: Missing
    doubled: Doubled
    defaults: dict[str, object]
    format: Format | None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for what, given, known in (
            ("missing", self.missing, get_args(Missing)),
            ("doubled", self.doubled, get_args(Doubled)),
        ):
            if given not in known:
                raise FieldsError(
                    f"invalid {what} {given!r}: expected {', '.join(known)}",
                    code="invalid-argument",
                )
        if bool(self.defaults) != (self.missing == "default"):
            raise FieldsError(
                "default values require the default mode for missing keys, and vice versa",
                code="invalid-argument",
                hint=Hint.of(
                    "pass both ",
                    Option("defaults"),
                    " and ",
                    Option("missing", "default"),
                    ", or leave out both",
                ),
            )
        if self.chosen is not None:
            declared = [Feature(f, "bytes") if isinstance(f, str) else f for f in self.chosen]
            checked_features(self.shown, declared)

    @property
    def shown(self) -> str:
        """The table as messages call it."""
        held = isinstance(self.table, HeldTable)
        return self.table.shown if held else shown_as(self.table)  # type: ignore[attr-defined] # it is held

    @property
    def _path(self) -> str | None:
        """The path or URI of the table, None for a table in memory."""
        if isinstance(self.table, HeldTable):
            return self.table.path
        return str(self.table) if isinstance(self.table, str | Path | StoredFile) else None

    @property
    def reads(self) -> tuple[str, ...]:
        """The key."""
        return (self.key,)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The columns that become fields. The table is read only if they are not declared."""
        if self.declared is not None:
            return self.declared
        with add_path(self._path):
            return self._settled()[1]

    @property
    def declared(self) -> tuple[Feature, ...] | None:
        """The columns that become fields, None if the table has to be read to know them."""
        features = [feature for feature in self.chosen or () if isinstance(feature, Feature)]
        if not features or len(features) < len(self.chosen or ()):
            return None
        return tuple(self._as_made(features))

    def settled(self) -> JoinedFields:
        """The same, with the table read."""
        with add_path(self._path):
            held, features = self._settled()
        return replace(self, table=held, chosen=features, format=None)

    def identity(self) -> Json:
        """All that its results depend on besides the records."""
        with add_path(self._path):
            held, features = self._settled()
        hashed = () if held.sha256 else (*features, *held.inferred([self.column]).values())
        defaults = {f.name: _digest(self._default(f)) for f in features if self.defaults}
        return {
            "maker": "table",
            "sha256": held.digest(hashed),
            "features": told_features(features),
            "key": self.key,
            "column": self.column,
            "missing": self.missing,
            "doubled": self.doubled,
            "defaults": defaults,
        }

    def validate(self, schema: Schema) -> None:
        """Raise SchemaMismatchError or FieldsError if no record of this schema has such a key."""
        self._key(schema)

    def _key(self, schema: Schema) -> Feature:
        (key,) = found_features(self.shown, self.reads, schema)
        validate_key(self.shown, key)
        return key

    def bind(self, schema: Schema) -> Bound:
        """The table for records of this schema."""
        with add_path(self._path):
            held, features = self._settled()
        key = self._key(schema)
        with add_path(held.path):
            keys = keys_of(held, self.column, key, self.doubled)
            columns = {feature: column_of(held, feature) for feature in features}
        if self.missing == "default":
            for feature, column in columns.items():
                columns[feature] = pa.concat_arrays([column, self._default(feature)])
        return BoundJoin(self.shown, key, keys, columns, self.missing)

    def _settled(self) -> tuple[HeldTable, tuple[Feature, ...]]:
        held = self.table if isinstance(self.table, HeldTable) else self._read()
        held.known(self.column)
        chosen: Sequence[Feature | str] = self.chosen or ()
        if self.chosen is None:
            chosen = [name for name in held.names if name != self.column]
            if not chosen:
                raise FieldsError(
                    f"{self.shown}: no column besides the key {self.column!r}",
                    code="no-features",
                )
        for feature in chosen:
            held.known(_name(feature))
        for name in self.defaults:
            if name not in set(map(_name, chosen)):
                raise FieldsError(
                    f"{self.shown}: default for unknown feature {name!r}",
                    code="unknown-feature",
                    feature=name,
                )
        names = [feature for feature in chosen if isinstance(feature, str)]
        found = held.inferred(names) if names else {}
        if len(found) < len(names):
            none = "no valid rows" if held.rows else "no rows"
            raise FieldsError(
                f"{self.shown}: cannot infer the kinds of the columns ({none})",
                code="unknown-kind",
                hint=Hint.of("declare the columns as features, e.g. `Feature('area', 'int64')`"),
            )
        features = [found[f] if isinstance(f, str) else f for f in chosen]
        return held, checked_features(self.shown, self._as_made(features))

    def _as_made(self, features: Sequence[Feature]) -> list[Feature]:
        """Return the features with what `missing` makes of them."""
        if self.missing != "absent":
            return list(features)
        return [replace(feature, required=False) for feature in features]

    def _read(self) -> HeldTable:
        wanted = None if self.chosen is None else {self.column, *map(_name, self.chosen)}
        declared = [feature for feature in self.chosen or () if isinstance(feature, Feature)]
        return read_table(self.table, self.format, wanted, declared)

    def _default(self, feature: Feature) -> pa.Array:
        """The default of a field, as a column of one row."""
        value = self.defaults.get(feature.name)
        if value is None:
            raise FieldsError(
                f"{self.shown}: missing default for feature {feature.name!r}",
                code="missing-feature",
                hint=Hint.of("add a default, or pass ", Option("missing", "absent")),
                feature=feature.name,
            )
        fitted = fit_values(feature, [value])
        for why in fitted.bad.values():
            raise FieldsError(
                f"{self.shown}: invalid default for feature {feature.name!r}: {why}",
                code="value-mismatch",
                feature=feature.name,
            )
        return fitted.array


def _name(feature: Feature | str) -> str:
    return feature if isinstance(feature, str) else feature.name


def _digest(array: pa.Array) -> str:
    """A value in short: not all of them have a place in JSON."""
    return hashlib.sha256(repr(array.to_pylist()).encode()).hexdigest()
