"""What the UI shows of a materialization: how much there is, what came, and how to read it.

Numbers are told under the same keys each time, also where they are zero: the UI plots them.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg

from shardline.api import Snapshot, Version
from shardline.dagster.asset_names import get_asset_name
from shardline.dagster.instance_records import get_reported_snapshot
from shardline.dagster.previews.preview import picture
from shardline.errors import ShardlineError
from shardline.schema.tf_spec_code import format_parser, format_spec

if TYPE_CHECKING:
    from shardline import Feature, Schema, Store
    from shardline.log.entry import Entry
    from shardline.log.model import Input, Source
    from shardline.provenance.feature_origin import FeatureOrigin


Metadata: TypeAlias = dict[str, dg.MetadataValue[Any] | bool | int | float | str]

_SHOWN = 20
_SHORT_DIGEST = 12


@dataclass(frozen=True, slots=True)
class StepReport:
    """What a step did to a version, and the snapshot that it reports.

    `quarantine` are files of the store with the rows that gave no record, `set_aside` the sources
    that could not be landed, `duplicates` those whose content was there. `counts` are more numbers,
    which only some kinds of version have; each of a kind tells the same. `seconds` is how long the
    work took, 0 if nothing was done. `adopted` says that another run committed the snapshot and
    could not report it. `is_known` says that nothing is new: the snapshot was reported before.
    """

    snapshot: "Snapshot"
    added_rows: int = 0
    added_bytes: int = 0
    added_shards: int = 0
    quarantined_rows: int = 0
    quarantine: tuple[str, ...] = ()
    set_aside: int = 0
    duplicates: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    adopted: bool = False
    is_known: bool = False


def build_brief_metadata(version: "Version", made: StepReport) -> Metadata:
    """The numbers and digests of a snapshot, for an event that brings nothing new.

    No shard is read, and no other log.
    """
    snapshot = made.snapshot
    given = {"set_aside": made.set_aside, "duplicates": made.duplicates}
    return {
        "dagster/row_count": int(snapshot.records),
        **get_published_numbers(version),
        "snapshot": int(snapshot.number),
        "bytes": int(snapshot.bytes),
        "shards": int(snapshot.totals.shards),
        "added_rows": int(made.added_rows),
        **{name: int(count) for name, count in made.counts.items()},
        **{name: int(count) for name, count in given.items() if count},
        "dagster/uri": _locate_object(snapshot.store, version.name),
        "digest": snapshot.content,
        "entry_digest": version.log.entry(snapshot.entry).digest,
    }


def get_published_numbers(version: "Version") -> dict[str, int]:
    """The published snapshot and its rows, 0 if there is none."""
    published = version.state.published or 0
    rows = version.snapshot(published).records if published else 0
    return {"published_snapshot": int(published), "published_rows": int(rows)}


def build_snapshot_metadata(version: "Version", made: StepReport) -> Metadata:
    """All that is shown of a snapshot."""
    snapshot = made.snapshot
    entry = version.log.entry(snapshot.entry)
    told: Metadata = {
        "dagster/row_count": int(snapshot.records),
        **get_published_numbers(version),
        "picture": dg.MetadataValue.md(picture(version, snapshot, entry)),
        **_build_numbers(made),
        **build_schema_metadata(snapshot.schema),
        "dagster/uri": _locate_object(snapshot.store, version.name),
        "dagster/storage_kind": "tfrecord",
        "digest": snapshot.content,
        "entry_digest": entry.digest,
        "read_it": dg.MetadataValue.md(read_it(snapshot)),
        "log": dg.MetadataValue.md(_format_commands(snapshot)),
    }
    told |= _build_column_lineage(snapshot)
    if entry.inputs:
        told["parents"] = build_parents_table(snapshot.store, entry)
    if entry.sources and entry.rejects is None:  # a rejection names those that it takes out
        told["sources"] = _build_source_table(entry)
    if made.quarantine:
        told["quarantine"] = _build_quarantine_files(snapshot.store, made.quarantine)
    if made.adopted:
        told["adopted"] = True
    return told


def _build_numbers(made: StepReport) -> Metadata:
    """The numbers, as plain ones: Dagster refuses those of NumPy."""
    snapshot, seconds = made.snapshot, float(made.seconds)
    return {
        "snapshot": int(snapshot.number),
        "entry": int(snapshot.entry),
        "bytes": int(snapshot.bytes),
        "shards": int(snapshot.totals.shards),
        "added_rows": int(made.added_rows),
        "added_bytes": int(made.added_bytes),
        "added_shards": int(made.added_shards),
        "quarantined_rows": int(made.quarantined_rows),
        "set_aside": int(made.set_aside),
        "duplicates": int(made.duplicates),
        **{name: int(count) for name, count in made.counts.items()},
        "rows_per_second": round(float(made.added_rows) / seconds, 1) if seconds > 0 else 0.0,
        "bytes_per_second": round(float(made.added_bytes) / seconds, 1) if seconds > 0 else 0.0,
    }


def _build_column_lineage(snapshot: "Snapshot") -> Metadata:
    """What the columns of a derived version are made of; nothing if a log cannot tell."""
    from shardline.provenance.log_index import LogIndex  # noqa: PLC0415 - it loads Arrow

    try:
        origins = LogIndex(snapshot.store).origins_of(snapshot)
    except ShardlineError:
        return {}
    if not origins:
        return {}
    lineage = column_lineage(origins)
    return {
        "dagster/column_lineage": dg.MetadataValue.column_lineage(lineage),
        "made_of": build_lineage_table(lineage),
    }


def _locate_object(store: "Store", name: str) -> str:
    from shardline.storage import object_uri  # noqa: PLC0415 - only where it is used

    return object_uri(store, name)


def _format_commands(snapshot: "Snapshot") -> str:
    lines = [
        format_command(snapshot, "log", snapshot.version),
        format_command(snapshot, "verify", str(snapshot)),
    ]
    return format_code_block("\n".join(lines), "sh")


def build_parents_table(store: "Store", entry: "Entry") -> dg.TableMetadataValue:
    """The snapshots that an entry was made of."""
    columns = [
        dg.TableColumn("version"),
        dg.TableColumn("snapshot", "int"),
        dg.TableColumn("entry", "int", description="the entry of its log that made it"),
        dg.TableColumn("digest", description="the digest of that entry"),
    ]
    records = [
        dg.TableRecord(
            {
                "version": one.shown,
                "snapshot": int(one.snapshot),
                "entry": _find_entry(store, one),
                "digest": one.entry,
            }
        )
        for one in dict.fromkeys(entry.inputs)  # of a version that is paired with itself: once
    ]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def _find_entry(store: "Store", parent: "Input") -> int | None:
    """The number of a parent's entry; None if its log cannot tell, which is for others to say."""
    from shardline import Version  # noqa: PLC0415 - it loads Arrow

    try:
        found = Version(store, parent.shown).snapshot(parent.snapshot)
    except ShardlineError:
        return None
    return int(found.entry)


