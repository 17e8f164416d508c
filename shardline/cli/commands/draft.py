"""`shardline draft`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import json_option, root_option
from shardline.cli.output import Table, print_json
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
)
from shardline.errors import PackageMissingError
from shardline.hints import Hint
from shardline.text import escape_text, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.dagster.expectations.suite import ExpectationSpec, Suite

_LABELS = {
    "expect_table_row_count_to_be_between": "at least 1 row",
    "expect_column_to_exist": "exists",
    "expect_column_values_to_not_be_null": "never missing",
    "expect_column_mean_to_be_between": "mean ",
    "expect_column_value_lengths_to_be_between": "length ",
}


@click.command(
    epilog="""\b
Examples:
  shardline draft digits/v1
  shardline draft digits/v1@7 --overwrite
  shardline draft digits/v1 -o /tmp/digits.json

Expectations that follow from the schema are critical: columns, required values, labels, fixed
lengths. If one fails, the snapshot is rejected. Expectations from the observed values are warnings:
ranges with a margin, means, small sets of values, lengths. If one fails, the check warns and the
snapshot is published.

Edit the draft: delete what does not matter, set meaningful bounds, and make critical what must
never happen. Sets of values are in the file as text: read them before you commit it. All
expectations: https://greatexpectations.io/expectations. Expectations that need all rows in memory
are refused; shardline/dagster/expectations/rules.py lists them.

Columns are numbers and texts as they are; NAME__len for a list, and NAME__min, NAME__max,
NAME__mean for a list of numbers; NAME__bytes for the size of binary values.

"""
    + SNAPSHOT_HELP,
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Output file.  [default: checks/expectations/NAME_VERSION.json]",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Number of rows to read. Of more rows, a seeded sample is read.  [default: 200000]",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing suite.")
@root_option
@json_option
def draft(
    reference: str,
    *,
    output: Path | None,
    limit: int | None,
    overwrite: bool,
    root: str | None,
    as_json: bool,
) -> None:
    """Draft an expectation suite from the rows of a snapshot, to be edited.

    The suite is a JSON file for Great Expectations, with one expectation per line. The check
    'expectations' of Dagster requires it before it publishes a snapshot. Needs the packages of
    'shardline[platform]'.
    """
    try:
        from shardline.dagster.expectations.sample import MAX_ROWS, take_sample
        from shardline.dagster.expectations.suite import get_suite_path
        from shardline.dagster.expectations.suite_draft import draft_suite
    except ModuleNotFoundError as error:
        raise PackageMissingError(
            f"draft needs the package {error.name}",
            hint=Hint.of("run `pip install 'shardline[platform]'`"),
        ) from error
    from shardline.storage.durable_file import DurableFile

    target = parse_reference(reference)
    path = output or get_suite_path(target.version)
    if path.exists() and not overwrite:
        raise UsageError(
            f"{path} exists already",
            code="file-exists",
            hint="choose another name with `--output`, or add `--overwrite`",
            path=path,
        )
    snapshot = find_snapshot(open_version(open_root(root), target), target)
    sample = take_sample(snapshot, limit=limit or MAX_ROWS)
    if not sample.rows:
        raise UsageError(
            f"{snapshot}: no rows to draft from",
            code="snapshot-empty",
            hint="choose another snapshot",
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    suite = draft_suite(snapshot, sample)
    path.parent.mkdir(parents=True, exist_ok=True)
    with DurableFile(path, overwrite=overwrite) as file:
        file.write(suite.to_text().encode())
    count = len(suite.expectations)
    if as_json:
        payload = {"ok": True, "file": str(path), "version": snapshot.version}
        payload |= {"snapshot": snapshot.number, "rows": sample.rows, "expectations": count}
        print_json(payload)
        return
    _print_suite(suite)
    click.echo(f"{format_count(count, 'expectation')} from {snapshot}, {sample.extent}")
    click.echo(f"Edit {escape_text(str(path))}: a draft describes the data, not its requirements")


def _print_suite(suite: Suite) -> None:
    """Print a row per column: its critical expectations and its warnings."""
    table = Table("column", "critical", "warning", wide="warning")
    by_column: dict[str, list[ExpectationSpec]] = {}
    for expectation in suite.expectations:
        columns = ", ".join(expectation.columns) or "(the table)"
        by_column.setdefault(columns, []).append(expectation)
    for column, expectations in by_column.items():
        table.add_row(
            escape_text(column),
            *(
                _format_expectations(spec for spec in expectations if spec.severity == severity)
                for severity in ("critical", "warning")
            ),
        )
    table.print()


def _format_expectations(expectations: Iterable[ExpectationSpec]) -> str:
    return ", ".join(map(_format_expectation, expectations))


def _format_expectation(expectation: ExpectationSpec) -> str:
    """Return a short form of an expectation, without the values of a set."""
    kwargs = expectation.kwargs
    if "value_set" in kwargs:
        return f"one of {len(kwargs['value_set'])}"
    if "max_value" in kwargs:
        return f"{_LABELS.get(expectation.type, '')}{kwargs['min_value']} to {kwargs['max_value']}"
    if "mostly" in kwargs:
        return f"{kwargs['mostly']:.0%} present"
    return _LABELS[expectation.type]
