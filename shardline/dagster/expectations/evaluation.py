"""Evaluation of a suite: rules on rows read the added rows, other rules the whole snapshot.

Memory is bounded: it holds a chunk of rows and the tallies of the rules. `rules` describes how each
type of rule is evaluated.
"""

import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardline.api import Snapshot
from shardline.dagster.expectations.columns import (
    CHUNK_ROWS,
    create_empty_frame,
    get_flat_columns,
    read_chunks,
)
from shardline.dagster.expectations.engine import RuleEngine
from shardline.dagster.expectations.rules import EVALUATIONS, Evaluation, get_condition_text
from shardline.dagster.expectations.suite import ExpectationSpec
from shardline.dagster.expectations.tallies import Tally, create_tally
from shardline.errors import ShardlineError
from shardline.log.model import Shard

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult


_EVALUATION_ERRORS = (OSError, MemoryError, ShardlineError)
"""Errors that do not concern the rows: a full disk is not a reason to reject them."""


@dataclass(frozen=True, slots=True)
class EvaluationExtent:
    """The number of rows that were evaluated: `added` by rules on rows, all `rows` by the others.

    `rows_read` rows were decoded in `seconds`.
    """

    rows: int
    added: int
    rows_read: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows_read / self.seconds if self.seconds > 0 else 0.0

    def __str__(self) -> str:
        noun = "row" if self.rows == 1 else "rows"
        if self.added == self.rows:
            return f"all {self.rows:,} {noun}" if self.rows > 1 else f"{self.rows} {noun}"
        return f"{self.added:,} added of {self.rows:,} {noun}"


@dataclass(slots=True)
class _SnapshotRule:
    """A rule on the whole snapshot. After its tally raised an `error`, it is skipped."""

    index: int
    tally: Tally
    error: Exception | None = None


@dataclass
class Evaluator:
    """An evaluation of a suite on a snapshot whose `added` shards are not evaluated yet."""

    engine: RuleEngine
    expectations: Sequence[ExpectationSpec]
    snapshot: Snapshot
    added: Collection[Shard]
    chunk_rows: int = CHUNK_ROWS
    _partial: dict[int, list["ExpectationValidationResult"]] = field(default_factory=dict)
    _read: int = 0

    def run(self) -> tuple[list["ExpectationValidationResult"], EvaluationExtent]:
        """Return the results of all rules in the order of the suite, and the extent."""
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="shardline-expectations-") as folder:
            results = self._results(Path(folder))
        added = sum(shard.records for shard in self.added)
        seconds = time.perf_counter() - start
        extent = EvaluationExtent(self.snapshot.records, added, self._read, seconds)
        return [results[index] for index in range(len(self.expectations))], extent

    def _results(self, folder: Path) -> dict[int, "ExpectationValidationResult"]:
        empty = create_empty_frame(self.snapshot.schema)
        known = set(empty.columns)
        by_kind = self._places(known)
        on_rows = by_kind.get(Evaluation.ROWS, [])
        whole = [
            _SnapshotRule(index, create_tally(self.expectations[index], folder, str(index)))
            for kind, places in by_kind.items()
            if kind not in {Evaluation.ROWS, Evaluation.COLUMNS, Evaluation.TOTAL}
            for index in places
        ]
        # An empty frame decides rules that need no rows, and rules that name a missing column.
        missing_columns = [
            number
            for number, expected in enumerate(self.expectations)
            if set(expected.columns) - known
        ]
        without_rows = dict.fromkeys([*by_kind.get(Evaluation.COLUMNS, []), *missing_columns])
        results = self.engine.run(empty, list(without_rows))
        self._read_rows(on_rows, whole)
        for index in by_kind.get(Evaluation.TOTAL, []):
            results[index] = self._decide(index, {"table.row_count": self.snapshot.records})
        for rule in whole:
            results[rule.index] = self._finish(rule)
        missing = [index for index in on_rows if index not in self._partial]
        results |= self.engine.run(empty[self._needed(missing)], missing) if missing else {}
        for index, partial in self._partial.items():
            results[index] = self.engine.combine_results(index, partial)
        return results

    def _places(self, known: set[str]) -> dict[Evaluation, list[int]]:
        """Return the positions of rules by evaluation, without rules on missing columns.

        Rules about columns are included, because they are about missing columns.
        """
        by_evaluation: dict[Evaluation, list[int]] = {}
        for index, expected in enumerate(self.expectations):
            kind = EVALUATIONS[expected.type]
            if kind is not Evaluation.COLUMNS and set(expected.columns) - known:
                continue
            by_evaluation.setdefault(kind, []).append(index)
        return by_evaluation

    def _read_rows(self, on_rows: Sequence[int], whole: Sequence[_SnapshotRule]) -> None:
        """Feed added rows to all rules, and the other rows to rules on the whole snapshot."""
        everywhere = self._needed([rule.index for rule in whole])
        new = {shard.name for shard in self.added}
        older = [shard for shard in self.snapshot.shards if shard.name not in new]
        needed = [*dict.fromkeys([*everywhere, *self._needed(on_rows)])]
        for frame in self._frames(self.added, needed):
            for index, result in self.engine.run(frame, on_rows).items():
                self._keep(index, result)
            _add_chunk(whole, frame)
        for frame in self._frames(older if whole else (), everywhere):
            _add_chunk(whole, frame)

    def _frames(self, shards: Collection[Shard], needed: Sequence[str]) -> Iterator["pd.DataFrame"]:
        for frame in read_chunks(self.snapshot, shards, needed, chunk_rows=self.chunk_rows):
            self._read += len(frame)
            yield frame

    def _needed(self, places: Sequence[int]) -> list[str]:
        """Return the columns that rules need, in the order of the schema."""
        named = {name for index in places for name in self.expectations[index].columns}
        texts = [get_condition_text(self.expectations[index].kwargs) for index in places]
        return [
            column.name
            for column in get_flat_columns(self.snapshot.schema)
            if column.name in named or any(column.name in text for text in texts)
        ]

    def _keep(self, index: int, result: "ExpectationValidationResult") -> None:
        """Add a result on a chunk. The memory per rule does not grow with the chunks."""
        partial = self._partial.setdefault(index, [])
        partial.append(result)
        if len(partial) > 1:
            self._partial[index] = [self.engine.combine_results(index, partial)]

    def _decide(self, index: int, metrics: Mapping[str, Any]) -> "ExpectationValidationResult":
        try:
            return self.engine.decide(index, metrics)
        except _EVALUATION_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001 - a rule that raises has failed
            return self.engine.create_raised_result(index, error)

    def _finish(self, rule: _SnapshotRule) -> "ExpectationValidationResult":
        if rule.error is not None:
            return self.engine.create_raised_result(rule.index, rule.error)
        return self._decide(rule.index, rule.tally.metrics())


def _add_chunk(whole: Sequence[_SnapshotRule], frame: "pd.DataFrame") -> None:
    for rule in whole:
        if rule.error is None:
            try:
                rule.tally.add(frame)
            except _EVALUATION_ERRORS:
                raise
            except Exception as error:  # noqa: BLE001 - a rule that raises has failed
                rule.error = error