def _build_source_table(entry: "Entry") -> dg.TableMetadataValue:
    columns = [
        dg.TableColumn("source", description="its path, or the name of the batch"),
        dg.TableColumn("bytes", "int"),
        dg.TableColumn("sha256", description=f"the first {_SHORT_DIGEST} digits"),
    ]
    records = [dg.TableRecord(_build_source_row(source)) for source in entry.sources[:_SHOWN]]
    more = entry.sources[_SHOWN:]
    if more:
        size = sum(int(source.size or 0) for source in more)
        rest = f"and {len(more):,} more"
        records.append(dg.TableRecord({"source": rest, "bytes": size, "sha256": None}))
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def _build_source_row(source: "Source") -> dict[str, str | int | float | bool | None]:
    size = None if source.size is None else int(source.size)
    digest = None if source.sha256 is None else source.sha256[:_SHORT_DIGEST]
    return {"source": source.shown, "bytes": size, "sha256": digest}


def _build_quarantine_files(store: "Store", names: tuple[str, ...]) -> dg.MetadataValue[Any]:
    """The files by their paths or URIs: one to copy by a click, several as a list."""
    paths = [str(store.local_path(name) or _locate_object(store, name)) for name in names]
    if len(paths) == 1:
        return dg.MetadataValue.path(paths[0])
    lines = [f"- `{path}`" for path in paths[:_SHOWN]]
    more = len(paths) - _SHOWN
    return dg.MetadataValue.md("\n".join([*lines, *([f"- and {more:,} more"] if more > 0 else [])]))


