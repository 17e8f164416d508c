"""A run of checks on a snapshot: their outcomes, and the attestations in the log."""

import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shardline.api import Snapshot, Version
from shardline.dagster import metadata_keys as keys
from shardline.dagster.checks.check_outcome import (
    EXPECTATIONS,
    MAX_DETAIL,
    CheckOutcome,
    format_suite_detail,
    parse_suite_digest,
)
from shardline.dagster.checks.drift import check_drift
from shardline.dagster.checks.log_checks import (
    PUBLISHED,
    SOURCES,
    check_published,
    check_sources,
    check_volume,
    get_publication,
)
from shardline.dagster.checks.shard_checks import check_shards
from shardline.dagster.expectations.sample import take_sample
from shardline.dagster.expectations.suite import read_suite
from shardline.dagster.expectations.suite_check import check_expectations, has_failing_rows
from shardline.errors import CorruptLogError, InvalidArgumentError, ShardlineError
from shardline.log.model import INTEGRITY, SCHEMA, Attestation, Checks, Shard
from shardline.log.publication import has_check
from shardline.operations.check import (
    SHARD_CHECKS,
    CheckReport,
    check_version,
    get_introducing_snapshot,
    list_pending_checks,
)
from shardline.operations.verify_log import verify_log

DRIFT, VOLUME = "drift", "volume"
REPORTING = (DRIFT, VOLUME)
"""Checks that warn at most and gate nothing."""


