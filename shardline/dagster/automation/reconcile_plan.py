"""Decisions of the reconciler, from plain data and without Dagster.

Every decision follows from the current state of the logs and of Dagster's records. A tick that is
repeated, or that starts with an empty cursor, decides the same.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shardline.dagster.instance_records import CheckResult, CheckState

PUBLISHED = "published"
TRIES = 3
MAX_REQUESTS = 10
REPORTS_AT_ONCE = 50
_MISSING = CheckResult(CheckState.MISSING)


@dataclass(frozen=True, slots=True)
class VersionView:
    """A declared version, as its log and Dagster's records of its asset describe it.

    Attributes:
        name: The version.
        asset: The name of its asset.
        checks: The names of its declared checks.
        blocking: Results of the asset's blocking checks, including those of users, on its latest
            materialization.
        latest: The latest snapshot, 0 if there is none.
        is_open: Whether the log lets downstream read the latest snapshot.
        unchecked: The checks without a result on the latest snapshot.
        published: The published snapshot, 0 if there is none.
        content: The content digest of the published snapshot.
        materialization: Identifies the latest materialization that Dagster knows.
        is_reported: Whether this tick reports the latest snapshot.
        is_waiting: Why this tick skips the version, empty if it does not.
        corruption: Identifies the corruption of the log, empty if the log is intact.
    """

    name: str
    asset: str
    checks: tuple[str, ...]
    blocking: Mapping[str, CheckResult] = field(default_factory=dict)
    latest: int = 0
    is_open: bool = False
    unchecked: tuple[str, ...] = ()
    published: int = 0
    content: str = ""
    materialization: int = 0
    is_reported: bool = False
    is_waiting: str = ""
    corruption: str = ""

    def result(self, check: str) -> CheckResult:
        """Return the result of a blocking check on the latest materialization after this tick."""
        known = self.blocking.get(check, _MISSING)
        return _MISSING if self.is_reported and known.state is not CheckState.RUNNING else known

    @property
    def is_green(self) -> bool:
        """True if all blocking checks passed on the latest snapshot, in Dagster and in the log."""
        states = [self.result(check).state for check in self.blocking]
        passed = bool(states) and all(state is CheckState.PASSED for state in states)
        return passed and self.is_open and not (self.corruption or self.is_waiting)


@dataclass(frozen=True, slots=True)
class DependentView:
    """An asset that is derived from versions: a derived version or an exported file.

    `input_contents` has the content digest of each input, by version. `attempted` is when the
    latest run started the asset's step, 0 if that step did not end.
    """

    asset: str
    inputs: tuple[str, ...]
    is_missing: bool = False
    is_broken: bool = False
    input_contents: Mapping[str, str] = field(default_factory=dict)
    attempted: float = 0.0
    is_waiting: str = ""


class ReconcileRequest(NamedTuple):
    """A run to request: an asset with its checks, or only some checks of an asset.

    `subject` identifies the reason. A reason is requested a limited number of times.
    """

    asset: str
    checks: tuple[str, ...]
    subject: str
    attempt: int = 1

    @property
    def run_key(self) -> str:
        """Run key, the same for the same subject and attempt."""
        return f"{self.subject} #{self.attempt}"


@dataclass(frozen=True, slots=True)
class ReconcilePlan:
    """The requests of a tick, the assets that the next tick may request, and notes for the log."""

    requests: tuple[ReconcileRequest, ...]
    seen: Mapping[str, str]
    notes: tuple[str, ...]


def plan_requests(
    versions: Sequence[VersionView],
    dependents: Sequence[DependentView],
    seen: Mapping[str, str],
    attempts: Callable[[str], int],
    find_subject: Callable[[str], str],
) -> ReconcilePlan:
    """Plan the requests of a tick.

    Args:
        versions: Every declared version that could be read.
        dependents: Every asset that is derived from versions.
        seen: The dependents that were outdated in the previous tick, with the subject of the
            request. A dependent is requested in the second tick, so that automation comes first.
        attempts: Returns the number of runs that were requested for a subject.
        find_subject: Returns the subject for which a run was requested, empty for other runs.
    """
    requests: list[ReconcileRequest] = []
    notes: list[str] = []
    outdated: dict[str, str] = {}
    for version in versions:
        _plan_checks(version, requests, notes, attempts, find_subject)
    by_name = {version.name: version for version in versions}
    for dependent in dependents:
        subject = _find_request_subject(dependent, by_name, notes)
        if not subject:
            continue
        if attempts(subject):
            notes.append(f"{dependent.asset}: requested before, see that run")
            continue
        outdated[dependent.asset] = subject
        if seen.get(dependent.asset) == subject:
            requests.append(ReconcileRequest(dependent.asset, (), subject))
        else:
            notes.append(f"{dependent.asset}: outdated, waiting for automation first")
    if len(requests) > MAX_REQUESTS:
        notes.append(f"{len(requests) - MAX_REQUESTS} requests left for the next tick")
    return ReconcilePlan(tuple(requests[:MAX_REQUESTS]), outdated, tuple(notes))


def _plan_checks(
    version: VersionView,
    requests: list[ReconcileRequest],
    notes: list[str],
    attempts: Callable[[str], int],
    find_subject: Callable[[str], str],
) -> None:
    """Request checks that lack a result, or whose results in Dagster and in the log differ."""
    label = f"{version.name}@{version.latest}"
    if version.is_waiting:
        notes.append(f"{version.name}: {version.is_waiting}")
        return
    if not version.latest and not version.corruption:
        notes.append(f"{version.name}: no snapshot yet")
        return
    if any(version.result(check).state is CheckState.RUNNING for check in version.blocking):
        notes.append(f"{label}: checks are running")
        return
    checks, subject, tries = _find_missing_checks(version, find_subject)
    if not checks:
        notes.append(f"{label}: {'published' if version.is_open else 'not published'}")
        return
    count = attempts(subject)
    if count >= tries:
        notes.append(
            f"{label}: {count} runs of its checks gave no result, execute the checks manually"
        )
        return
    requests.append(ReconcileRequest(version.asset, checks, subject, count + 1))


def _find_missing_checks(
    version: VersionView, find_subject: Callable[[str], str]
) -> tuple[tuple[str, ...], str, int]:
    """Return the checks to request, the subject and the maximum number of attempts."""
    states = {check: version.result(check).state for check in version.blocking}
    stale = tuple(check for check, state in states.items() if state is CheckState.MISSING)
    everything = tuple(dict.fromkeys((*version.checks, *stale)))
    if version.corruption:
        ours = [states.get(check) for check in version.checks if check in states]
        red = all(state is CheckState.FAILED for state in ours)
        return () if red else everything, f"{version.name} corrupt {version.corruption}", 1
    label = f"{version.name}@{version.latest}"
    if version.unchecked:
        return everything, f"{label} unchecked", TRIES
    differs = (states.get(PUBLISHED) is CheckState.PASSED) != version.is_open
    if not stale and not differs:
        return (), "", 0
    publication = "open" if version.is_open else "closed"
    after = "after" if version.is_reported else "at"
    subject = f"{label} {publication} {after} {version.materialization}"
    runs = {version.result(check).run_id for check in stale or (PUBLISHED,)} - {""}
    subject = _extend_subject(subject, runs, find_subject)
    # If a check of ours lacks a result, so do those of ours that do not block.
    if any(check in version.checks for check in stale):
        return everything, subject, TRIES
    return tuple(dict.fromkeys((*stale, PUBLISHED))), subject, TRIES


def _extend_subject(subject: str, runs: set[str], find_subject: Callable[[str], str]) -> str:
    """Name the run that left the checks in this state.

    A run that was requested for this subject counts as an attempt. Any other run, such as one that
    a person started, leaves a new state to repair.
    """
    prefix = f"{subject} by run "
    for run in sorted(runs):
        requested = find_subject(run)
        if requested != subject and not requested.startswith(prefix):
            return prefix + run
    return next((find_subject(run) for run in sorted(runs)), subject)


def _find_request_subject(
    dependent: DependentView, versions: Mapping[str, VersionView], notes: list[str]
) -> str:
    """Return the subject of a request for a dependent, empty if none is needed now."""
    if dependent.is_waiting:
        notes.append(f"{dependent.asset}: {dependent.is_waiting}")
        return ""
    inputs = [versions.get(name) for name in dependent.inputs]
    known = [version for version in inputs if version is not None]
    if len(known) < len(inputs) or not all(version.is_green for version in known):
        notes.append(f"{dependent.asset}: waiting for an input to be published")
        return ""
    outdated = any(
        dependent.input_contents.get(version.name) != version.content for version in known
    )
    if not (dependent.is_missing or dependent.is_broken or outdated):
        notes.append(f"{dependent.asset}: up to date")
        return ""
    if dependent.attempted > max(version.result(PUBLISHED).time for version in known):
        notes.append(f"{dependent.asset}: failed after its input was published, see its latest run")
        return ""
    return f"{dependent.asset} from " + ", ".join(
        f"{version.name}@{version.published}" for version in known
    )


class EntryView(NamedTuple):
    """A log entry that committed a snapshot, as far as reporting needs it."""

    number: int
    snapshot: int
    digest: str
    is_rejection: bool = False
    run: str = ""


class ReportPlan(NamedTuple):
    """The commits to report in a tick.

    Attributes:
        entries: The entries to report.
        last_seen: The entry up to which everything is reported.
        new: Those of the entries that Dagster does not know.
        unfinished: An unfinished run that committed the entry after those.
        is_complete: Whether nothing is left to report after this tick.
    """

    entries: tuple[EntryView, ...]
    last_seen: int
    new: tuple[EntryView, ...] = ()
    unfinished: str = ""
    is_complete: bool = True


def plan_reports(
    entries: Sequence[EntryView],
    head: int,
    latest: EntryView,
    *,
    reported: tuple[int, str] | None,
    known: Callable[[], set[tuple[int, str]]],
    is_unfinished: Callable[[str], bool],
) -> ReportPlan:
    """Decide which commits to report.

    Commits that Dagster does not know are reported in order. A rejection is reported only if it is
    the latest snapshot, which readers then get. The latest snapshot becomes the latest
    materialization. An unfinished run reports its own commit, so nothing after it is reported.

    Args:
        entries: The entries that committed snapshots, starting at the first that no tick has seen.
        head: The last entry that was read, of whatever kind.
        latest: The entry of the latest snapshot.
        reported: Snapshot and entry digest of the latest materialization.
        known: Returns snapshot and entry digest of the materializations that Dagster knows.
        is_unfinished: Returns True for a run of this instance that has not ended.
    """
    known_commits = known() if entries else set()
    new: list[EntryView] = []
    for entry in entries:
        if entry.is_rejection or (entry.snapshot, entry.digest) in known_commits:
            continue
        if is_unfinished(entry.run):
            return ReportPlan(
                tuple(new), entry.number - 1, tuple(new), entry.run, is_complete=False
            )
        if len(new) == REPORTS_AT_ONCE:
            return ReportPlan(tuple(new), new[-1].number, tuple(new), is_complete=False)
        new.append(entry)
    plan = ReportPlan(tuple(new), head, tuple(new))
    if head < latest.number:
        return plan._replace(is_complete=False)
    if latest in new or (not new and reported == (latest.snapshot, latest.digest)):
        return plan
    if is_unfinished(latest.run):
        return plan._replace(unfinished=latest.run, is_complete=False)
    return plan._replace(entries=(*new, latest))


@dataclass(frozen=True, slots=True)
class ReconcileCursor:
    """The memory of the reconciler: the reported entries, and the outdated assets."""

    entries: dict[str, int] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> "ReconcileCursor":
        """Parse a cursor. An invalid cursor counts as empty."""
        try:
            payload = json.loads(text or "{}")
            entries = {str(name): int(number) for name, number in payload["entries"].items()}
            return cls(entries, {str(asset): str(subject) for asset, subject in payload["seen"]})
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls()

    def encode(self) -> str:
        """Serialize the cursor."""
        return json.dumps({"entries": self.entries, "seen": sorted(self.seen.items())})


def format_notes(notes: Sequence[str], limit: int = 20) -> str:
    """Return the skip reason of a tick."""
    return "; ".join(_shorten_notes(notes, limit)) or "no versions declared"


def _shorten_notes(notes: Sequence[str], limit: int) -> Iterator[str]:
    yield from notes[:limit]
    if len(notes) > limit:
        yield f"and {len(notes) - limit} more"
