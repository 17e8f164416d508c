"""`shardline head`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import json_option, limit_options, limits, root_option
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    open_root,
    open_version,
    split_files_and_versions,
)
from shardline.text import escape_text, format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.snapshot import StoredSnapshot
    from shardline.operations.preview import PreviewRecord
    from shardline.readers.records import Records
    from shardline.tfrecord import Limits


@click.command(
    epilog="""\b
Examples:
  shardline head train.tfrecord
  shardline head train.tfrecord -n 1 --skip 100000
  shardline head train.tfrecord --json | jq .features.label
  shardline head digits/v1                 the published snapshot
  shardline head digits/v1@latest -n 3

"""
    + SNAPSHOT_HELP,
)
@click.argument("argument", metavar="FILE|NAME/VERSION[@SNAPSHOT]")
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Number of records.",
)
@click.option(
    "--skip",
    type=click.IntRange(min=0),
    default=0,
    help="Start at this record. Fast if the file has an index (see 'shardline index').",
)
@limit_options
@root_option
@json_option
def head(
    argument: str,
    *,
    count: int,
    skip: int,
    max_record: int,
    max_decompressed: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Show the first records of a file or version.

    Shows the kind and first values of each feature, and the size of long bytes. A record that is
    not an Example is shown as text or as its size. With --json, each record is one line, and a
    float that JSON does not have is "NaN", "Infinity" or "-Infinity".
    """
    from shardline.operations.preview import preview

    read_limits = limits(max_record, max_decompressed)
    paths, references = split_files_and_versions([argument], root)
    if len(paths) > 1:
        raise UsageError(
            f"{argument}: expected a single file, got {len(paths)}", code="too-many-files"
        )
    if paths:
        label = str(paths[0])
        records = preview(paths[0], count=count, skip=skip, limits=read_limits)
    else:
        version = open_version(open_root(root), references[0])
        snapshot = find_snapshot(version, references[0])
        label = str(snapshot)
        records = _read_snapshot(snapshot, count, skip, read_limits)
    is_empty = True
    for record in records:
        click.echo(json.dumps(record.to_dict()) if as_json else _format_record(record))
        is_empty = False
    if is_empty and count and not as_json:
        after = f" after the first {skip:,}" if skip else ""
        click.echo(f"{escape_text(label)}: no records{after}")


def _read_snapshot(
    snapshot: StoredSnapshot, count: int, skip: int, limits: Limits
) -> Iterator[PreviewRecord]:
    """Yield records with their numbers in the snapshot. Shards before the first are not read."""
    from shardline.readers.records import list_records

    first = 0
    for records in list_records(snapshot):
        shard_skip = max(skip - first, 0)
        shard_count = min(count, records.shard.records - shard_skip)
        if shard_count > 0:
            for record in _read_shard(records, shard_count, shard_skip, limits):
                yield replace(record, number=first + record.number)
            count -= shard_count
        first += records.shard.records


def _read_shard(records: Records, count: int, skip: int, limits: Limits) -> Iterator[PreviewRecord]:
    import numpy as np

    from shardline.errors import CorruptFileError, ObjectNotFoundError
    from shardline.operations.preview import make_preview_record, preview
    from shardline.readers.read_errors import locate_error
    from shardline.readers.shard_file import ShardFile

    if isinstance(records, ShardFile):
        try:
            yield from preview(records.file, count=count, skip=skip, limits=limits)
        except CorruptFileError as error:
            raise locate_error(records.snapshot, records.file.store, (records,), error) from None
        except ObjectNotFoundError:
            raise records.missing() from None
        return
    for batch in records.pick(np.arange(skip, skip + count), limits=limits):
        for number, payload in zip(batch.numbers.tolist(), batch.payloads(), strict=True):
            yield make_preview_record(number, bytes(payload))


def _format_record(record: PreviewRecord) -> str:
    lines = [f"record {record.number}: {record.form}, {format_bytes(record.bytes)}"]
    if record.payload is not None:
        return "\n".join([*lines, f"  {escape_text(record.payload)}"])
    features = list((record.features or {}).items())
    feature_lists = list((record.feature_lists or {}).items())
    width = max((len(escape_text(name)) for name, _ in features + feature_lists), default=0)
    lines += [
        f"  {escape_text(name):{width}}  {_get_kind(feature):9} {_format_feature(feature)}"
        for name, feature in features
    ]
    for name, feature in feature_lists:
        count = format_count(feature["steps"], "step")
        steps = [_format_values(feature["kind"], values) for values in feature["values"]]
        steps += ["…"] if feature["steps"] > len(steps) else []
        kind = feature["kind"] or "empty"
        lines.append(f"  {escape_text(name):{width}}  {kind:9} {count}: {' | '.join(steps)}")
    return "\n".join(lines)


def _get_kind(feature: dict[str, Any]) -> str:
    kind, length = feature["kind"], feature["length"]
    return str(kind) if length == 1 else f"{kind}[{length}]"


def _format_feature(feature: dict[str, Any]) -> str:
    more = " …" if feature["length"] > len(feature["values"]) else ""
    return _format_values(feature["kind"], feature["values"]) + more


def _format_values(kind: str, values: list[Any]) -> str:
    return " ".join(map(_format_value if kind == "bytes" else str, values))


def _format_value(value: str) -> str:
    return value if value.startswith("<") else json.dumps(value, ensure_ascii=False)
