"""`shardline check`."""

from __future__ import annotations

import click

from shardline.cli.options import json_option, limit_options, limits, root_option, workers_option
from shardline.cli.output import print_json
from shardline.cli.references import find_snapshot, open_root, open_version, parse_reference
from shardline.cli.snapshot_check import check_snapshot, print_check, serialize_check


@click.command(
    epilog="""\b
Examples:
  shardline check digits/v1                check new shards and publish
  shardline check digits/v1@7 --recheck    check every shard
  shardline status digits/v1               show what is published

SNAPSHOT is a number, a tag, 'published', 'latest' or a UTC time. Default: 'latest', since a
published snapshot has passed its checks.

'shardline verify NAME/VERSION' reads the same files and writes nothing.""",
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.option("--recheck", is_flag=True, help="Also check shards that passed before.")
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
    """Check the shards of a snapshot, and record the results in the log.

    Each shard must be the committed file, and each record must fit the schema. A snapshot that
    passes is published. If a new shard fails, its snapshot is rejected. If a shard fails that
    passed before, the snapshots that contain it are no longer published. Exits with 1 if a check
    fails.
    """
    target = parse_reference(reference)
    version = open_version(open_root(root), target)
    snapshot = find_snapshot(version, target, "latest")
    result = check_snapshot(
        version,
        snapshot.number,
        recheck=recheck,
        limits=limits(max_record, max_decompressed),
        workers=workers,
    )
    if as_json:
        print_json(serialize_check(result))
    else:
        print_check(result)
    raise SystemExit(0 if result.ok else 1)