_FILES_SHOWN = 12
_LIST = "files.txt"


def read_it(snapshot: "Snapshot") -> str:
    """Markdown with the code: through Shardline, and by TensorFlow alone where it can."""
    parts = [
        "As a `tf.data.Dataset`, once its checks have passed:",
        format_code_block(_format_shardline_code(snapshot)),
    ]
    try:
        plain = _format_tensorflow_code(snapshot, snapshot.files())
    except ShardlineError as error:
        parts.append(f"Not by TensorFlow alone: {error.describe()}")
    else:
        parts += ["The same files by TensorFlow alone:", format_code_block(plain)] if plain else []
    return "\n\n".join(parts)


def format_command(snapshot: "Snapshot", *arguments: str) -> str:
    """A `shardline` command on the root of a snapshot, ready to paste."""
    return shlex.join(("shardline", *arguments, "--root", snapshot.store.uri))


def format_code_block(code: str, language: str = "python") -> str:
    """Code as a Markdown block that nothing in it can end."""
    ticks = max(chain((2,), (len(run) for run in re.findall("`+", code)))) + 1
    return f"{'`' * ticks}{language}\n{code}\n{'`' * ticks}"


def _format_shardline_code(snapshot: "Snapshot") -> str:
    options = "parse=False" if snapshot.schema.payload == "opaque" else ""
    return (
        "import shardline\n\n"
        f"version = shardline.Version({snapshot.store.uri!r}, {snapshot.version!r})\n"
        f"dataset = version.snapshot({snapshot.number}).to_tf({options})"
    )


def _format_tensorflow_code(snapshot: "Snapshot", paths: list[str]) -> str:
    """Code without Shardline; none for files that TensorFlow cannot reach."""
    if any("://" in path for path in paths):
        return ""
    compression = snapshot.compression
    packed = f", compression_type={compression!r}" if compression else ""
    if len(paths) <= _FILES_SHOWN:
        first = ["import tensorflow as tf\n"]
        listed = "".join(f"    {json.dumps(path, ensure_ascii=False)},\n" for path in paths)
        files = [f"files = [\n{listed}]"]
    else:
        first = ["from pathlib import Path\n", "import tensorflow as tf\n"]
        listing = format_command(snapshot, "files", str(snapshot))
        files = [
            f"# {len(paths)} files, listed by: {listing} > {_LIST}",
            f'files = Path("{_LIST}").read_text().splitlines()',
        ]
    parse = format_parser(snapshot.schema)
    mapped = [f"dataset = dataset.map({parse})"] if parse else []
    read = f"dataset = tf.data.TFRecordDataset(files{packed})"
    return "\n".join([*first, *files, format_spec(snapshot.schema) + read, *mapped])


def find_last_reported(instance: dg.DagsterInstance, key: dg.AssetKey) -> int | None:
    """The newest snapshot that Dagster was told of."""
    return get_reported_snapshot(instance.get_latest_materialization_event(key))


def get_latest_report(
    version: Version, instance: dg.DagsterInstance, key: dg.AssetKey
) -> StepReport | None:
    """The newest snapshot, for a run that made none; None if the version has none.

    A run that was killed after its commit could not report it: it is adopted here.
    """
    if not version.exists or not version.state.snapshot:
        return None
    snapshot = version.latest()
    told = find_last_reported(instance, key)
    adopted = told is None or told < snapshot.number
    return StepReport(snapshot, adopted=adopted, is_known=not adopted)


def build_result(version: Version, made: StepReport) -> dg.MaterializeResult[None]:
    """The materialization. Its data version is the content, so that staleness is the truth."""
    return dg.MaterializeResult(
        metadata=(build_brief_metadata if made.is_known else build_snapshot_metadata)(
            version, made
        ),
        data_version=dg.DataVersion(made.snapshot.content),
    )


