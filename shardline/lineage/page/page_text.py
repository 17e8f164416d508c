"""What entries did, in words for the page, and foreign texts made fit to be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.log.state import RESERVED_CHECKS
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from shardline.log.entry import Entry
    from shardline.log.model import Attestation

_MOST = 300
_SHOWN_NAMES = 8


def sanitize_text(text: object, most: int = _MOST) -> str:
    """A foreign text without what moves or hides other text, cut if it is too long."""
    told = str(text)
    cut = told if len(told) <= most else f"{told[: most - 1]}…"
    return "\n".join(
        line if line.isprintable() else line.encode("unicode_escape").decode()
        for line in cut.split("\n")
    )


def format_second(time: datetime) -> str:
    """A time in UTC, to the second."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def format_entry(entry: Entry) -> str:
    """What an entry did: `+1 shard, 600 records; 3 rows in quarantine`."""
    return "; ".join(_iter_entry_parts(entry))


def _iter_entry_parts(entry: Entry) -> Iterator[str]:
    if entry.schema is not None:
        yield f"created with {format_count(len(entry.schema.features), 'field')}"
    if entry.checks is not None:
        needed = (*entry.checks.shard, *entry.checks.snapshot)
        yield f"publishing needs {_format_some(needed) or 'no check'}"
    if entry.rejects is not None:
        yield f"snapshot {entry.rejects} rejected{_get_reason(entry)}"
    if entry.restores is not None:
        yield f"snapshot {entry.restores} restored"
    if entry.operation in {"extend", "migrate"}:
        yield from _iter_migration_parts(entry)
    yield from _iter_data_parts(entry)
    yield from _iter_attestation_parts(entry)
    yield from _iter_ref_parts(entry)
    if entry.condemned:
        yield f"{format_count(len(entry.condemned), 'file')} given to vacuum"


def _iter_ref_parts(entry: Entry) -> Iterator[str]:
    for what, hold in (("tag", entry.tag), ("pin", entry.pin)):
        if hold is not None:
            where = "taken away" if hold.snapshot is None else f"on snapshot {hold.snapshot}"
            reason = f" ({sanitize_text(hold.reason)})" if hold.reason else ""
            word = "" if entry.operation == what else f"{what} "
            yield f"{word}“{sanitize_text(hold.name)}” {where}{reason}"


def _iter_data_parts(entry: Entry) -> Iterator[str]:
    if entry.added:
        records = sum(one.shard.records for one in entry.added)
        yield f"+{format_count(len(entry.added), 'shard')}, {format_count(records, 'record')}"
    if entry.removed:
        yield f"\N{MINUS SIGN}{format_count(len(entry.removed), 'shard')}"
    if entry.sources and not entry.changes_data:
        verb = "set aside" if entry.operation == "reject" else "without a record"
        yield f"{format_count(len(entry.sources), 'source')} {verb}"
    reused = entry.parameters.get("reused")
    if isinstance(reused, int) and reused:
        yield f"{format_count(reused, 'shard')} used again"
    refused = _count_quarantined(entry)
    if refused:
        yield f"{format_count(refused, 'row')} in quarantine"


def _iter_migration_parts(entry: Entry) -> Iterator[str]:
    told = entry.parameters
    makers = [one for one in _get_list(told.get("fields")) if isinstance(one, dict)]
    made = [name for one in makers for name in _get_list(one.get("features"))]
    if made:
        yield f"new: {_format_some(made)}"
    for name, word in (("rename", "renamed"), ("cast", "cast")):
        pairs = told.get(name)
        if isinstance(pairs, dict) and pairs:
            yield f"{word}: {_format_some(f'{old} → {new}' for old, new in sorted(pairs.items()))}"
    for name, word in (("default", "filled in"), ("drop", "dropped")):
        names = _get_list(told.get(name))
        if names:
            yield f"{word}: {_format_some(names)}"


def _get_reason(entry: Entry) -> str:
    failed = [one for one in entry.attestations if not one.passed and one.detail]
    told = f"{failed[0].check}: {failed[0].detail}" if failed else entry.parameters.get("reason")
    return f": {sanitize_text(told)}" if told else ""


def _iter_attestation_parts(entry: Entry) -> Iterator[str]:
    """What several checks said of the same is one part."""
    found: dict[tuple[bool, str, str], list[str]] = {}
    for told in entry.attestations:
        if told.check not in RESERVED_CHECKS:
            detail = "" if told.passed or entry.rejects is not None else told.detail
            key = (told.passed, _format_subject(entry, told), sanitize_text(detail))
            found.setdefault(key, []).append(told.check)
    for (passed, about, detail), checks in found.items():
        verb = "passed" if passed else "failed"
        yield f"{_format_some(checks)} {verb} on {about}" + (f": {detail}" if detail else "")


def _format_subject(entry: Entry, told: Attestation) -> str:
    if told.content is None:
        return format_count(len(told.shards), "shard")
    if told.content == entry.content:
        return f"snapshot {entry.snapshot}"
    return f"content {told.content[:12]}…"


def _count_quarantined(entry: Entry) -> int:
    """How many rows were refused, as far as the parameters tell it as we do."""
    told = _get_list(entry.parameters.get("quarantine"))
    rows = [one.get("rows") for one in told if isinstance(one, dict)]
    return sum(count for count in rows if isinstance(count, int))


def _format_some(names: Iterable[object]) -> str:
    """The first of several, and how many more there are."""
    told = [sanitize_text(name, 80) for name in names]
    more = len(told) - _SHOWN_NAMES
    return ", ".join(told[:_SHOWN_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _get_list(told: object) -> list[object]:
    return told if isinstance(told, list) else []
