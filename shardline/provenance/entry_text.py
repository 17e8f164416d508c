"""Wording of a log entry, for `shardline log`, the report page and the dataset card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.log.model import DERIVING_OPERATIONS
from shardline.log.state import RESERVED_CHECKS
from shardline.text import escape_text, format_count, format_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.canonical_json import Json
    from shardline.log.entry import Entry
    from shardline.log.model import Attestation, CommitInfo


_SHOWN = 6


def _format_derivation(entry: Entry) -> Iterator[str]:
    """`extended by double, length: 1 shard computed, 100 reused`, and what is gone."""
    told = entry.parameters
    how = {
        "extend": _format_extension,
        "migrate": _format_migration,
        "combine": _format_combination,
    }[entry.operation](told)
    computed, reused = (_get_count(told.get(name)) for name in ("computed", "reused"))
    found = f", {left:,} left by a run before" if (left := _get_count(told.get("found"))) else ""
    yield f"{how}: {format_count(computed, 'shard')} computed, {reused:,} reused{found}"
    added = {one.shard.name for one in entry.added}
    gone = [name for name in entry.removed if name not in added]
    if gone:
        yield f"-{format_count(len(gone), 'shard')}"


def _format_extension(told: Json) -> str:
    makers = [one for one in _get_list(told.get("fields")) if isinstance(one, dict)]
    made = [name for one in makers for name in _get_names(one.get("features"))]
    dropped = _get_names(told.get("drop"))
    return (
        "extended"
        + (f" by {_shorten_list(made)}" if made else "")
        + (f" without {_shorten_list(dropped)}" if dropped else "")
    )


def _format_migration(told: Json) -> str:
    steps = [f"{old} → {new}" for old, new in _get_pairs(told.get("rename"))]
    steps += [f"without {name}" for name in _get_names(told.get("drop"))]
    steps += [f"{name} as {kind}" for name, kind in _get_pairs(told.get("cast"))]
    steps += [f"{name} filled in" for name in _get_names(told.get("default"))]
    return "migrated" + (f" ({_shorten_list(steps)})" if steps else "")


def _format_combination(told: Json) -> str:
    rule = told.get("rule")
    given = rule if isinstance(rule, dict) else {}
    keys = [dict.fromkeys(_get_names(pair)) for pair in _get_list(given.get("on"))]
    words = [f"by {' = '.join(pair)}" for pair in keys if pair]
    words += ["with all of the left"] if given.get("how") == "left" else []
    words += ["each two once"] if given.get("once") else []
    words += ["some of the pairs"] if "where" in given else []
    words += (
        [f"the first {format_count(_get_count(told['limit']), 'pair')}"] if "limit" in told else []
    )
    words += (
        [f"a sample of {format_count(_get_count(told['sample']), 'pair')}"]
        if "sample" in told
        else []
    )
    return "combined" + (f" ({_shorten_list(words)})" if words else "")


def _shorten_list(words: list[str]) -> str:
    """The first of several, and how many more there are."""
    more = len(words) - _SHOWN
    return ", ".join(words) if more <= 0 else f"{', '.join(words[:_SHOWN])} and {more:,} more"


def _get_count(told: object) -> int:
    return told if isinstance(told, int) else 0


def _get_list(told: object) -> list[object]:
    return told if isinstance(told, list) else []


def _get_names(told: object) -> list[str]:
    return [escape_text(str(name)) for name in _get_list(told)]


def _get_pairs(told: object) -> list[tuple[str, str]]:
    pairs = told.items() if isinstance(told, dict) else ()
    return [(escape_text(str(one)), escape_text(str(other))) for one, other in pairs]


_MAX_DETAIL = 160
_SHOWN_RUN = 8
_SHOWN_SHARD = 16
_NAMED_OPERATIONS = DERIVING_OPERATIONS | {
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

_CONSUMER_OPERATIONS = frozenset({"consume", "release"})


def format_entry(entry: Entry, *, with_operation: bool = False) -> str:
    """`+3 shards, 12,000 records`: what an entry did, with its operation if it is not plain."""
    told = "; ".join(_format_parts(entry)) or "nothing"
    if with_operation and entry.operation not in _NAMED_OPERATIONS:
        return f"{escape_text(entry.operation)}: {told}"
    return told


def format_commit_info(maker: CommitInfo) -> str:
    """Who made an entry: the run if there was one, else the host."""
    run = maker.run if len(maker.run) <= 2 * _SHOWN_RUN else f"{maker.run[:_SHOWN_RUN]}…"
    return f"run {escape_text(run)}" if run else escape_text(maker.host)


def format_required_checks(entry: Entry) -> str:
    """The checks that an entry requires."""
    checks = () if entry.checks is None else (*entry.checks.shard, *entry.checks.snapshot)
    return escape_text(format_list(checks)) if checks else "no check"


def _format_parts(entry: Entry) -> Iterator[str]:
    if entry.schema is not None:
        features = entry.schema.features
        what = (
            format_count(len(features), "feature")
            if features
            else f"{entry.schema.payload} records"
        )
        yield f"created: {what}, publishing needs {format_required_checks(entry)}"
    elif entry.checks is not None:
        yield f"publishing now needs {format_required_checks(entry)}"
    data = list(_format_data(entry))
    changed = f" ({'; '.join(data)})" if data else ""
    if entry.rejects is not None:
        reason = _format_failures(entry) or _shorten(
            escape_text(str(entry.parameters.get("reason", "")))
        )
        yield f"rejected snapshot {entry.rejects}{changed}" + (f": {reason}" if reason else "")
    elif entry.operation == "reject":
        yield from _format_rejected_sources(entry)
    elif entry.restores is not None:
        yield f"restored snapshot {entry.restores}{changed}"
    else:
        yield from data
        yield from _format_attestations(entry)
    if entry.operation in _CONSUMER_OPERATIONS:
        yield _format_consumer(entry)
        return
    if entry.operation == "dismiss":
        yield _format_dismissal(entry)
    yield from _format_refs(entry)
    if entry.condemned and entry.operation == "erase":
        yield f"{format_count(len(entry.condemned), 'shard')} given up for good"
    elif entry.condemned:
        yield f"vacuum of {format_count(len(entry.condemned), 'file')}"


def _format_refs(entry: Entry) -> Iterator[str]:
    for what, hold in (("tag", entry.tag), ("pin", entry.pin)):
        if hold is not None:
            name = escape_text(hold.name)
            reason = f" ({_shorten(escape_text(hold.reason))})" if hold.reason else ""
            end = "deleted" if hold.snapshot is None else f"→ {hold.snapshot}"
            yield f"{what} {name} {end}{reason}"


def _format_consumer(entry: Entry) -> str:
    """Who reads a snapshot from now on, or no longer does."""
    told = {
        key: escape_text(str(entry.parameters.get(key, ""))) for key in ("name", "run", "commit")
    }
    about = [f"{key} {told[key]}" for key in ("run", "commit") if told[key]]
    named = told["name"] + (f" ({', '.join(about)})" if about else "")
    if entry.pin is None or entry.pin.snapshot is None:
        return f"released by {named}"
    return f"snapshot {entry.pin.snapshot} is read by {named}"


def _format_rejected_sources(entry: Entry) -> Iterator[str]:
    """Which sources could not land: the first reason in full, and how many there are."""
    told, same = entry.parameters.get("set_aside"), entry.parameters.get("duplicates")
    skipped = len(same) if isinstance(same, list) else 0
    if len(entry.sources) > skipped or not skipped:
        first = None
        if isinstance(told, list) and told and isinstance(told[0], dict):
            first = told[0].get("reason")
        reason = f": {_shorten(escape_text(str(first).splitlines()[0]))}" if first else ""
        yield f"set aside {format_count(len(entry.sources) - skipped, 'source')}{reason}"
    if skipped:
        yield f"skipped {format_count(skipped, 'duplicate')}"


def _format_dismissal(entry: Entry) -> str:
    """How many rejected sources and duplicates an entry dismisses, and why."""
    listed_sources = entry.parameters.get("dismissed")
    count = len(listed_sources) if isinstance(listed_sources, list) else 0
    reason = _shorten(escape_text(str(entry.parameters.get("reason", ""))))
    return f"dismissed {format_count(count, 'source')}" + (f" ({reason})" if reason else "")


def _format_replacement(entry: Entry) -> str:
    """How many landings an append replaced by new content."""
    told = entry.parameters.get("replaced")
    return f", {format_count(len(told), 'source')} replaced" if isinstance(told, list) else ""


def _format_data(entry: Entry) -> Iterator[str]:
    records = format_count(sum(one.shard.records for one in entry.added), "record")
    if entry.operation == "repair" and entry.removed:
        yield from _format_repair(entry)
    elif entry.operation in DERIVING_OPERATIONS:
        yield from _format_derivation(entry)
    elif entry.operation == "erase":
        yield from _format_erasure(entry)
    elif entry.operation == "rebuild" and entry.added and entry.removed and not entry.inputs:
        shards = format_count(len(entry.removed), "shard")
        yield f"{shards} rebuilt into {len(entry.added):,}, {records}"
    else:
        if entry.added:
            yield f"+{format_count(len(entry.added), 'shard')}, {records}"
        elif entry.sources and not entry.removed:
            yield f"{format_count(len(entry.sources), 'source')} without a record"
        if entry.removed:
            yield f"-{format_count(len(entry.removed), 'shard')}{_format_replacement(entry)}"
    refused = _count_quarantined_rows(entry.parameters)
    if refused:
        yield f"{format_count(refused, 'row')} in quarantine"
    if entry.inputs:
        names = [f"{one.shown}@{one.snapshot}" for one in entry.inputs]
        alone = " and itself" if len(set(names)) < len(names) else ""
        yield f"from {escape_text(format_list(dict.fromkeys(names)))}{alone}"


def _format_erasure(entry: Entry) -> Iterator[str]:
    """How many records are gone, and what was told of the request."""
    told = entry.parameters.get("records")
    gone = sum(count for count in told if isinstance(count, int)) if isinstance(told, list) else 0
    request = _shorten(escape_text(str(entry.parameters.get("request", ""))))
    why = f" ({request})" if request else ""
    if not entry.changes_data:
        yield f"erased what older snapshots hold{why}"
        return
    yield (
        f"erased {format_count(gone, 'record')}{why}, "
        f"{format_count(len(entry.added), 'shard')} anew"
    )


def _format_repair(entry: Entry) -> Iterator[str]:
    """How a shard was made anew, and what was lost."""
    how = {
        "inputs": "made anew of the shards it was rebuilt from",
        "source": "made anew of its source",
        "copies": "made anew of what was rebuilt from it",
        "salvage": "kept what was intact" if entry.added else "nothing was left",
    }.get(str(entry.parameters.get("how")), "made anew")
    yield f"{escape_text(_shorten(entry.removed[0], _SHOWN_SHARD))}: {how}"
    lost = entry.parameters.get("lost_records")
    if isinstance(lost, int) and lost > 0:
        yield f"{format_count(lost, 'record')} lost"


def _count_quarantined_rows(parameters: Json) -> int:
    """How many rows went to quarantine, as far as the parameters tell it as we do."""
    told = _get_list(parameters.get("quarantine"))
    rows = [one.get("rows") for one in told if isinstance(one, dict)]
    return sum(count for count in rows if isinstance(count, int))


def _format_attestations(entry: Entry) -> Iterator[str]:
    """`integrity, schema passed on 3 shards`: what several checks said of the same is one part."""
    passed: dict[str, list[str]] = {}
    for told in _list_check_results(entry):
        if told.passed:
            passed.setdefault(_format_attested_shards(entry, told), []).append(
                escape_text(told.check)
            )
    for about, checks in passed.items():
        yield f"{', '.join(checks)} passed on {about}"
    failures = _format_failures(entry)
    if failures:
        yield failures


def _format_failures(entry: Entry) -> str:
    """The first failure in full, and how many more there are."""
    failed = [told for told in _list_check_results(entry) if not told.passed]
    if not failed:
        return ""
    first = failed[0]
    detail = f": {_shorten(escape_text(first.detail))}" if first.detail else ""
    more = f" (and {format_count(len(failed) - 1, 'more failure')})" if len(failed) > 1 else ""
    return (
        f"{escape_text(first.check)} failed on "
        f"{_format_attested_shards(entry, first)}{detail}{more}"
    )


def _list_check_results(entry: Entry) -> list[Attestation]:
    """What checks said; the mark that a rejection leaves on its shards is none."""
    return [told for told in entry.attestations if told.check not in RESERVED_CHECKS]


def _format_attested_shards(entry: Entry, told: Attestation) -> str:
    if told.content is None:
        return format_count(len(told.shards), "shard")
    if told.content == entry.content:
        return f"snapshot {entry.snapshot}"
    return f"the snapshot with content {told.content[:12]}…"


def _shorten(text: str, most: int = _MAX_DETAIL) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
