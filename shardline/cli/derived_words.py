"""What an entry of an extension, a migration or a combination did, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.text import counted, escaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.canonical_json import Json
    from shardline.log.entry import Entry

DERIVED = frozenset({"extend", "migrate", "combine"})
_SHOWN = 6


def derived_words(entry: Entry) -> Iterator[str]:
    """`extended by double, length: 1 shard computed, 100 reused`, and what is gone."""
    told = entry.parameters
    how = {"extend": _extended, "migrate": _migrated, "combine": _combined}[entry.operation](told)
    computed, reused = (_count(told.get(name)) for name in ("computed", "reused"))
    found = f", {left:,} left by a run before" if (left := _count(told.get("found"))) else ""
    yield f"{how}: {counted(computed, 'shard')} computed, {reused:,} reused{found}"
    added = {one.shard.name for one in entry.added}
    gone = [name for name in entry.removed if name not in added]
    if gone:
        yield f"-{counted(len(gone), 'shard')}"


def used_again(found: int, reused: int) -> str:
    """What of it was not computed now, to be read behind how many shards were."""
    left = f", {found:,} of them by a run before" if found else ""
    return left + (f", {reused:,} used again" if reused else "")


def _extended(told: Json) -> str:
    makers = [one for one in _list(told.get("fields")) if isinstance(one, dict)]
    made = [name for one in makers for name in _names(one.get("features"))]
    dropped = _names(told.get("drop"))
    return (
        "extended"
        + (f" by {_some(made)}" if made else "")
        + (f" without {_some(dropped)}" if dropped else "")
    )


def _migrated(told: Json) -> str:
    steps = [f"{old} → {new}" for old, new in _pairs(told.get("rename"))]
    steps += [f"without {name}" for name in _names(told.get("drop"))]
    steps += [f"{name} as {kind}" for name, kind in _pairs(told.get("cast"))]
    steps += [f"{name} filled in" for name in _names(told.get("default"))]
    return "migrated" + (f" ({_some(steps)})" if steps else "")


def _combined(told: Json) -> str:
    rule = told.get("rule")
    given = rule if isinstance(rule, dict) else {}
    keys = [dict.fromkeys(_names(pair)) for pair in _list(given.get("on"))]
    words = [f"by {' = '.join(pair)}" for pair in keys if pair]
    words += ["with all of the left"] if given.get("how") == "left" else []
    words += ["each two once"] if given.get("once") else []
    words += ["some of the pairs"] if "where" in given else []
    words += [f"the first {counted(_count(told['limit']), 'pair')}"] if "limit" in told else []
    words += [f"a sample of {counted(_count(told['sample']), 'pair')}"] if "sample" in told else []
    return "combined" + (f" ({_some(words)})" if words else "")


def _some(words: list[str]) -> str:
    """The first of several, and how many more there are."""
    more = len(words) - _SHOWN
    return ", ".join(words) if more <= 0 else f"{', '.join(words[:_SHOWN])} and {more:,} more"


def _count(told: object) -> int:
    return told if isinstance(told, int) else 0


def _list(told: object) -> list[object]:
    return told if isinstance(told, list) else []


def _names(told: object) -> list[str]:
    return [escaped(str(name)) for name in _list(told)]


def _pairs(told: object) -> list[tuple[str, str]]:
    pairs = told.items() if isinstance(told, dict) else ()
    return [(escaped(str(one)), escaped(str(other))) for one, other in pairs]
