"""The check `published`: whether the log lets downstream read a snapshot."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardline.api import Version
from shardline.dagster import metadata_keys as keys
from shardline.dagster.checks.check_outcome import CheckOutcome, strip_suite
from shardline.log.model import Checks
from shardline.log.publication import is_in
from shardline.operations.status import iter_blockers
from shardline.provenance.dependencies import list_broken_dependencies
from shardline.text import format_count

PUBLISHED = "published"
_MAX_NAMES = 3


@dataclass(frozen=True, slots=True)
class Publication:
    """The publication state of a snapshot, and the snapshot that readers get.

    Attributes:
        snapshot: The snapshot.
        reasons: Why downstream may not read it, empty if it may.
        unchecked: The checks without a result, if nothing else blocks the snapshot.
        broken: Number of shards of other versions that it needs and that are removed or corrupt.
        published: The published snapshot, 0 if there is none.
        rows: Rows of the published snapshot.
    """

    snapshot: int
    reasons: tuple[str, ...]
    unchecked: tuple[str, ...]
    broken: int
    published: int
    rows: int

    @property
    def is_open(self) -> bool:
        """True if downstream may read the snapshot."""
        return not self.reasons


def get_publication(
    version: Version,
    number: int,
    declared: Checks,
    open_version: Callable[[str], Version] | None = None,
) -> Publication:
    """Return the publication state of a snapshot. No shard is read.

    `declared` are the checks that the declaration of the version requires. A log that was created
    elsewhere may require fewer.
    """
    reasons: list[str] = []
    unchecked: dict[str, None] = {}
    is_final = False
    if not version.snapshot(number).published:
        rejection = ""
        for found in iter_blockers(version, number):
            detail = strip_suite(found.detail)
            if found.kind == "rejected":
                rejection = detail
            # A rejection names the failure that caused it.
            if found.kind != "failed" or not detail or detail not in rejection:
                said = f": {detail}" if detail else ""
                reasons.append(f"{found.check or 'snapshot'} {found.kind}{said}")
            if found.kind == "missing":
                unchecked[found.check] = None
            else:
                is_final = True
    for check, has_failed in _list_unrequired_checks(version, number, declared):
        reasons.append(f"{check} has {'failed' if has_failed else 'not passed'}")
        if has_failed:
            is_final = True
        else:
            unchecked[check] = None
    broken = list_broken_dependencies(version, number, open_version)
    reasons += [str(found) for found in broken]
    published = version.state.published or 0
    return Publication(
        number,
        tuple(reasons),
        () if is_final else tuple(unchecked),
        len(broken),
        published,
        version.snapshot(published).records if published else 0,
    )


def check_published(version: Version, publication: Publication) -> CheckOutcome:
    """Return the outcome of the check `published`."""
    name = f"{version.name}@{publication.snapshot}"
    numbers = {
        keys.SNAPSHOT: publication.snapshot,
        keys.PUBLISHED_SNAPSHOT: publication.published,
        keys.PUBLISHED_ROWS: publication.rows,
    }
    if publication.is_open:
        rows = format_count(version.snapshot(publication.snapshot).records, "row")
        rejected = _format_rejection(version, publication.snapshot)
        return CheckOutcome(passed=True, description=f"{name}: {rows}{rejected}", metadata=numbers)
    readable = (
        f"readers get snapshot {publication.published} ({format_count(publication.rows, 'row')})"
        if publication.published
        else "readers get no snapshot yet"
    )
    named = "; ".join(publication.reasons[:_MAX_NAMES])
    more = len(publication.reasons) - _MAX_NAMES
    named += f"; and {more} more" if more > 0 else ""
    return CheckOutcome(
        passed=False,
        description=f"{name} is not published, {readable}: {named}",
        metadata={**numbers, keys.BLOCKERS: len(publication.reasons)},
    )


def _format_rejection(version: Version, number: int) -> str:
    """Return which snapshot the entry rejected, empty if it is not a rejection."""
    entry = version.log.entry(version.snapshot(number).entry)
    return "" if entry.rejects is None else f", without rejected snapshot {entry.rejects}"


def _list_unrequired_checks(
    version: Version, number: int, declared: Checks
) -> Iterator[tuple[str, bool]]:
    """Yield the declared checks that the log does not require and that have not passed.

    Each comes with whether it has failed.
    """
    state = version.state
    needed = state.checks_of(number)
    of_shards = [check for check in declared.shard if check not in needed.shard]
    of_snapshots = [check for check in declared.snapshot if check not in needed.snapshot]
    stays = state.stays.at(number) if of_shards else []
    for check in of_shards:
        if not all(is_in(version, stay.passed, check) for stay in stays):
            yield check, any(is_in(version, stay.failed, check) for stay in stays)
    for check in of_snapshots:
        moment = state.timeline.moment(number)
        if not is_in(version, moment.passed, check):
            yield check, is_in(version, moment.failed, check)
