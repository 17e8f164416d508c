"""Metadata values that people read on an asset's page: columns, tables and code."""

import json
import re
import shlex
from collections.abc import Mapping
from itertools import chain
from typing import Any

import dagster as dg

from shardline.api import Snapshot, Version
from shardline.dagster.asset_names import get_asset_name
from shardline.errors import ShardlineError
from shardline.log.entry import Entry
from shardline.log.model import Input, Source
from shardline.provenance.feature_origin import FeatureOrigin
from shardline.schema import shapes
from shardline.schema.schema import Feature, Schema
from shardline.schema.tf_spec import format_parser, format_spec
from shardline.storage import Store, object_uri

_MAX_ROWS = 20
_MAX_COLUMNS = 100
_MAX_LABELS = 20
_MAX_FILES = 12
_FILE_LIST = "files.txt"
_DIGEST_DIGITS = 12


def build_column_schema(schema: Schema) -> dg.TableSchema:
    """Return a column for each feature. Opaque records have no columns."""
    return dg.TableSchema(columns=[_build_column(feature) for feature in schema.features])


def build_column_lineage(origins: Mapping[str, FeatureOrigin]) -> dg.TableColumnLineage:
    """Return the upstream columns of each column. Columns without any are left out."""
    deps_by_column = {
        name: [
            dg.TableColumnDep(dg.AssetKey(get_asset_name(version)), column)
            for version, column in origin.upstream
        ]
        for name, origin in sorted(origins.items())
    }
    return dg.TableColumnLineage({name: deps for name, deps in deps_by_column.items() if deps})


def build_lineage_table(lineage: dg.TableColumnLineage) -> dg.TableMetadataValue:
    """Return a column lineage as a table, because the open-source UI does not show lineage."""
    rows = [
        dg.TableRecord(
            {
                "column": column,
                "upstream": ", ".join(
                    f"{dep.asset_key.to_user_string()}: {dep.column_name}" for dep in deps
                ),
            }
        )
        for column, deps in list(lineage.deps_by_column.items())[:_MAX_COLUMNS]
    ]
    more = len(lineage.deps_by_column) - _MAX_COLUMNS
    if more > 0:
        rows.append(dg.TableRecord({"column": f"and {more:,} more", "upstream": ""}))
    schema = dg.TableSchema([dg.TableColumn("column"), dg.TableColumn("upstream")])
    return dg.MetadataValue.table(rows, schema)


def build_upstream_table(store: Store, entry: Entry) -> dg.TableMetadataValue:
    """Return the snapshots from which an entry was derived."""
    columns = [
        dg.TableColumn("version"),
        dg.TableColumn("snapshot", "int"),
        dg.TableColumn("entry", "int", description="log entry that committed the snapshot"),
        dg.TableColumn("digest", description="digest of that entry"),
    ]
    # A version that is paired with itself is listed once.
    records = [
        dg.TableRecord(
            {
                "version": upstream.label,
                "snapshot": int(upstream.snapshot),
                "entry": _find_entry(store, upstream),
                "digest": upstream.entry,
            }
        )
        for upstream in dict.fromkeys(entry.inputs)
    ]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def build_source_table(entry: Entry) -> dg.TableMetadataValue:
    """Return the sources that an entry appended."""
    columns = [
        dg.TableColumn("source", description="path, URI or batch name"),
        dg.TableColumn("bytes", "int"),
        dg.TableColumn("sha256", description=f"first {_DIGEST_DIGITS} digits"),
    ]
    records = [dg.TableRecord(_build_source_row(source)) for source in entry.sources[:_MAX_ROWS]]
    rest = entry.sources[_MAX_ROWS:]
    if rest:
        size = sum(int(source.size or 0) for source in rest)
        label = f"and {len(rest):,} more"
        records.append(dg.TableRecord({"source": label, "bytes": size, "sha256": None}))
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def build_quarantine_value(store: Store, names: tuple[str, ...]) -> dg.MetadataValue[Any]:
    """Return quarantine files by path or URI: a single path to copy, or a list."""
    paths = [str(store.local_path(name) or locate_object(store, name)) for name in names]
    if len(paths) == 1:
        return dg.MetadataValue.path(paths[0])
    lines = [f"- `{path}`" for path in paths[:_MAX_ROWS]]
    more = len(paths) - _MAX_ROWS
    return dg.MetadataValue.md("\n".join([*lines, *([f"- and {more:,} more"] if more > 0 else [])]))


def locate_object(store: Store, name: str) -> str:
    """Return the URI of an object."""
    return object_uri(store, name)


