"""`shardline append` and `shardline reland`."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.appended import appended_json, print_appended, print_next
from shardline.cli.checked import check_snapshot, print_checked
from shardline.cli.options import (
    Share,
    Size,
    compression_option,
    json_option,
    limit_options,
    limits,
    no_check_option,
    root_option,
    workers_option,
)
from shardline.cli.references import open_root, parse_version
from shardline.cli.schema_file import read_schema
from shardline.cli.skipped import with_skipped
from shardline.cli.source_arguments import find_sources, format_option
from shardline.cli.steps import drawing_engine

if TYPE_CHECKING:
    from shardline.cli.options import Command


@dataclass(frozen=True, slots=True)
class _Asked:
    """The arguments and options."""

    version: str
    sources: tuple[str, ...]
    schema: Path | None
    format_: str | None
    target_size: int
    compression: str | None
    quarantine_share: float
    salvage: bool
    set_aside: bool
    on_duplicate: str
    on_changed: str
    dry_run: bool
    no_check: bool
    workers: int | None
    max_record: int
    max_unpacked: int
    root: str | None
    as_json: bool


def _landing_options(command: Command) -> Command:
    for decorate in (
        json_option,
        root_option,
        limit_options,
        workers_option,
        no_check_option,
        click.option("--dry-run", is_flag=True, help="Only tell which sources are new."),
        click.option(
            "--on-changed",
            type=click.Choice(["reject", "append", "replace"]),
            default="reject",
            show_default=True,
            help="What to do with a path that has landed and now has other content: keep both, or "
            "replace its records in one commit.",
        ),
        click.option(
            "--on-duplicate",
            type=click.Choice(["skip", "append"]),
            default="skip",
            show_default=True,
            help="What to do with content that has landed under another path.",
        ),
        click.option(
            "--set-aside",
            is_flag=True,
            help="Let a source that cannot be appended not hold up the others: it is remembered "
            "as rejected, with the reason.",
        ),
        click.option(
            "--salvage",
            is_flag=True,
            help="Of damaged TFRecord files, take the intact records; what is lost is told in "
            "the quarantine.",
        ),
        click.option(
            "--quarantine-share",
            type=Share(),
            default="0",
            show_default=True,
            metavar="SHARE",
            help="Let up to this share of the rows go to quarantine, as 1% or 0.01, if they do "
            "not fit the schema.",
        ),
        compression_option(None, "  [default: as the version is, a new one not]"),
        click.option(
            "--target-size",
            type=Size(least=1),
            default="128MB",
            show_default=True,
            help="Begin a new shard when one has so many bytes.",
        ),
        format_option("the sources are"),
        click.option(
            "--schema",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The schema of a new version, as 'shardline schema --declare' writes it. Without "
            "this, the sources tell.",
        ),
        click.argument("sources", nargs=-1, required=True, metavar="SOURCE..."),
        click.argument("version", metavar="NAME/VERSION"),
    ):
        command = decorate(command)
    return command


@click.command(
    short_help="Append new records to a version, and publish them.",
    epilog="""\b
Examples:
  shardline append digits/v1 monday.jsonl
  shardline append digits/v1 'landing/*.parquet' --quarantine-share 1%
  shardline append photos/v1 images/ --format folder
  shardline append digits/v1 s3://bucket/in/day-1.tfrecord
\b
A schema to begin with, to be edited and used:
  shardline schema monday.jsonl --declare > digits.json
  shardline append digits/v1 monday.jsonl --schema digits.json
\b
One by hand:
  {"payload": "example", "features": [
    {"name": "label", "kind": "int64"},
    {"name": "image", "kind": "bytes", "required": false},
    {"name": "vector", "kind": "float", "shape": [128]}]}

A SOURCE is a file, a glob in quotes, a folder, or the URI of one object: TFRecord, JSON lines, CSV,
Parquet or Arrow. Of a folder, the files that are named like these are taken; if none is, the folder
is one source, each of whose files becomes a record with its path, label (the folder it lies in)
and content.""",
)
@_landing_options
def append(**asked: Any) -> None:  # noqa: ANN401 - they are told in _Asked
    """Append the records of new sources to a version, each source exactly once.

    The version is created on first use, and so is the root's folder. A source that landed before
    is skipped, and so is a duplicate: content that landed under another path. A path that has
    landed and now has other content is rejected, unless --on-changed says what to do. Each row is
    checked against the schema; if one does not fit, nothing is committed, unless --quarantine-share
    lets it go to quarantine. What was committed is checked, and so published.

    Exits with 0 also if nothing was new, and if duplicates were skipped; with 1 if rows do not fit,
    a source has another schema, is damaged or has changed since it landed, or the check failed;
    with 2 if a source cannot be read.
    """
    _run(_Asked(**asked), reland=False)


@click.command(
    short_help="Append sources again that were rejected or rolled back.",
    epilog="""\b
Examples:
  shardline log digits/v1                  what was rejected, and why
  shardline reland digits/v1 monday.jsonl

A source that was mended has another content, and simply is a new one, unless its path has landed
before: append it.""",
)
@_landing_options
def reland(**asked: Any) -> None:  # noqa: ANN401 - they are told in _Asked
    """Append sources again that were rejected, or rolled back by a restore.

    Append skips these, so that no retry brings back what someone took out. Use this when the reason
    is gone: the check was wrong, or the restore was. Sources that the newest snapshot still holds
    are skipped all the same. All else is as with append.
    """
    _run(_Asked(**asked), reland=True)


def _run(asked: _Asked, *, reland: bool) -> None:
    from shardline.log.version import StoredVersion
    from shardline.operations.append import append as run

    wanted = parse_version(asked.version)
    within = limits(asked.max_record, asked.max_unpacked)
    sources = find_sources(asked.sources, asked.format_)
    declared = None if asked.schema is None else read_schema(asked.schema)
    version = StoredVersion(open_root(asked.root, may_be_new=True), wanted.version)
    unknown = declared is None and not version.exists
    began = time.perf_counter()
    then = {"identifying": "finding the schema"} if unknown and not asked.dry_run else {}
    with drawing_engine(asked.workers, then=then) as engine:
        report = run(
            version,
            sources,
            schema=declared,
            format=asked.format_,  # type: ignore[arg-type] # one of its choices
            target_bytes=asked.target_size,
            compression=asked.compression,
            quarantine_share=asked.quarantine_share,
            salvage=asked.salvage,
            set_aside=asked.set_aside,
            reland=reland,
            on_duplicate=asked.on_duplicate,  # type: ignore[arg-type] # one of its choices
            on_changed=asked.on_changed,  # type: ignore[arg-type] # one of its choices
            dry_run=asked.dry_run,
            limits=within,
            engine=engine,
        )
    seconds = time.perf_counter() - began
    if not asked.as_json:
        print_appended(report, version, seconds, dry_run=asked.dry_run)
    checked = None
    if report.snapshot is not None and not asked.no_check:
        checked = check_snapshot(version, report.snapshot, limits=within, workers=asked.workers)
    if asked.as_json:
        told = appended_json(report, version, checked, seconds, dry_run=asked.dry_run)
        click.echo(json.dumps(with_skipped(told)))
    else:
        if checked is not None:
            print_checked(checked)
        print_next(report, version, checked)
    fine = not report.set_aside and (checked is None or checked.ok)
    raise SystemExit(0 if fine else 1)
