"""`shardline lineage`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError, print_warning, render_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.references import (
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
)
from shardline.hints import Hint

if TYPE_CHECKING:
    from shardline.lineage.graph import Graph


@click.command(
    short_help="Tell what a version was made of, and what was made of it.",
    epilog="""\b
Examples:
  shardline lineage digits/v2                       both ways, by versions
  shardline lineage digits/v2@7 --up --level fields where each field comes from
  shardline lineage digits/v1 --down --level shards
  shardline lineage digits/v2 --dot | dot -Tsvg > lineage.svg

Logs are read, and no shard. What was deleted since is shown too, and says so.""",
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.option("--up", is_flag=True, help="Only what it was made of.")
@click.option("--down", is_flag=True, help="Only what was made of it.")
@click.option(
    "--level",
    type=click.Choice(["versions", "snapshots", "shards", "fields"]),
    default="versions",
    show_default=True,
    help="What to tell of.",
)
@click.option("--dot", is_flag=True, help="Print the graph in the DOT language, for Graphviz.")
@root_option
@json_option
def lineage(
    reference: str,
    *,
    up: bool,
    down: bool,
    level: str,
    dot: bool,
    root: str | None,
    as_json: bool,
) -> None:
    """Tell what a version was made of, and what was made of it, in all datasets of the root.

    Without a snapshot all of a version is meant: at the level of snapshots those that others read
    and the newest, at that of shards the shards of the newest. With one, only that is told of, and
    what was read for it: at the level of versions without the steps inside a version. Exits with 1
    if a log that may tell of it cannot be read: what it would tell is missing.
    """
    from shardline.lineage.ancestry import LEVELS, ancestry
    from shardline.provenance.catalog import Catalog

    if dot and as_json:
        raise UsageError("--dot and --json exclude each other", code="conflicting-options")
    store, named = open_root(root), parse_reference(reference)
    version = open_version(store, named)
    number = None if named.snapshot is None else find_snapshot(version, named).number
    graph = ancestry(
        Catalog(store),
        named.version,
        number,
        level=next(one for one in LEVELS if one == level),
        up=up or not down,
        down=down or not up,
    )
    if as_json:
        click.echo(json.dumps({"ok": not graph.unread, **graph.to_json()}))
    elif dot:
        from shardline.lineage.dot import to_dot

        click.echo(to_dot(graph))
    else:
        from shardline.cli.lineage_tree import print_trees

        print_trees(graph, up=up or not down, down=down or not up)
    if graph.unread:
        if not as_json:
            _warn_of_others(graph)
        raise SystemExit(1)


def _warn_of_others(graph: Graph) -> None:
    """Warn of logs that cannot be read, and suggest to verify them."""
    from shardline.lineage.readable import UNREAD

    shown = [node.gone for node in graph.nodes.values() if node.gone]
    for name, why in graph.unread.items():
        hint = Hint.run("verify", name)
        if any(why.removeprefix(f"{UNREAD}: ") in one for one in shown):
            click.echo(f"hint: {render_hint(hint)}")
        else:
            print_warning(f"{name}: inputs unknown: {why}", hint)
