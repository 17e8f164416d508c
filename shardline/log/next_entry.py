"""The entry that a change makes of a version, and the version as it stands after it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shardline.errors import VersionMissingError
from shardline.hints import Hint
from shardline.log.entry import Entry
from shardline.log.facts import Totals
from shardline.log.publishing import newest_published
from shardline.log.state import content_digest, extended_digest
from shardline.storage import refuse_credentials

if TYPE_CHECKING:
    from datetime import datetime

    from shardline.log.changes import Change
    from shardline.log.facts import Checks, Maker
    from shardline.log.state import State


def next_entry(
    state: State,
    change: Change,
    *,
    id: str,  # noqa: A002 - the entry's own word
    now: datetime,
    maker: Maker,
) -> tuple[State, Entry, bytes] | None:
    """The version after the change, its entry and the entry's bytes; None if nothing is to do."""
    draft = change.on(state)
    if draft is None:
        return None
    after = state.fork()
    schema = draft.schema or state.schema
    if schema is None and draft.operation != "vacuum":
        raise VersionMissingError(
            f"{state.name}: version not found, nothing was committed",
            hint=Hint.of("create the version first: `version.create(schema)`"),
            version=state.name,
        )
    entry = Entry(
        **{name: getattr(draft, name) for name in draft.__slots__},
        dataset=state.dataset,
        version=state.version,
        number=state.number + 1,
        id=id,
        previous=state.digest,
        time=max(now, state.time),
        maker=maker,
        fingerprint=None if schema is None else schema.fingerprint,
        snapshot=state.snapshot + bool(draft.added or draft.removed),
        published=state.published,
        totals=state.totals,
        content=state.content,
    )
    after.change(entry)
    if entry.changes_data:
        entry = _with_totals(entry, state, after)
        after.hold(entry)
    after.mark(entry)
    if may_publish(entry, after.checks):
        entry = replace(entry, published=newest_published(after))
    _refuse_credentials(entry)
    entry, data = entry.sealed()
    after.stand(entry)
    return after, entry, data


def _refuse_credentials(entry: Entry) -> None:
    """Refuse to write down what must stay a secret, wherever a caller may have put it."""
    told = entry.to_json()
    left = [told.get(name) for name in ("parameters", "sources", "pin", "by")]
    while left:
        value = left.pop()
        if isinstance(value, str):
            refuse_credentials(value, f"an entry of {entry.shown}")
        elif isinstance(value, dict):
            left += [*value, *value.values()]
        elif isinstance(value, list):
            left += value


def _with_totals(entry: Entry, state: State, after: State) -> Entry:
    """Tell what the new snapshot amounts to: from what is new, where shards were only added."""
    new = [one.shard for one in entry.added]
    if not entry.removed and all(one.at is None for one in entry.added):
        content = state.content or content_digest(entry.fingerprint, [])
        return replace(
            entry, totals=state.totals + Totals.of(new), content=extended_digest(content, new)
        )
    shards = [stay.shard for stay in after.stays.at(entry.snapshot)]
    return replace(
        entry, totals=Totals.of(shards), content=content_digest(entry.fingerprint, shards)
    )


def may_publish(entry: Entry, checks: Checks) -> bool:
    """Whether the entry can move the newest published snapshot.

    `checks` are those that a snapshot made by it needs.
    """
    if entry.attestations or entry.rejects is not None or entry.removed:
        return True
    if entry.restores is not None or (entry.condemned and entry.snapshot):
        return True
    return entry.changes_data and not checks.shard
