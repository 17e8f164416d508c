"""What an entry of an extension, a migration or a combination did, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.text import counted, escaped, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.canonical_json import Json
    from shardline.log.entry import Entry
    from shardline.log.model import Attestation, Maker


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


_MOST_DETAIL = 160
_SHOWN_RUN = 8
_SHOWN_SHARD = 16
_HAS_ITS_WORD = DERIVED | {
    "attest",
    "consume",
    "create",
    "dismiss",
    "erase",
    "pin",
    "reject",
    "release",
    "require",
    "restore",
    "tag",
    "vacuum",
}

_OF_CONSUMERS = frozenset({"consume", "release"})


def entry_words(entry: Entry, *, with_operation: bool = False) -> str:
    """`+3 shards, 12,000 records`: what an entry did, with its operation if it is not plain."""
    told = "; ".join(_parts(entry)) or "nothing"
    if with_operation and entry.operation not in _HAS_ITS_WORD:
        return f"{escaped(entry.operation)}: {told}"
    return told


def maker_words(maker: Maker) -> str:
    """Who made an entry: the run if there was one, else the host."""
    run = maker.run if len(maker.run) <= 2 * _SHOWN_RUN else f"{maker.run[:_SHOWN_RUN]}…"
    return f"run {escaped(run)}" if run else escaped(maker.host)


def check_names(entry: Entry) -> str:
    """The checks that an entry requires."""
    checks = () if entry.checks is None else (*entry.checks.shard, *entry.checks.snapshot)
    return escaped(listed(checks)) if checks else "no check"


def _parts(entry: Entry) -> Iterator[str]:
    if entry.schema is not None:
        features = entry.schema.features
        what = counted(len(features), "feature") if features else f"{entry.schema.payload} records"
        yield f"created: {what}, publishing needs {check_names(entry)}"
    elif entry.checks is not None:
        yield f"publishing now needs {check_names(entry)}"
    data = list(_data(entry))
    changed = f" ({'; '.join(data)})" if data else ""
    if entry.rejects is not None:
        reason = _failures(entry) or _short(escaped(str(entry.parameters.get("reason", ""))))
        yield f"rejected snapshot {entry.rejects}{changed}" + (f": {reason}" if reason else "")
    elif entry.operation == "reject":
        yield from _set_aside(entry)
    elif entry.restores is not None:
        yield f"restored snapshot {entry.restores}{changed}"
    else:
        yield from data
        yield from _attested(entry)
    if entry.operation in _OF_CONSUMERS:
        yield _consumer(entry)
        return
    if entry.operation == "dismiss":
        yield _dismissed(entry)
    yield from _holds(entry)
    if entry.condemned and entry.operation == "erase":
        yield f"{counted(len(entry.condemned), 'shard')} given up for good"
    elif entry.condemned:
        yield f"vacuum of {counted(len(entry.condemned), 'file')}"


def _holds(entry: Entry) -> Iterator[str]:
    for what, hold in (("tag", entry.tag), ("pin", entry.pin)):
        if hold is not None:
            name = escaped(hold.name)
            reason = f" ({_short(escaped(hold.reason))})" if hold.reason else ""
            end = "deleted" if hold.snapshot is None else f"→ {hold.snapshot}"
            yield f"{what} {name} {end}{reason}"


def _consumer(entry: Entry) -> str:
    """Who reads a snapshot from now on, or no longer does."""
    told = {key: escaped(str(entry.parameters.get(key, ""))) for key in ("name", "run", "commit")}
    about = [f"{key} {told[key]}" for key in ("run", "commit") if told[key]]
    named = told["name"] + (f" ({', '.join(about)})" if about else "")
    if entry.pin is None or entry.pin.snapshot is None:
        return f"released by {named}"
    return f"snapshot {entry.pin.snapshot} is read by {named}"


def _set_aside(entry: Entry) -> Iterator[str]:
    """Which sources could not land: the first reason in full, and how many there are."""
    told, same = entry.parameters.get("set_aside"), entry.parameters.get("duplicates")
    skipped = len(same) if isinstance(same, list) else 0
    if len(entry.sources) > skipped or not skipped:
        first = None
        if isinstance(told, list) and told and isinstance(told[0], dict):
            first = told[0].get("reason")
        reason = f": {_short(escaped(str(first).splitlines()[0]))}" if first else ""
        yield f"set aside {counted(len(entry.sources) - skipped, 'source')}{reason}"
    if skipped:
        yield f"skipped {counted(skipped, 'duplicate')}"


def _dismissed(entry: Entry) -> str:
    """How many rejected sources and duplicates an entry dismisses, and why."""
    listed_sources = entry.parameters.get("dismissed")
    count = len(listed_sources) if isinstance(listed_sources, list) else 0
    reason = _short(escaped(str(entry.parameters.get("reason", ""))))
    return f"dismissed {counted(count, 'source')}" + (f" ({reason})" if reason else "")


def _replaced(entry: Entry) -> str:
    """How many landings an append replaced by new content."""
    told = entry.parameters.get("replaced")
    return f", {counted(len(told), 'source')} replaced" if isinstance(told, list) else ""


def _data(entry: Entry) -> Iterator[str]:
    records = counted(sum(one.shard.records for one in entry.added), "record")
    if entry.operation == "repair" and entry.removed:
        yield from _repaired(entry)
    elif entry.operation in DERIVED:
        yield from derived_words(entry)
    elif entry.operation == "erase":
        yield from _erased(entry)
    elif entry.operation == "rebuild" and entry.added and entry.removed and not entry.inputs:
        shards = counted(len(entry.removed), "shard")
        yield f"{shards} rebuilt into {len(entry.added):,}, {records}"
    else:
        if entry.added:
            yield f"+{counted(len(entry.added), 'shard')}, {records}"
        elif entry.sources and not entry.removed:
            yield f"{counted(len(entry.sources), 'source')} without a record"
        if entry.removed:
            yield f"-{counted(len(entry.removed), 'shard')}{_replaced(entry)}"
    refused = _refused_rows(entry.parameters)
    if refused:
        yield f"{counted(refused, 'row')} in quarantine"
    if entry.inputs:
        names = [f"{one.shown}@{one.snapshot}" for one in entry.inputs]
        alone = " and itself" if len(set(names)) < len(names) else ""
        yield f"from {escaped(listed(dict.fromkeys(names)))}{alone}"


def _erased(entry: Entry) -> Iterator[str]:
    """How many records are gone, and what was told of the request."""
    told = entry.parameters.get("records")
    gone = sum(count for count in told if isinstance(count, int)) if isinstance(told, list) else 0
    request = _short(escaped(str(entry.parameters.get("request", ""))))
    why = f" ({request})" if request else ""
    if not entry.changes_data:
        yield f"erased what older snapshots hold{why}"
        return
    yield f"erased {counted(gone, 'record')}{why}, {counted(len(entry.added), 'shard')} anew"


def _repaired(entry: Entry) -> Iterator[str]:
    """How a shard was made anew, and what was lost."""
    how = {
        "inputs": "made anew of the shards it was rebuilt from",
        "source": "made anew of its source",
        "copies": "made anew of what was rebuilt from it",
        "salvage": "kept what was intact" if entry.added else "nothing was left",
    }.get(str(entry.parameters.get("how")), "made anew")
    yield f"{escaped(_short(entry.removed[0], _SHOWN_SHARD))}: {how}"
    lost = entry.parameters.get("lost_records")
    if isinstance(lost, int) and lost > 0:
        yield f"{counted(lost, 'record')} lost"


def _refused_rows(parameters: Json) -> int:
    """How many rows went to quarantine, as far as the parameters tell it as we do."""
    told = parameters.get("quarantine")
    listed = told if isinstance(told, list) else []
    rows = [one.get("rows") for one in listed if isinstance(one, dict)]
    return sum(count for count in rows if isinstance(count, int))


def _attested(entry: Entry) -> Iterator[str]:
    """`integrity, schema passed on 3 shards`: what several checks said of the same is one part."""
    passed: dict[str, list[str]] = {}
    for told in _told(entry):
        if told.passed:
            passed.setdefault(_about(entry, told), []).append(escaped(told.check))
    for about, checks in passed.items():
        yield f"{', '.join(checks)} passed on {about}"
    failures = _failures(entry)
    if failures:
        yield failures


def _failures(entry: Entry) -> str:
    """The first failure in full, and how many more there are."""
    failed = [told for told in _told(entry) if not told.passed]
    if not failed:
        return ""
    first = failed[0]
    detail = f": {_short(escaped(first.detail))}" if first.detail else ""
    more = f" (and {counted(len(failed) - 1, 'more failure')})" if len(failed) > 1 else ""
    return f"{escaped(first.check)} failed on {_about(entry, first)}{detail}{more}"


def _told(entry: Entry) -> list[Attestation]:
    """What checks said; the mark that a rejection leaves on its shards is none."""
    from shardline.log.state import RESERVED_CHECKS

    return [told for told in entry.attestations if told.check not in RESERVED_CHECKS]


def _about(entry: Entry, told: Attestation) -> str:
    if told.content is None:
        return counted(len(told.shards), "shard")
    if told.content == entry.content:
        return f"snapshot {entry.snapshot}"
    return f"the snapshot with content {told.content[:12]}…"


def _short(text: str, most: int = _MOST_DETAIL) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
