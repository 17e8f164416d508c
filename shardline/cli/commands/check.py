"""`shardline check`."""

from __future__ import annotations

import json

import click

from shardline.cli.options import json_option, limit_options, limits, root_option, workers_option
from shardline.cli.references import find_snapshot, open_root, open_version, parse_reference
from shardline.cli.snapshot_check import check_snapshot, print_check, serialize_check


@click.command(
    epilog="""\b
Examples:
  shardline check digits/v1                check what is new; publish it
  shardline check digits/v1@7 --recheck      read every shard once more
  shardline status digits/v1               what is published, and what is not

SNAPSHOT is a number, a tag, 'published', 'latest' (the default) or a time (UTC).

'shardline verify NAME/VERSION' reads as much and writes nothing.""",
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.option("--recheck", is_flag=True, help="Check also the shards that have passed before.")
@workers_option
@limit_options
@root_option
@json_option
def check(
    reference: str,
    *,
    recheck: bool,
    workers: int | None,
    max_record: int,
    max_decompressed: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Check the shards of a snapshot, and write to the log what was found.

    Each shard must be the file that was committed, byte for byte, and each of its records must fit
    the schema. When all have passed, the snapshot is published. A shard that fails its first check
    has the snapshot that brought it in rejected; one that had passed before stays, and what holds
    it is no longer published. Exits with 1 if a check failed.
    """
    wanted = parse_reference(reference)
    version = open_version(open_root(root), wanted)
    snapshot = find_snapshot(version, wanted)
    checked = check_snapshot(
        version,
        snapshot.number,
        recheck=recheck,
        limits=limits(max_record, max_decompressed),
        workers=workers,
    )
    if as_json:
        click.echo(json.dumps(serialize_check(checked)))
    else:
        print_check(checked)
    raise SystemExit(0 if checked.ok else 1)
