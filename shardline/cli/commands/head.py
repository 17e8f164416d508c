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

    within = limits(max_record, max_decompressed)
    paths, references = split_files_and_versions([argument], root)
    if len(paths) > 1:
        raise UsageError(
            f"{argument}: expected a single file, got {len(paths)}", code="too-many-files"
        )
    if paths:
        shown = str(paths[0])
        records = preview(paths[0], count=count, skip=skip, limits=within)
    else:
        version = open_version(open_root(root), references[0])
        snapshot = find_snapshot(version, references[0])
        shown = str(snapshot)
        records = _read_snapshot(snapshot, count, skip, within)
    empty = True
    for record in records:
        click.echo(json.dumps(record.to_dict()) if as_json else _format_record(record))
        empty = False
    if empty and count and not as_json:
        behind = f" behind the first {skip:,}" if skip else ""
        click.echo(f"{escape_text(shown)}: no records{behind}")


def _read_snapshot(
    snapshot: StoredSnapshot, count: int, skip: int, limits: Limits
) -> Iterator[PreviewRecord]:
    """Records of a snapshot, numbered throughout; shards before the first are not read."""
    from shardline.readers.records import list_records

    first = 0
    for one in list_records(snapshot):
        inside = max(skip - first, 0)
        left = min(count, one.shard.records - inside)
        if left > 0:
            for record in _read_shard(one, left, inside, limits):
                yield replace(record, number=first + record.number)
            count -= left
        first += one.shard.records


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
    for picked in records.pick(np.arange(skip, skip + count), limits=limits):
        for number, payload in zip(picked.numbers.tolist(), picked.payloads(), strict=True):
            yield make_preview_record(number, bytes(payload))


def _format_record(record: PreviewRecord) -> str:
    lines = [f"record {record.number}: {record.form}, {format_bytes(record.bytes)}"]
    if record.payload is not None:
        return "\n".join([*lines, f"  {escape_text(record.payload)}"])
    features = list((record.features or {}).items())
    feature_lists = list((record.feature_lists or {}).items())
    width = max((len(escape_text(name)) for name, _ in features + feature_lists), default=0)
    lines += [
        f"  {escape_text(name):{width}}  {_get_kind(one):9} {_format_feature(one)}"
        for name, one in features
    ]
    for name, one in feature_lists:
        steps = format_count(one["steps"], "step")
        shown = " | ".join(_format_values(one["kind"], values) for values in one["values"])
        more = " | …" if one["steps"] > len(one["values"]) else ""
        kind = one["kind"] or "empty"
        lines.append(f"  {escape_text(name):{width}}  {kind:9} {steps}: {shown}{more}")
    return "\n".join(lines)


def _get_kind(one: dict[str, Any]) -> str:
    return str(one["kind"]) if one["length"] == 1 else f"{one['kind']}[{one['length']}]"


def _format_feature(one: dict[str, Any]) -> str:
    more = " …" if one["length"] > len(one["values"]) else ""
    return _format_values(one["kind"], one["values"]) + more


def _format_values(kind: str, values: list[Any]) -> str:
    return " ".join(map(_format_value if kind == "bytes" else str, values))


def _format_value(value: str) -> str:
    return value if value.startswith("<") else json.dumps(value, ensure_ascii=False)
