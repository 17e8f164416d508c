"""The command that drafts the suite of a version: `python -m shardline.cli.draft digits/v1`."""

from collections.abc import Iterable
from pathlib import Path

import click

from shardline.cli.errors import convert_click_error
from shardline.cli.options import root_option
from shardline.cli.output import create_console, create_table
from shardline.cli.references import find_snapshot, open_root, open_version, parse_reference
from shardline.dagster.expectations.sample import MAX_ROWS, take_sample
from shardline.dagster.expectations.suite import ExpectationSpec, Suite, get_suite_path
from shardline.dagster.expectations.suite_draft import draft_suite
from shardline.dagster.web.ui import CommandError, CommandUsageError
from shardline.errors import FileExistsAlreadyError, ShardlineError, UnreadableSnapshotError
from shardline.hints import Hint
from shardline.storage.durable_file import DurableFile
from shardline.text import escape_text, format_count

_LABELS = {
    "expect_table_row_count_to_be_between": "one row at least",
    "expect_column_to_exist": "exists",
    "expect_column_values_to_not_be_null": "never missing",
    "expect_column_mean_to_be_between": "mean ",
    "expect_column_value_lengths_to_be_between": "length ",
}


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  python -m shardline.cli.draft digits/v1 --root .demo/root
  python -m shardline.cli.draft digits/v1 --snapshot 7 --force
  python -m shardline.cli.draft digits/v1 --output /tmp/digits.json

What the schema promises is drafted as critical: that columns are there, that no value is missing
where one is required, labels, fixed lengths. If such an expectation fails, the snapshot is
rejected. What was merely seen is a warning: ranges with some room, means, small sets of values,
lengths. If such a one fails, the check is yellow and the snapshot is published.

A draft is a beginning. Delete what does not matter, set bounds that mean something to you, and make
critical what must never happen. Sets of values stand in the file as they are: look at them before
you commit it. All expectations there are: https://greatexpectations.io/expectations
Expectations that need all rows in memory are refused. The list is in
shardline/dagster/expectations/rules.py.

The columns: numbers and texts as they are; NAME__len for a list, and NAME__min, NAME__max,
NAME__mean for one of numbers; NAME__bytes for the size of bytes that are no text.""",
)
@click.argument("reference", metavar="NAME/VERSION")
@root_option
@click.option(
    "--snapshot",
    "which",
    metavar="SNAPSHOT",
    help="A number, a tag, 'published', a time.  [default: the newest]",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write it.  [default: checks/expectations/NAME_VERSION.json]",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=MAX_ROWS,
    show_default=True,
    help="How many rows to look at; if there are more, a seeded sample.",
)
@click.option("--force", is_flag=True, help="Write over a suite that is there.")
def main(
    reference: str,
    *,
    root: str | None,
    which: str | None,
    output: Path | None,
    limit: int,
    force: bool,
) -> None:
    """Draft a suite of expectations from the rows of a snapshot, to be edited.

    A suite says what must hold of the data in a version before anyone may read it. It is a JSON
    file for Great Expectations, which the check 'expectations' reads, with one expectation on each
    line.
    """
    try:
        wanted = parse_reference(reference)
        path = output or get_suite_path(wanted.version)
        if path.exists() and not force:
            exists = FileExistsAlreadyError(
                f"{path}: exists already, and may have been edited",
                hint=Hint.of("write elsewhere with `--output`, or overwrite it with `--force`"),
                path=path,
            )
            raise CommandUsageError(exists)
        version = open_version(open_root(root), wanted)
        snapshot = find_snapshot(version, wanted, which)
        taken = take_sample(snapshot, limit=limit)
        if not taken.rows:
            empty = UnreadableSnapshotError(
                f"{snapshot}: no rows to draft from",
                code="snapshot-empty",
                hint=Hint.of("choose another `--snapshot`"),
                version=snapshot.version,
                snapshot=snapshot.number,
            )
            raise CommandUsageError(empty)
        suite = draft_suite(snapshot, taken)
        path.parent.mkdir(parents=True, exist_ok=True)
        with DurableFile(path, overwrite=force) as file:
            file.write(suite.to_text().encode())
    except click.UsageError as error:
        raise CommandUsageError(convert_click_error(error)) from None
    except ShardlineError as error:
        raise CommandError(error) from None
    except OSError as error:
        message = f"{error.filename}: {error.strerror}"
        raise CommandError(ShardlineError(message, code="system-error")) from None
    _print_suite(suite)
    click.echo(
        f"{format_count(len(suite.expectations), 'expectation')} from {snapshot}, {taken.extent}."
    )
    click.echo(f"Now edit {path}: a draft knows what was seen, not what is right.")


def _print_suite(suite: Suite) -> None:
    """A row for each column: what is critical of it, and what is a warning."""
    table = create_table("column", "critical", "warning", wide="warning")
    by_column: dict[str, list[ExpectationSpec]] = {}
    for one in suite.expectations:
        by_column.setdefault(", ".join(one.columns) or "(the table)", []).append(one)
    for column, expectations in by_column.items():
        table.add_row(
            escape_text(column),
            _format_expectations(one for one in expectations if one.severity == "critical"),
            _format_expectations(one for one in expectations if one.severity == "warning"),
        )
    create_console().print(table)


def _format_expectations(expectations: Iterable[ExpectationSpec]) -> str:
    return ", ".join(map(_format_expectation, expectations))


def _format_expectation(one: ExpectationSpec) -> str:
    """An expectation in short, without the values in it."""
    kwargs = one.kwargs
    if "value_set" in kwargs:
        return f"one of {len(kwargs['value_set'])}"
    if "max_value" in kwargs:
        return f"{_LABELS.get(one.type, '')}{kwargs['min_value']} to {kwargs['max_value']}"
    if "mostly" in kwargs:
        return f"{kwargs['mostly']:.0%} present"
    return _LABELS[one.type]


if __name__ == "__main__":
    main(prog_name="python -m shardline.cli.draft")
