"""One look at one snapshot: each check's verdict, and what is said in the log."""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from checks.judged import EXPECTATIONS, not_judged, suite_detail
from checks.shard_checks import duplicates_in, shard_verdict, source_findings
from checks.sources import SOURCES, sources_verdict
from checks.suite import read_suite
from checks.verdict import Verdict
from checks.volume import volume
from shardline.errors import InvalidArgumentError, ShardlineError
from shardline.log.entry import Entry
from shardline.log.facts import Attestation, Shard
from shardline.log.snapshot import Snapshot
from shardline.log.version import Version
from shardline.operations.check import (
    INTEGRITY,
    SCHEMA,
    CheckReport,
    brought_in_by,
    check_version,
    is_in,
)

DRIFT, VOLUME = "drift", "volume"
_WARNERS = (DRIFT, VOLUME)
_MAX_DETAIL = 500


@dataclass
class Examination:
    """One look at a snapshot: the checks on it share what they read.

    `refused` are the entries by which this `run` set sources aside; `tell` logs what went wrong in
    a check.
    """

    version: Version
    snapshot: Snapshot
    suite: Path | None
    refused: list[Entry]
    reports: Path
    sample_rows: int
    run: str = ""
    tell: Callable[[str], None] = lambda _: None
    _last: Snapshot | None = field(init=False)
    _told: list[Attestation] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Note what was published before any verdict of ours."""
        self._last = last_published(self.version, self.snapshot)

    def verdict(self, check: str) -> Verdict:
        """The verdict of a check. One that cannot be run has failed: it never goes unnoticed."""
        runs: dict[str, Callable[[], Verdict]] = {
            INTEGRITY: partial(self._shards, INTEGRITY),
            SCHEMA: partial(self._shards, SCHEMA),
            EXPECTATIONS: self._expectations,
            DRIFT: self._drift,
            VOLUME: self._volume,
            SOURCES: partial(sources_verdict, self.version),
        }
        try:
            verdict = runs[check]()
        except Exception as error:  # noqa: BLE001 - a check that raises would leave no trace
            self.tell("".join(traceback.format_exception(error)))
            # Only our own messages are known to hold no value of the data.
            why = f"{type(error).__name__}, see the log of the step"
            if isinstance(error, ShardlineError):
                why = error.describe()
            elif isinstance(error, OSError):
                why = str(error)
            return Verdict(
                passed=False,
                description=f"{self.snapshot} could not be checked: {why}",
                warns=check in _WARNERS,
            )
        if check in _WARNERS:
            self._told.append(self._attestation(check, verdict, passed=verdict.passed))
        return verdict

    def finish(self) -> None:
        """Say in the log what the checks found that never block."""
        if self._told:
            self.version.attest(self._told)
            self._told = []

    @property
    def is_published(self) -> bool:
        """Whether the snapshot is published now."""
        self.version.refresh()
        return self.version.snapshot(self.snapshot.number).published

    @cached_property
    def _pass(self) -> CheckReport:
        """The one pass over the shards that have not passed; it attests and rejects."""
        return check_version(self.version, str(self.snapshot.number), look=True)

    @property
    def _is_sound(self) -> bool:
        """Whether all shards can be read. What the suite said before does not matter here."""
        return all(shard.ok for shard in self._pass.shards)

    def _shards(self, check: str) -> Verdict:
        report = self._pass
        entry = self.version.log.entry(self.snapshot.entry)
        landed = bool(entry.added) and entry.maker.run == self.run
        return shard_verdict(
            check,
            report,
            source_findings(self.refused, check),
            landed=landed,
            duplicates=duplicates_in(self.refused) if check == INTEGRITY else (),
        )

    def _expectations(self) -> Verdict:
        from checks.judge import judge  # noqa: PLC0415 - loads Great Expectations

        if not self._is_sound:
            return _not_sound(self.snapshot, warns=False)
        if self.suite is None:
            raise InvalidArgumentError(
                f"{self.version.name}: no suite of expectations", version=self.version.name
            )
        digest = read_suite(self.suite, self.version.name).digest
        added = not_judged(self.version, self.snapshot, digest)
        verdict = judge(self.snapshot, self.suite, docs=self.reports / "expectations", added=added)
        # The file may have been edited in between: what was judged counts.
        passed = verdict.passed or verdict.warns
        detail = suite_detail(
            str(verdict.metadata["suite_digest"]), "" if passed else verdict.description
        )
        told = Attestation(EXPECTATIONS, passed, content=self.snapshot.content, detail=detail)
        rejected = [] if passed else self._to_reject(self.suite, added)
        if not rejected:
            self.version.attest([told])
        for number in rejected:
            attestations = [told] if number == rejected[0] else []
            self.version.reject(number, attestations, reason="expectations failed")
        return verdict

    def _to_reject(self, suite: Path, added: Sequence[Shard]) -> list[int]:
        """Return the snapshots that brought in what fails the suite, and never passed it.

        Rows that were published before stay, whatever a new suite says: they would be missed.
        """
        from checks.judge import rows_fail  # noqa: PLC0415 - loads Great Expectations

        number = self.snapshot.number
        moment = self.version.state.timeline.moment(number)
        if is_in(self.version, moment.passed, EXPECTATIONS) or self.snapshot.rejected:
            return []
        known = {shard.name for shard in self._last.shards} if self._last is not None else set()
        names = {shard.name for shard in added}
        brought: dict[int, list[Shard]] = {}
        for stay in self.version.state.stays.at(number):
            if stay.shard.name in names:
                by = 0 if stay.shard.name in known else brought_in_by(self.version, stay)
                brought.setdefault(by, []).append(stay.shard)
        if set(brought) <= {number}:
            return [number]
        found = [
            by for by, part in sorted(brought.items()) if rows_fail(self.snapshot, suite, part)
        ]
        return [by for by in found if by] if found else [number]

    def _attestation(self, check: str, verdict: Verdict, *, passed: bool) -> Attestation:
        """A verdict on the snapshot as the log tells it."""
        detail = "" if passed else verdict.description[:_MAX_DETAIL]
        return Attestation(check, passed, content=self.snapshot.content, detail=detail)

    def _drift(self) -> Verdict:
        from checks.drift import drift  # noqa: PLC0415 - loads pandas
        from checks.sample import sample  # noqa: PLC0415 - loads pandas

        if not self._is_sound:
            return _not_sound(self.snapshot, warns=True)
        if self._last is None:
            return Verdict(passed=True, description="nothing was published before to compare with")
        before = {shard.name for shard in self._last.shards}
        new = [shard for shard in self.snapshot.shards if shard.name not in before]
        if not new:
            return Verdict(passed=True, description=f"no rows are new since {self._last}")
        limit = self.sample_rows
        return drift(
            sample(self.snapshot, shards=new, limit=limit), sample(self._last, limit=limit)
        )

    def _volume(self) -> Verdict:
        return volume(self.version, self.snapshot)


def last_published(version: Version, snapshot: Snapshot) -> Snapshot | None:
    """The newest published snapshot before one."""
    newest = version.state.published
    if newest is not None and newest < snapshot.number:
        return version.snapshot(newest)
    for number in range(snapshot.number - 1, 0, -1):
        older = version.snapshot(number)
        if older.published:
            return older
    return None


def _not_sound(snapshot: Snapshot, *, warns: bool) -> Verdict:
    return Verdict(
        passed=False,
        description=f"{snapshot} is not sound, so its rows were not looked at",
        warns=warns,
    )
