"""Text of a log entry, for `shardline log`, the report page and the dataset card."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.log.model import DERIVING_OPERATIONS
from shardline.log.parameters import (
    AppendedSources,
    CombineParameters,
    ConsumerParameters,
    DerivedParameters,
    DismissParameters,
    EntryParameters,
    EraseParameters,
    ExtendParameters,
    MigrateParameters,
    RejectParameters,
    RepairParameters,
)
from shardline.log.state import RESERVED_CHECKS
from shardline.text import escape_text, format_count, format_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.log.entry import Entry
    from shardline.log.model import Attestation, CommitInfo


_SHOWN = 6


def _format_derivation(entry: Entry) -> Iterator[str]:
    """Format as `extended by double, length: 1 shard computed, 100 reused`."""
    parameters = entry.read(DerivedParameters)
    label = {
        "extend": _format_extension,
        "migrate": _format_migration,
        "combine": _format_combination,
    }[entry.operation](entry)
    computed, reused = parameters.computed or 0, parameters.reused or 0
    recovered = f", {parameters.recovered:,} left by a run before" if parameters.recovered else ""
    yield f"{label}: {format_count(computed, 'shard')} computed, {reused:,} reused{recovered}"
    names = {added.shard.name for added in entry.added}
    removed = [name for name in entry.removed if name not in names]
    if removed:
        yield f"-{format_count(len(removed), 'shard')}"


def _format_extension(entry: Entry) -> str:
    parameters = entry.read(ExtendParameters)
    new = [name for udf in parameters.udfs for name in udf.features]
    return (
        "extended"
        + (f" by {_shorten_list(new)}" if new else "")
        + (f" without {_shorten_list(parameters.drop)}" if parameters.drop else "")
    )


def _format_migration(entry: Entry) -> str:
    parameters = entry.read(MigrateParameters)
    steps = [f"{old} → {new}" for old, new in parameters.rename.items()]
    steps += [f"without {name}" for name in parameters.drop]
    steps += [f"{name} as {kind}" for name, kind in parameters.cast.items()]
    steps += [f"{name} filled in" for name in parameters.default]
    return "migrated" + (f" ({_shorten_list(steps)})" if steps else "")


def _format_combination(entry: Entry) -> str:
    parameters = entry.read(CombineParameters)
    options = [f"by {' = '.join(dict.fromkeys(pair))}" for pair in parameters.keys]
    options += ["with all of the left"] if parameters.rule.get("how") == "left" else []
    options += ["each two once"] if parameters.is_unordered else []
    options += ["some of the pairs"] if "where" in parameters.rule else []
    if parameters.limit is not None:
        options.append(f"the first {format_count(parameters.limit, 'pair')}")
    if parameters.sample is not None:
        options.append(f"a sample of {format_count(parameters.sample, 'pair')}")
    return "combined" + (f" ({_shorten_list(options)})" if options else "")


def _shorten_list(names: Sequence[str]) -> str:
    """Return the first of several names, escaped, and the number of others."""
    first = ", ".join(map(escape_text, names[:_SHOWN]))
    more = len(names) - _SHOWN
    return first if more <= 0 else f"{first} and {more:,} more"


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
    """Format what an entry did, such as `+3 shards, 12,000 records`."""
    text = "; ".join(_format_parts(entry)) or "nothing"
    if with_operation and entry.operation not in _NAMED_OPERATIONS:
        return f"{escape_text(entry.operation)}: {text}"
    return text


def format_commit_info(info: CommitInfo) -> str:
    """Return the run that committed an entry, or else the host."""
    run = info.run if len(info.run) <= 2 * _SHOWN_RUN else f"{info.run[:_SHOWN_RUN]}…"
    return f"run {escape_text(run)}" if run else escape_text(info.host)


def format_required_checks(entry: Entry) -> str:
    """Return the checks that an entry requires."""
    checks = () if entry.checks is None else (*entry.checks.shard, *entry.checks.snapshot)
    return escape_text(format_list(checks)) if checks else "no check"


def _format_parts(entry: Entry) -> Iterator[str]:
    if entry.schema is not None:
        features = entry.schema.features
        records = (
            format_count(len(features), "feature")
            if features
            else f"{entry.schema.payload} records"
        )
        yield f"created: {records}, publishing needs {format_required_checks(entry)}"
    elif entry.checks is not None:
        yield f"publishing now needs {format_required_checks(entry)}"
    data = list(_format_data(entry))
    changed = f" ({'; '.join(data)})" if data else ""
    if entry.rejects is not None:
        reason = _format_failures(entry) or _shorten(
            escape_text(entry.read(RejectParameters).reason)
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
    if entry.tombstones and entry.operation == "erase":
        yield f"{format_count(len(entry.tombstones), 'shard')} given up for good"
    elif entry.tombstones:
        yield f"vacuum of {format_count(len(entry.tombstones), 'file')}"


def _format_refs(entry: Entry) -> Iterator[str]:
    for kind, ref in (("tag", entry.tag), ("pin", entry.pin)):
        if ref is not None:
            name = escape_text(ref.name)
            reason = f" ({_shorten(escape_text(ref.reason))})" if ref.reason else ""
            end = "deleted" if ref.snapshot is None else f"→ {ref.snapshot}"
            yield f"{kind} {name} {end}{reason}"


def _format_consumer(entry: Entry) -> str:
    """Return the registered or released consumer."""
    consumer = entry.read(ConsumerParameters)
    about = [f"run {consumer.run}"] if consumer.run else []
    about += [f"commit {consumer.commit}"] if consumer.commit else []
    label = escape_text(consumer.name + (f" ({', '.join(about)})" if about else ""))
    if entry.pin is None or entry.pin.snapshot is None:
        return f"released by {label}"
    return f"snapshot {entry.pin.snapshot} is read by {label}"


def _format_rejected_sources(entry: Entry) -> Iterator[str]:
    """Return the first rejected source with its reason, and the number of all."""
    parameters = entry.read(RejectParameters)
    skipped = len(parameters.duplicates)
    if len(entry.sources) > skipped or not skipped:
        first = parameters.rejected[0].reason if parameters.rejected else ""
        reason = f": {_shorten(escape_text(first.splitlines()[0]))}" if first else ""
        yield f"set aside {format_count(len(entry.sources) - skipped, 'source')}{reason}"
    if skipped:
        yield f"skipped {format_count(skipped, 'duplicate')}"


def _format_dismissal(entry: Entry) -> str:
    """Return the number of dismissed sources and duplicates, and the reason."""
    parameters = entry.read(DismissParameters)
    count = format_count(len(parameters.dismissed), "source")
    reason = _shorten(escape_text(parameters.reason))
    return f"dismissed {count}" + (f" ({reason})" if reason else "")


def _format_replacement(entry: Entry) -> str:
    """Return the number of appends that an append replaced."""
    replaced = entry.read(AppendedSources).replaced
    return f", {format_count(len(replaced), 'source')} replaced" if replaced else ""


def _format_data(entry: Entry) -> Iterator[str]:
    records = format_count(sum(added.shard.records for added in entry.added), "record")
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
    quarantined = sum(rows.rows for rows in entry.read(EntryParameters).quarantine)
    if quarantined:
        yield f"{format_count(quarantined, 'row')} in quarantine"
    if entry.inputs:
        names = [f"{source.label}@{source.snapshot}" for source in entry.inputs]
        alone = " and itself" if len(set(names)) < len(names) else ""
        yield f"from {escape_text(format_list(dict.fromkeys(names)))}{alone}"


def _format_erasure(entry: Entry) -> Iterator[str]:
    """Return the number of erased records, and the request."""
    parameters = entry.read(EraseParameters)
    request = _shorten(escape_text(parameters.request))
    reason = f" ({request})" if request else ""
    if not entry.changes_data:
        yield f"erased what older snapshots hold{reason}"
        return
    yield (
        f"erased {format_count(sum(parameters.records), 'record')}{reason}, "
        f"{format_count(len(entry.added), 'shard')} anew"
    )


def _format_repair(entry: Entry) -> Iterator[str]:
    """Return how a shard was recreated, and what was lost."""
    parameters = entry.read(RepairParameters)
    result = {
        "inputs": "made anew of the shards it was rebuilt from",
        "source": "made anew of its source",
        "copies": "made anew of what was rebuilt from it",
        "salvage": "kept what was intact" if entry.added else "nothing was left",
    }.get(parameters.method, "made anew")
    yield f"{escape_text(_shorten(entry.removed[0], _SHOWN_SHARD))}: {result}"
    if parameters.lost_records > 0:
        yield f"{format_count(parameters.lost_records, 'record')} lost"


def _format_attestations(entry: Entry) -> Iterator[str]:
    """Format as `integrity, schema passed on 3 shards`; equal results are one part."""
    passed: dict[str, list[str]] = {}
    for result in _list_check_results(entry):
        if result.passed:
            subject = _format_attested_shards(entry, result)
            passed.setdefault(subject, []).append(escape_text(result.check))
    for subject, checks in passed.items():
        yield f"{', '.join(checks)} passed on {subject}"
    failures = _format_failures(entry)
    if failures:
        yield failures


def _format_failures(entry: Entry) -> str:
    """Return the first failure, and the number of others."""
    failed = [result for result in _list_check_results(entry) if not result.passed]
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
    """Return the results of checks, without the mark of a rejection."""
    return [result for result in entry.attestations if result.check not in RESERVED_CHECKS]


def _format_attested_shards(entry: Entry, result: Attestation) -> str:
    if result.content is None:
        return format_count(len(result.shards), "shard")
    if result.content == entry.content:
        return f"snapshot {entry.snapshot}"
    return f"the snapshot with content {result.content[:12]}…"


def _shorten(text: str, most: int = _MAX_DETAIL) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
