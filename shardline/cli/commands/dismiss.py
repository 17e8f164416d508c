"""`shardline dismiss`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import json_option, root_option
from shardline.cli.output import format_source, print_json, print_limited
from shardline.cli.references import open_root, open_version, parse_version
from shardline.hints import Command, Hint
from shardline.text import format_count, format_list

if TYPE_CHECKING:
    from shardline.log.version import StoredVersion
    from shardline.operations.rejected_sources import DismissReport, OpenSource


@click.command(
    epilog="""\b
Examples:
  shardline status digits/v1                    list the open sources
  shardline dismiss digits/v1 landing/bad.jsonl --reason "sent by mistake"
  shardline dismiss digits/v1 --duplicates

SOURCE is a path, a URI or the name of a batch, as `shardline status` prints it.""",
)
@click.argument("version", metavar="NAME/VERSION")
@click.argument("sources", nargs=-1, metavar="[SOURCE...]")
@click.option("--all", "everything", is_flag=True, help="Dismiss every open source.")
@click.option("--duplicates", is_flag=True, help="Dismiss every skipped duplicate.")
@click.option("--reason", default="", metavar="TEXT", help="Record this reason in the log.")
@root_option
@json_option
def dismiss(
    version: str,
    sources: tuple[str, ...],
    *,
    everything: bool,
    duplicates: bool,
    reason: str,
    root: str | None,
    as_json: bool,
) -> None:
    """Dismiss rejected sources and skipped duplicates of a version.

    'shardline status' and the check 'sources_accepted' no longer report a dismissed source.
    'shardline append --retry-rejected' still appends it, and other content of its path is a new
    source. Exits with 2 if a SOURCE is not open; none is dismissed then.
    """
    from shardline.operations.rejected_sources import dismiss as run

    target = parse_version(version)
    if bool(sources) + everything + duplicates > 1:
        raise UsageError(
            "SOURCE, --all and --duplicates exclude each other", code="conflicting-options"
        )
    if not (sources or everything or duplicates):
        raise UsageError(
            f"{target.version}: missing source to dismiss",
            code="missing-argument",
            hint=Hint.of(
                "pass `--all`, or name sources that ",
                Command.of("status", target.version),
                " lists",
            ),
            version=target.version,
        )
    stored = open_version(open_root(root), target)
    selected = sources or _select_sources(stored, everything=everything)
    report = run(stored, selected, reason=reason)
    if as_json:
        print_json({"ok": True, **report.to_dict()})
    else:
        _print_report(report)


def _select_sources(version: StoredVersion, *, everything: bool) -> tuple[OpenSource, ...]:
    """Return all open sources, or the duplicates among them."""
    from shardline.operations.rejected_sources import open_sources

    candidates = open_sources(version)
    return candidates.all if everything else candidates.duplicates


def _print_report(report: DismissReport) -> None:
    from shardline.operations.rejected_sources import DuplicateSource

    if not report.dismissed:
        click.echo(f"{report.version}: nothing to dismiss")
        return
    duplicates = sum(isinstance(source, DuplicateSource) for source in report.dismissed)
    rejected = len(report.dismissed) - duplicates
    counts = [format_count(rejected, "rejected source")] if rejected else []
    counts += [format_count(duplicates, "duplicate")] if duplicates else []
    click.echo(f"{report.version}: dismissed {format_list(counts)}")
    print_limited(format_source(source.source) for source in report.dismissed)