@dataclass
class CheckRun:
    """A run of the `selected` checks on a snapshot. They share what they read.

    Each check writes only its own attestation.

    Attributes:
        version: The version.
        snapshot: The snapshot to check.
        suite: The file with the expectations.
        reports: The folder of report pages.
        sample_rows: Limit of the rows that the check `drift` reads.
        selected: The checks to run.
        declared: The checks that the declaration of the version requires.
        reread: Whether to read every shard and log entry, also those that were attested before.
        log_error: Logs the traceback of a check that raised.
    """

    version: Version
    snapshot: Snapshot
    suite: Path | None
    reports: Path
    sample_rows: int
    selected: Collection[str]
    declared: Checks = Checks()
    reread: bool = False
    log_error: Callable[[str], None] = lambda _: None
    _last: Snapshot | None = field(init=False)
    _report: CheckReport | None = field(init=False, default=None)
    _notes: list[Attestation] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Find the published snapshot to compare with, before any attestation of this run."""
        self._last = find_last_published(self.version, self.snapshot)

    def run(self, check: str) -> CheckOutcome:
        """Run a check and attest its outcome. A check that raises has failed."""
        runs: dict[str, Callable[[], CheckOutcome]] = {
            INTEGRITY: self._integrity,
            SCHEMA: self._schema,
            EXPECTATIONS: self._expectations,
            DRIFT: self._drift,
            VOLUME: self._volume,
            PUBLISHED: self._published,
            SOURCES: lambda: check_sources(self.version),
        }
        try:
            return runs[check]()
        except Exception as error:  # noqa: BLE001 - a check that raises would leave no trace
            self.log_error("".join(traceback.format_exception(error)))
            return create_failed_outcome(check, f"{self.snapshot} cannot be checked", error)

    def finish(self) -> None:
        """Attest the outcomes of the checks that gate nothing."""
        if self._notes:
            self.version.attest(self._notes)
            self._notes = []

    def _check_shards(self) -> CheckReport:
        """Run the selected shard checks in one pass, once. It attests and rejects."""
        if self._report is None:
            self._report = check_version(
                self.version,
                str(self.snapshot.number),
                recheck=self.reread,
                find_missing=True,
                only=[check for check in SHARD_CHECKS if check in self.selected],
            )
        return self._report

    def _integrity(self) -> CheckOutcome:
        if self.reread:
            problems = verify_log(self.version.log).problems
            if problems:
                first = problems[0]
                raise CorruptLogError(self.version.name, first.entry, first.detail, first.kind)
        return check_shards(INTEGRITY, self.version, self._check_shards(), reread=self.reread)

    def _schema(self) -> CheckOutcome:
        return check_shards(SCHEMA, self.version, self._check_shards(), reread=self.reread)

    def _published(self) -> CheckOutcome:
        self.version.refresh()
        number = self.snapshot.number
        return check_published(self.version, get_publication(self.version, number, self.declared))

    def _find_pending_check(self) -> str:
        """Return the first shard check that has not passed on the snapshot, empty if all have."""
        missing = list_pending_checks(self.version, self.snapshot)
        return next((check for check in SHARD_CHECKS if check in missing), "")

    def _expectations(self) -> CheckOutcome:
        pending = self._find_pending_check()
        if pending:
            return _create_unevaluated_outcome(self.snapshot, pending, warns=False)
        if self.suite is None:
            raise InvalidArgumentError(
                f"{self.version.name}: no expectation suite", version=self.version.name
            )
        digest = read_suite(self.suite, self.version.name).digest
        added = list_unchecked_shards(self.version, self.snapshot, digest)
        outcome = check_expectations(
            self.snapshot, self.suite, docs=self.reports / "expectations", added=added
        )
        # The file may have been edited since: the outcome names the suite that was evaluated.
        passed = outcome.passed or outcome.warns
        detail = format_suite_detail(
            str(outcome.metadata[keys.SUITE_DIGEST]), "" if passed else outcome.description
        )
        attestation = Attestation(
            EXPECTATIONS, passed, content=self.snapshot.content, detail=detail
        )
        rejected = [] if passed else self._list_snapshots_to_reject(self.suite, added)
        if not rejected:
            self.version.attest([attestation])
        for number in rejected:
            attestations = [attestation] if number == rejected[0] else []
            self.version.reject(number, attestations, reason="expectations failed")
        return outcome

    def _list_snapshots_to_reject(self, suite: Path, added: Sequence[Shard]) -> list[int]:
        """Return the snapshots that added failing rows and never passed the suite.

        Published rows are kept, whatever the result of a new suite: readers rely on them.
        """
        number = self.snapshot.number
        row = self.version.state.snapshot_history.get_row(number)
        if has_check(self.version, row.passed, EXPECTATIONS) or self.snapshot.rejected:
            return []
        known = {shard.name for shard in self._last.shards} if self._last is not None else set()
        names = {shard.name for shard in added}
        shards_by_snapshot: dict[int, list[Shard]] = {}
        for interval in self.version.state.shard_history.at(number):
            if interval.shard.name in names:
                is_known = interval.shard.name in known
                number_added = 0 if is_known else get_introducing_snapshot(self.version, interval)
                shards_by_snapshot.setdefault(number_added, []).append(interval.shard)
        if set(shards_by_snapshot) <= {number}:
            return [number]
        failing = [
            number_added
            for number_added, shards in sorted(shards_by_snapshot.items())
            if has_failing_rows(self.snapshot, suite, shards)
        ]
        return list(filter(None, failing)) if failing else [number]

    def _collect(self, check: str, outcome: CheckOutcome) -> CheckOutcome:
        """Collect an outcome that gates nothing. One entry attests all of them."""
        detail = "" if outcome.passed else outcome.description[:MAX_DETAIL]
        content = self.snapshot.content
        self._notes.append(Attestation(check, outcome.passed, content=content, detail=detail))
        return outcome

    def _drift(self) -> CheckOutcome:
        pending = self._find_pending_check()
        if pending:
            return _create_unevaluated_outcome(self.snapshot, pending, warns=True)
        return self._collect(DRIFT, self._compare_with_last())

    def _compare_with_last(self) -> CheckOutcome:
        if self._last is None:
            return CheckOutcome(passed=True, description="no earlier published snapshot")
        before = {shard.name for shard in self._last.shards}
        new = [shard for shard in self.snapshot.shards if shard.name not in before]
        if not new:
            return CheckOutcome(passed=True, description=f"no new rows since {self._last}")
        limit = self.sample_rows
        return check_drift(
            take_sample(self.snapshot, shards=new, limit=limit),
            take_sample(self._last, limit=limit),
        )

    def _volume(self) -> CheckOutcome:
        return self._collect(VOLUME, check_volume(self.version, self.snapshot))


def find_last_published(version: Version, snapshot: Snapshot) -> Snapshot | None:
    """Return the latest published snapshot before this one."""
    published = version.state.published
    if published is not None and published < snapshot.number:
        return version.snapshot(published)
    for number in range(snapshot.number - 1, 0, -1):
        older = version.snapshot(number)
        if older.published:
            return older
    return None


def create_failed_outcome(check: str, problem: str, error: Exception) -> CheckOutcome:
    """Return the outcome of a check that raised an error."""
    # Messages of other errors may contain values of the data.
    reason = f"{type(error).__name__}, see the log of the step"
    metadata = {}
    if isinstance(error, ShardlineError):
        reason, metadata = error.describe(), {keys.ERROR_CODE: error.code}
    elif isinstance(error, OSError):
        reason = str(error)
    return CheckOutcome(
        passed=False,
        description=f"{problem}: {reason}",
        metadata=metadata,
        warns=check in REPORTING,
    )


def _create_unevaluated_outcome(snapshot: Snapshot, missing: str, *, warns: bool) -> CheckOutcome:
    return CheckOutcome(
        passed=False,
        description=f"{snapshot}: not evaluated, {missing} has not passed",
        metadata={keys.NOT_EVALUATED: missing},
        warns=warns,
    )


_MAX_ENTRIES = 1000


def list_unchecked_shards(version: Version, snapshot: Snapshot, digest: str) -> tuple[Shard, ...]:
    """Return the shards of a snapshot that the suite with this digest has not evaluated.

    The latest earlier snapshot that the suite attested counts as evaluated. An attestation of the
    snapshot itself does not count, so that a repeated check reads the rows again.
    """
    before = _find_attested_snapshot(version, snapshot, digest)
    if before is None or before.schema != snapshot.schema:
        return snapshot.shards
    evaluated = {(shard.name, shard.content) for shard in before.shards}
    return tuple(shard for shard in snapshot.shards if (shard.name, shard.content) not in evaluated)


def _find_attested_snapshot(version: Version, snapshot: Snapshot, digest: str) -> Snapshot | None:
    """Return the latest earlier snapshot that the suite attested, None if it is too old."""
    latest = version.state.number
    seen: set[str] = set()
    for number in range(latest, max(latest - _MAX_ENTRIES, 0), -1):
        for attestation in version.log.entry(number).attestations:
            content = attestation.content
            if attestation.check != EXPECTATIONS or content is None or content in seen:
                continue
            seen.add(content)  # only the latest attestation of this content counts
            if not attestation.passed or parse_suite_digest(attestation.detail) != digest:
                continue
            earlier = _find_same_content(version, content, snapshot.number)
            if earlier is not None:
                return earlier
    return None


def _find_same_content(version: Version, content: str, below: int) -> Snapshot | None:
    """Return the latest earlier snapshot with this content that passed expectations."""
    history = version.state.snapshot_history
    for number in range(below - 1, max(below - 1 - _MAX_ENTRIES, 0), -1):
        row = history.get_row(number)
        if row.content == content:
            return (
                version.snapshot(number) if has_check(version, row.passed, EXPECTATIONS) else None
            )
    return None