def build_materialization(
    key: dg.AssetKey, version: Version, snapshot: Snapshot, *, added_rows: int
) -> dg.AssetMaterialization:
    """The materialization of a commit that no run reported: a small event, made from the log."""
    entry = version.log.entry(snapshot.entry)
    parents = {"parents": build_parents_table(snapshot.store, entry)} if entry.inputs else {}
    return dg.AssetMaterialization(
        asset_key=key,
        metadata={
            **build_brief_metadata(version, StepReport(snapshot, added_rows=added_rows)),
            **parents,
        },
        tags={"dagster/data_version": snapshot.content},
    )


_LABELS_SHOWN = 20
_COLUMNS_SHOWN = 100


def column_schema(schema: "Schema") -> dg.TableSchema:
    """Each feature as a column; opaque records have none."""
    return dg.TableSchema(columns=[_build_column(feature) for feature in schema.features])


def build_schema_metadata(schema: "Schema") -> dict[str, dg.TableSchemaMetadataValue]:
    """The metadata of an asset's definition that its declared schema gives.

    The asset page shows it also when the latest materialization is too small an event to have it.
    """
    return {"dagster/column_schema": dg.MetadataValue.table_schema(column_schema(schema))}


def column_lineage(origins: "Mapping[str, FeatureOrigin]") -> dg.TableColumnLineage:
    """Each column with those that it is made of; one that is made of none is left out."""
    found = {
        name: [
            dg.TableColumnDep(dg.AssetKey(get_asset_name(version)), column)
            for version, column in origin.of
        ]
        for name, origin in sorted(origins.items())
    }
    return dg.TableColumnLineage({name: deps for name, deps in found.items() if deps})


def build_lineage_table(lineage: dg.TableColumnLineage) -> dg.TableMetadataValue:
    """The same for people: the open-source web page shows nothing of a lineage."""
    deps_of = lineage.deps_by_column
    rows = [
        dg.TableRecord(
            {
                "column": column,
                "made of": ", ".join(
                    f"{dep.asset_key.to_user_string()}: {dep.column_name}" for dep in deps
                ),
            }
        )
        for column, deps in list(deps_of.items())[:_COLUMNS_SHOWN]
    ]
    more = len(deps_of) - _COLUMNS_SHOWN
    if more > 0:
        rows.append(dg.TableRecord({"column": f"and {more:,} more", "made of": ""}))
    schema = dg.TableSchema([dg.TableColumn("column"), dg.TableColumn("made of")])
    return dg.MetadataValue.table(rows, schema)


def format_column_type(feature: "Feature") -> str:
    """`int64`, `float[8]`, `bytes, image`, `int64[?] per step`."""
    from shardline.schema import shapes  # noqa: PLC0415 - it loads NumPy

    shape = shapes.shown(feature.shape) if feature.shape else ""
    steps = " per step" if feature.sequence else ""
    meaning = "" if feature.meaning is None else f", {type(feature.meaning).__name__.lower()}"
    return f"{feature.kind}{shape}{steps}{meaning}"


def _build_column(feature: "Feature") -> dg.TableColumn:
    words = [] if feature.meaning is None else [str(feature.meaning)]
    words.append("required" if feature.required else "optional")
    told = ", ".join(words)
    return dg.TableColumn(
        feature.name,
        format_column_type(feature),
        description=f"{feature.doc} ({told})" if feature.doc else told,
        constraints=dg.TableColumnConstraints(
            nullable=not feature.required, other=_list_constraints(feature)
        ),
    )


def _list_constraints(feature: "Feature") -> list[str]:
    told = ["NaN may occur"] if feature.nan else []
    labels = getattr(feature.meaning, "labels", None) or ()
    if labels:
        shown = ", ".join(labels[:_LABELS_SHOWN])
        more = len(labels) - _LABELS_SHOWN
        told.append(f"one of {shown}" + (f" and {more} more" if more > 0 else ""))
    return told
