"""What checks said about a snapshot and about its shards, for the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from shardline.lineage.page.model import CheckResult
from shardline.lineage.page.words import shown
from shardline.log.state import RESERVED_CHECKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from shardline.log.entry import Entry
    from shardline.log.state import State

Failures: TypeAlias = dict[tuple[str, str], str]
"""What was said when a check failed, by the check and the shard or content it failed on."""

_SHORT_NAME = 120


@dataclass(frozen=True, slots=True)
class _Marks:
    """Which checks passed and failed on several shards, or on one snapshot, as bits."""

    passed: NDArray[np.uint32]
    failed: NDArray[np.uint32]
    names: tuple[str, ...] | pa.ChunkedArray


def failures_of(entries: Iterable[Entry]) -> Failures:
    """The latest words about each failure."""
    return {
        (told.check, about): told.detail
        for entry in entries
        for told in entry.attestations
        if not told.passed and told.check not in RESERVED_CHECKS
        for about in (told.shards if told.content is None else (told.content,))
    }


def check_results(state: State, number: int, failures: Failures) -> Iterator[CheckResult]:
    """What each check says about a snapshot: those that it needs first, then others that were run.

    A check that it does not need and that did not look at all of it is left out.
    """
    needed = state.checks_of(number)
    moment, rows = state.timeline.moment(number), state.stays.rows_at(number)
    passed, failed = (state.stays.column(name)[rows] for name in ("passed", "failed"))
    on_shards = _Marks(passed, failed, state.stays.names().take(pa.array(rows)))
    passed, failed = (np.array([bits], np.uint32) for bits in (moment.passed, moment.failed))
    on_snapshot = _Marks(passed, failed, (moment.content,))
    wanted = dict.fromkeys((*needed.shard, *needed.snapshot))
    wanted |= dict.fromkeys(sorted(set(state.bits) - set(RESERVED_CHECKS)))
    for check in wanted:
        flag = np.uint32(1 << state.bits[check] if check in state.bits else 0)
        for needs, marks in ((needed.shard, on_shards), (needed.snapshot, on_snapshot)):
            told = _result(check, flag, marks, failures, needed=check in needs)
            if told is not None:
                yield told


def _result(
    check: str, flag: np.uint32, marks: _Marks, failures: Failures, *, needed: bool
) -> CheckResult | None:
    failed = np.flatnonzero(marks.failed & flag)
    unseen = np.flatnonzero(((marks.passed | marks.failed) & flag) == 0)
    name, several = shown(check, _SHORT_NAME), isinstance(marks.names, pa.ChunkedArray)
    if len(failed):
        detail = failures.get((check, str(marks.names[int(failed[0])])), "")
        return CheckResult(name, "failed", len(failed) * several, needed, shown(detail))
    if len(marks.passed) and not len(unseen):
        return CheckResult(name, "passed", needed=needed)
    return CheckResult(name, "missing", len(unseen) * several, needed) if needed else None