def format_read_code(snapshot: Snapshot) -> str:
    """Return Markdown with code that reads a snapshot, with and without Shardline."""
    parts = [
        "As a `tf.data.Dataset`, after its checks have passed:",
        format_code_block(_format_shardline_code(snapshot)),
    ]
    try:
        plain = _format_tensorflow_code(snapshot, snapshot.files())
    except ShardlineError as error:
        parts.append(f"TensorFlow alone cannot read it: {error.describe()}")
    else:
        if plain:
            parts += ["The same files with TensorFlow alone:", format_code_block(plain)]
    return "\n\n".join(parts)


def format_commands(snapshot: Snapshot) -> str:
    """Return Markdown with the commands that inspect a snapshot."""
    commands = (
        format_command(snapshot, "log", snapshot.version),
        format_command(snapshot, "verify", str(snapshot)),
    )
    return format_code_block("\n".join(commands), "sh")


def format_command(snapshot: Snapshot, *arguments: str) -> str:
    """Return a `shardline` command on the root of a snapshot, ready to paste."""
    return shlex.join(("shardline", *arguments, "--root", snapshot.store.uri))


def format_code_block(code: str, language: str = "python") -> str:
    """Return a Markdown code block that no backticks in the code can end."""
    ticks = max(chain((2,), (len(run) for run in re.findall("`+", code)))) + 1
    return f"{'`' * ticks}{language}\n{code}\n{'`' * ticks}"


def format_column_type(feature: Feature) -> str:
    """Return `int64`, `float[8]`, `bytes, image` or `int64[?] per step`."""
    shape = shapes.format_shape(feature.shape) if feature.shape else ""
    steps = " per step" if feature.sequence else ""
    meaning = "" if feature.meaning is None else f", {type(feature.meaning).__name__.lower()}"
    return f"{feature.kind}{shape}{steps}{meaning}"


def _build_column(feature: Feature) -> dg.TableColumn:
    notes = [] if feature.meaning is None else [str(feature.meaning)]
    notes.append("required" if feature.required else "optional")
    details = ", ".join(notes)
    return dg.TableColumn(
        feature.name,
        format_column_type(feature),
        description=f"{feature.doc} ({details})" if feature.doc else details,
        constraints=dg.TableColumnConstraints(
            nullable=not feature.required, other=_list_constraints(feature)
        ),
    )


def _list_constraints(feature: Feature) -> list[str]:
    constraints = ["NaN allowed"] if feature.nan else []
    labels = getattr(feature.meaning, "labels", None) or ()
    if labels:
        first = ", ".join(labels[:_MAX_LABELS])
        more = len(labels) - _MAX_LABELS
        constraints.append(f"one of {first}" + (f" and {more} more" if more > 0 else ""))
    return constraints


def _find_entry(store: Store, upstream: Input) -> int | None:
    """Return the number of an upstream entry, None if its log cannot be read."""
    try:
        snapshot = Version(store, upstream.label).snapshot(upstream.snapshot)
    except ShardlineError:
        return None
    return int(snapshot.entry)


def _build_source_row(source: Source) -> dict[str, str | int | float | bool | None]:
    size = None if source.size is None else int(source.size)
    digest = None if source.sha256 is None else source.sha256[:_DIGEST_DIGITS]
    return {"source": source.label, "bytes": size, "sha256": digest}


def _format_shardline_code(snapshot: Snapshot) -> str:
    options = "parse=False" if snapshot.schema.payload == "opaque" else ""
    return (
        "import shardline\n\n"
        f"version = shardline.open({snapshot.store.uri!r})[{snapshot.version!r}]\n"
        f"dataset = version.snapshot({snapshot.number}).to_tf({options})"
    )


def _format_tensorflow_code(snapshot: Snapshot, paths: list[str]) -> str:
    """Return code without Shardline, empty for files that TensorFlow cannot reach."""
    if any("://" in path for path in paths):
        return ""
    compression = snapshot.compression
    option = f", compression_type={compression!r}" if compression else ""
    if len(paths) <= _MAX_FILES:
        imports = ["import tensorflow as tf\n"]
        lines = "".join(f"    {json.dumps(path, ensure_ascii=False)},\n" for path in paths)
        files = [f"files = [\n{lines}]"]
    else:
        imports = ["from pathlib import Path\n", "import tensorflow as tf\n"]
        command = format_command(snapshot, "files", str(snapshot))
        files = [
            f"# {len(paths)} files, listed by: {command} > {_FILE_LIST}",
            f'files = Path("{_FILE_LIST}").read_text().splitlines()',
        ]
    parser = format_parser(snapshot.schema)
    parse = [f"dataset = dataset.map({parser})"] if parser else []
    read = f"dataset = tf.data.TFRecordDataset(files{option})"
    return "\n".join([*imports, *files, format_spec(snapshot.schema) + read, *parse])
