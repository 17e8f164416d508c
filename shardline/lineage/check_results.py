"""Results of checks on a snapshot, for the report page and the dataset card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from shardline.log.state import RESERVED_CHECKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.state import State

CheckStatus: TypeAlias = Literal["passed", "failed", "missing"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check on the shards of a snapshot, or on the snapshot itself.

    `first_failure` is the shard or the content digest that failed first.
    """

    check: str
    on_shards: bool
    required: bool
    total: int
    passed: int
    failed: int
    missing: int
    first_failure: str = ""

    @property
    def outcome(self) -> CheckStatus:
        """`passed` only if nothing failed and nothing is missing."""
        if self.failed:
            return "failed"
        return "missing" if self.missing or not self.total else "passed"


def iter_check_results(state: State, number: int) -> Iterator[CheckResult]:
    """Yield the result of each check on a snapshot, required checks first.

    Leaves out an optional check that did not run on all of it.
    """
    required = state.get_checks(number)
    snapshot_row, rows = state.snapshot_history.get_row(number), state.shard_history.rows_at(number)
    names = state.shard_history.names()
    shard_marks = [state.shard_history.column(name)[rows] for name in ("passed", "failed")]
    snapshot_marks = [
        np.array([bits], np.uint32) for bits in (snapshot_row.passed, snapshot_row.failed)
    ]
    checks = dict.fromkeys((*required.shard, *required.snapshot))
    checks |= dict.fromkeys(sorted(set(state.bits) - set(RESERVED_CHECKS)))
    for check in checks:
        flag = np.uint32(1 << state.bits[check] if check in state.bits else 0)
        for on_shards, marks in ((True, shard_marks), (False, snapshot_marks)):
            passed, failed = (bits & flag for bits in marks)
            failures = np.flatnonzero(failed)
            first = snapshot_row.content
            if on_shards and len(failures):
                first = str(names[int(rows[failures[0]])])
            result = CheckResult(
                check,
                on_shards=on_shards,
                required=check in (required.shard if on_shards else required.snapshot),
                total=len(passed),
                passed=int(np.count_nonzero(passed)),
                failed=len(failures),
                missing=int(np.count_nonzero((passed | failed) == 0)),
                first_failure=first if len(failures) else "",
            )
            if result.required or result.outcome != "missing":
                yield result
