"""How many pairs there will be, in words; what both kinds of combination tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from shardline.text import counted, escaped, human_bytes, listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.pairing.budget import Estimate
    from shardline.pairing.spec import Options
    from shardline.udf import Fields

_SHOWN = 20


def estimate_words(found: Estimate) -> str:
    """`12,000 pairs, about 1.2 MB to write`."""
    most = "at most " if found.most else ""
    return f"{most}{counted(found.pairs, 'pair')}, about {human_bytes(found.bytes)} to write"


def estimate_json(found: Estimate) -> dict[str, Any]:
    """The same for machines; with `most` there may be fewer."""
    return {"pairs": found.pairs, "bytes": found.bytes, "most": found.most}


def print_features(features: Iterable[str]) -> None:
    """What is in a pair."""
    listed_all = list(features)
    click.echo("a pair has:")
    for feature in listed_all[:_SHOWN]:
        click.echo(f"  {escaped(feature)}")
    if len(listed_all) > _SHOWN:
        click.echo(f"  … and {len(listed_all) - _SHOWN:,} more; --json lists all")


def print_not_incremental(rule: Options) -> None:
    """Say it where nothing of what is made now can be used again."""
    for name in ("limit", "sample"):
        if rule.get(name) is not None:
            click.echo(f"  --{name} is not incremental: all is made anew when a side has changed")
    makers = [*_listed(rule.get("fields", ())), *_listed(rule.get("where"))]
    unversioned = [one.shown for one in makers if one.identity() is None]
    if unversioned:
        click.echo(
            f"  {escaped(listed(unversioned))} {'has' if len(unversioned) == 1 else 'have'} no "
            'code version, so all is made anew each time: declare one, as in code="1"'
        )


def _listed(makers: Fields | Sequence[Fields] | None) -> list[Fields]:
    if makers is None:
        return []
    return list(makers) if isinstance(makers, Sequence) else [makers]
