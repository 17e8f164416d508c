"""`shardline files`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import json_option, root_option
from shardline.cli.output import print_json
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
)
from shardline.text import format_count

if TYPE_CHECKING:
    from shardline.log.snapshot import StoredSnapshot


@click.command(
    epilog="""\b
Examples:
  shardline files digits/v1
  shardline files digits/v1 -0 | xargs -0 ls -l
  shardline verify $(shardline files digits/v1@7)
  shardline files digits/v1 --python > input_pipeline.py

"""
    + SNAPSHOT_HELP,
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.option("null", "-0", is_flag=True, help="End each name with a NUL byte, for xargs -0.")
@click.option("--python", is_flag=True, help="Print Python code that reads the files.")
@root_option
@json_option
def files(reference: str, *, null: bool, python: bool, root: str | None, as_json: bool) -> None:
    """List the files of a snapshot in order, one path or URI per line.

    The files are plain TFRecord files and never change. A tag keeps them from 'shardline vacuum'.
    With --json, shows the records, bytes and sha256 of each file.
    """
    if null + python + as_json > 1:
        raise UsageError("-0, --python and --json exclude each other", code="conflicting-options")
    from shardline.log.changes import validate_not_tombstoned
    from shardline.readers.shard_file import list_plain_files

    target = parse_reference(reference)
    version = open_version(open_root(root), target)
    snapshot = find_snapshot(version, target)
    validate_not_tombstoned(
        version.state, snapshot.shards, f"cannot read snapshot {snapshot.number}: "
    )
    if python:
        click.echo(_format_snippet(snapshot), nl=False)
        return
    paths = [file.path for file in list_plain_files(snapshot)]
    if as_json:
        payload = [
            {
                "file": path,
                "records": shard.records,
                "bytes": shard.bytes,
                "sha256": shard.sha256,
                "compression": shard.compression,
            }
            for path, shard in zip(paths, snapshot.shards, strict=True)
        ]
        print_json({"ok": True, "snapshot": snapshot.to_dict(), "files": payload})
    else:
        for path in paths:
            click.echo(path + "\0" if null else path, nl=not null)


def _format_snippet(snapshot: StoredSnapshot) -> str:
    from shardline.errors import UnreadableSnapshotError
    from shardline.readers.shard_file import get_common_compression, list_plain_files
    from shardline.schema.tf_spec import format_parser, format_spec

    paths, reason = list[str](), ""
    try:
        paths = [file.path for file in list_plain_files(snapshot)]
    except UnreadableSnapshotError:
        reason = "its files do not contain whole records"
    if any("://" in path for path in paths):
        reason = "TensorFlow cannot read object stores"
    if reason:
        return (
            f"import shardline  # {reason}\n\n"
            f"version = shardline.open({snapshot.store.uri!r})[{snapshot.version!r}]\n"
            f"dataset = version.snapshot({snapshot.number}).to_tf()\n"
        )
    compression = get_common_compression(snapshot)
    argument = f", compression_type={compression!r}" if compression else ""
    path_lines = "".join(f"    {json.dumps(path, ensure_ascii=False)},\n" for path in paths)
    parse = format_parser(snapshot.schema)
    lines = [
        f"# {snapshot}: {format_count(snapshot.records, 'record')}",
        "import tensorflow as tf\n",
        f"files = [\n{path_lines}]",
        format_spec(snapshot.schema) + f"dataset = tf.data.TFRecordDataset(files{argument})",
    ]
    if parse:
        lines.append(f"dataset = dataset.map({parse})")
    return "\n".join(lines) + "\n"
