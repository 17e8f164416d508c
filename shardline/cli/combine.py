"""`shardline combine`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.combine_loose import combine_loose
from shardline.cli.combine_options import CombineOptions
from shardline.cli.combine_version import combine_versions
from shardline.cli.options import (
    Size,
    compression_option,
    json_option,
    limit_options,
    no_check_option,
    root_option,
    workers_option,
)
from shardline.cli.rule_options import RuleOptions, rule_options

if TYPE_CHECKING:
    from shardline.pairing.feature_names import OnCollision
    from shardline.pairing.spec import How


@click.command(
    short_help="Make all pairs of the records of two files, or of two versions.",
    epilog="""\b
Examples:
  shardline combine left.tfrecord right.tfrecord --output pairs.tfrecord
  shardline combine 'a-*' 'b-*' --output pairs.tfrecord \\
      --on-collision prefix --left-prefix a_ --right-prefix b_
  shardline combine digits/v1 names/v2 --into digit_names/v1 --dry-run
  shardline combine orders/v1 people/v1 --into sold/v1 --on person=id --how left
  shardline combine digits/v1 digits/v1 --into digit_pairs/v1 --once \\
      --on-collision prefix --left-prefix a_ --right-prefix b_ --mode virtual

Of files each side is a file, a glob in quotes, or a folder. --where and --fields name functions
that are declared as for 'shardline extend'; they read the features of the pair by its names.

When a version has grown, the same command makes only the pairs of its new shards. With --limit or
--sample all is made anew, and so it is with --on if RIGHT has changed.

SNAPSHOT is a number, a tag, 'published' (the default), 'newest' or a time (UTC).""",
)
@click.argument("left", metavar="LEFT")
@click.argument("right", metavar="RIGHT")
@click.option(
    "--into",
    metavar="NAME/VERSION",
    help="Of versions: make the pairs the content of this one, which may be new.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Of files: write the pairs to this file.",
)
@click.option("--overwrite", is_flag=True, help="Of files: replace OUT if it is there.")
@rule_options
@click.option(
    "--mode",
    type=click.Choice(["materialized", "virtual"]),
    default="materialized",
    show_default=True,
    help="Of versions, virtual: write only the plan, and pin both; readers make the pairs. Not "
    "with --on, --where, --fields, --limit or --sample.",
)
@click.option(
    "budget_bytes",
    "--budget",
    type=Size(least=1),
    help="Refuse to write more than this.  [default: what the disk has free, at most 100 GB]",
)
@click.option(
    "--target-size",
    type=Size(least=1),
    help="Of versions: make shards of about so many bytes.  [default: 128MB]",
)
@compression_option(None, "  [default: as the version is, files and new ones not]")
@click.option("--dry-run", is_flag=True, help="Only tell how many pairs and bytes there would be.")
@no_check_option
@workers_option
@limit_options
@root_option
@json_option
def combine(
    *,
    on_collision: OnCollision,
    left_prefix: str,
    right_prefix: str,
    on: tuple[str, ...],
    how: How | None,
    where: str | None,
    fields: tuple[str, ...],
    limit: int | None,
    sample: int | None,
    seed: int | None,
    once: bool,
    **common: Any,  # noqa: ANN401 - they are told in CombineOptions
) -> None:
    """Make a record of each record of LEFT together with each one of RIGHT.

    LEFT and RIGHT are files (--output), or versions of datasets, NAME/VERSION[@SNAPSHOT] (--into).
    All pairs are made, or those that --on, --where, --limit or --sample leave. How many these are,
    and about how many bytes, is told first. The order is that of two nested loops, LEFT outside; of
    versions it is that within each two shards.

    Exits with 1 at a damaged record, if a function fails on a pair, or if the check failed; with 2
    if both sides have a feature of the same name and --on-collision does not say what to do, or if
    it would write more than the budget. Nothing is changed then.
    """
    asked = CombineOptions(**common)
    asked.refuse_mixed()
    rule = RuleOptions(
        on_collision, left_prefix, right_prefix, on, how, where, fields, limit, sample, seed, once
    ).load()
    if asked.output is not None:
        combine_loose(asked, asked.output, rule)
    elif asked.into is not None:
        combine_versions(asked, asked.into, rule)
