"""What became of a record's file: whether the record was erased, and whether the file is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shardline.provenance.downstream_rows import made_into
from shardline.provenance.log_index import Untold, is_in_place
from shardline.provenance.steps import Fate

if TYPE_CHECKING:
    from shardline.log.entry import Entry
    from shardline.provenance.log_index import Histories
    from shardline.provenance.steps import Step


def fate_of(histories: Histories, step: Step) -> Fate | None:
    """What became of the shard of a step, whose `of` is known; None if the version keeps it.

    A record was erased if the log says so of it, or of what was made of it in place; or if it was
    made of an erased one, and its shard was given up by an erase.
    """
    version = histories.catalog.version(step.version)
    condemned = version.state.condemned_in(step.shard)
    if condemned is None:
        return None
    given_up = [
        entry
        for entry in histories.catalog.entries(step.version)
        if step.shard in entry.condemned and entry.operation == "erase"
    ]
    entry = given_up[0] if given_up else histories.entry(step.version, condemned)
    erased = bool(given_up) and (
        _erased(histories, step.version, step.shard, step.shard_record) or step.of_erased
    )
    there = version.store.info(version.shard_name(step.shard)) is not None
    return Fate(entry.number, entry.operation, entry.time, erased, there)


def _erased(histories: Histories, version: str, shard: str, inside: int) -> bool:
    """Whether an erase took a record out, there or where it was put in place since."""
    waiting = [(shard, inside)]
    for name, record in waiting:  # it grows while it is read
        for entry in _taken_out(histories, version, name):
            try:
                outcomes = list(
                    made_into(histories, entry, version, name, np.array([record], np.int64))
                )
            except Untold:
                continue
            for outcome in outcomes:
                if outcome.why and entry.operation == "erase":
                    return True
                found = [(outcome.shard, int(one)) for one in outcome.records]
                waiting += [one for one in found if one not in waiting]
    return False


def _taken_out(histories: Histories, version: str, shard: str) -> list[Entry]:
    """The entries that made others of a shard, in its own version, and took it out."""
    state = histories.catalog.version(version).state
    entries = [
        histories.entry(version, state.timeline.moment(until).entry)
        for _, until in state.stays.spans(shard)
        if until <= state.snapshot
    ]
    # A stay ends too where the list before it changed.
    return [one for one in entries if is_in_place(one) and shard in one.removed]
