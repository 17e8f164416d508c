"""`shardline trace`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import json_option, root_option
from shardline.cli.references import find_snapshot, next_command, open_root, parse_reference
from shardline.cli.traced import spread_lines, step_lines
from shardline.text import counted

if TYPE_CHECKING:
    from shardline.log.snapshot import StoredSnapshot
    from shardline.provenance.catalog import Catalog

_MOST = 5
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_NEGATIVE = re.compile(r"-\d+", re.ASCII)


class _RecordNumber(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """The number of a record: `537`."""

    name = "record"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """Read the number from the command line."""
        if not _WHOLE.fullmatch(str(value)):
            self.fail(
                f"invalid record number {value!r}: expected an integer from 0",
                param,
                ctx,
            )
        return int(value)


class _Trace(click.Command):
    """Takes -1 for a number, and not for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" not in args:
            negative = [one for one in args if _NEGATIVE.fullmatch(one)]
            args = [one for one in args if one not in negative]
            args += ["--", *negative] if negative else []
        return super().parse_args(ctx, args)


@click.command(
    cls=_Trace,
    short_help="Tell where one record came from, or what was made of it.",
    epilog="""\b
Examples:
  shardline trace digits/v2@7 1234              back to its source file and row
  shardline trace digits/v1@3 17 --down         what was made of it, in every version
  shardline trace pairs/v1 0 --json | jq '.steps[].operation'

With --down, a table tells how many records of each version are this record or were made of it: now,
in the newest snapshot, and ever, in any. Below it stand the first of them.

RECORD is a number as Snapshot.take has them, counted from 0 over all shards. Logs are read, and
what lies beside the shards: never a shard itself.""",
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.argument("record", type=_RecordNumber(), metavar="RECORD")
@click.option("--down", is_flag=True, help="Tell what was made of it instead.")
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=_MOST,
    show_default=True,
    help="With --down, how many records of each version to list; all are counted.",
)
@click.option("everything", "--all", is_flag=True, help="With --down, list all of them.")
@root_option
@json_option
def trace(
    reference: str,
    record: int,
    *,
    down: bool,
    most: int,
    everything: bool,
    root: str | None,
    as_json: bool,
) -> None:
    """Tell where one record came from, or with --down what was made of it.

    Every operation is followed: what was appended to its source file and row, what was rebuilt,
    extended, migrated, repaired or erased to the record before it, a pair to both of its records.
    What was erased since says so. Exits with 1 if the way back ends without a source, or with
    --down if it cannot be told what became of it somewhere, and says why.
    """
    from shardline.cli.references import open_version
    from shardline.provenance.catalog import Catalog

    store, named = open_root(root), parse_reference(reference)
    snapshot = find_snapshot(open_version(store, named), named)
    if record >= snapshot.records:
        raise UsageError(
            f"{snapshot}: unknown record {record} ({counted(snapshot.records, 'record')})",
            code="record-not-found",
            hint="records are numbered from 0",
            record=record,
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    if everything and not down:
        raise UsageError("--all requires --down", code="missing-option", hint="add `--down`")
    catalog = Catalog(store)
    raise SystemExit(
        _down(catalog, snapshot, record, None if everything else most, as_json=as_json)
        if down
        else _back(catalog, snapshot, record, as_json=as_json)
    )


def _back(catalog: Catalog, snapshot: StoredSnapshot, record: int, *, as_json: bool) -> int:
    from shardline.lineage.trace import trace as trace_back
    from shardline.provenance.steps import Unknown

    step = trace_back(catalog, snapshot, record)
    known = not any(isinstance(leaf, Unknown) for leaf in step.leaves)
    if as_json:
        click.echo(json.dumps({"ok": known, "erased": step.erased, "steps": step.to_json()}))
    else:
        click.echo("\n".join(step_lines(step)))
    return 0 if known else 1


def _down(
    catalog: Catalog, snapshot: StoredSnapshot, record: int, most: int | None, *, as_json: bool
) -> int:
    from shardline.lineage.trace import Tracer

    found = Tracer(catalog).descendants(snapshot, record, most)
    if not as_json:
        again = next_command("trace", str(snapshot), f"{record}", "--down", "--all")
        for line in spread_lines(found, again):
            click.echo(line)
        return 0 if found.told else 1
    versions = found.versions
    complete = all(one.listed == one.ever for one in versions)
    told = {"ok": found.told, "complete": complete, "versions": [one.to_json() for one in versions]}
    # Piece by piece: there may be more places than should be in memory as text.
    click.echo(f'{json.dumps(told)[:-1]}, "places": [', nl=False)
    for at, place in enumerate(found.places()):
        click.echo(f"{', ' if at else ''}{json.dumps(place.to_json())}", nl=False)
    click.echo("]}")
    return 0 if found.told else 1
