"""What one check found, before it is told to Dagster."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import dagster as dg

from shardline.api import Snapshot, Version
from shardline.log.model import Shard
from shardline.log.publication import is_in

Metadata: TypeAlias = Mapping[str, dg.MetadataValue[Any] | bool | int | float | str]


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """Whether a check passed, in a sentence, and what to show beside it.

    `warns` says of a failed check that it is worth a look, and not worth holding anything up.
    """

    passed: bool
    description: str
    metadata: Metadata = field(default_factory=dict)
    warns: bool = False

    def result(self, asset: dg.AssetKey, check: str) -> dg.AssetCheckResult:
        """The verdict as Dagster takes it."""
        return dg.AssetCheckResult(
            passed=self.passed,
            asset_key=asset,
            check_name=check,
            description=self.description,
            metadata=self.metadata,
            severity=dg.AssetCheckSeverity.WARN if self.warns else dg.AssetCheckSeverity.ERROR,
        )


EXPECTATIONS = "expectations"
_MAX_DETAIL = 500
_MAX_ENTRIES = 1000
_SUITE = re.compile(r"suite sha256:(?P<digest>[0-9a-f]{64})\Z")


def format_suite_detail(digest: str, description: str) -> str:
    """Return the detail of an attestation: what was found, and the digest of the suite."""
    name = f"suite sha256:{digest}"
    room = _MAX_DETAIL - len(name) - 2
    return f"{description[:room].rstrip()}; {name}" if description else name


def strip_suite(detail: str) -> str:
    """Return the detail of an attestation without the digest of the suite, for people."""
    return _SUITE.sub("", detail).removesuffix("; ")


def list_unchecked_shards(version: Version, snapshot: Snapshot, digest: str) -> tuple[Shard, ...]:
    """Return the shards of a snapshot whose rows the suite of this digest has not judged.

    The newest snapshot before that the suite attested counts: what is in it has been judged. The
    attestation of the snapshot itself does not, so that a check that is run again looks again.
    """
    before = _find_attested_snapshot(version, snapshot, digest)
    if before is None or before.schema != snapshot.schema:
        return snapshot.shards
    judged = {(shard.name, shard.content) for shard in before.shards}
    return tuple(s for s in snapshot.shards if (s.name, s.content) not in judged)


def _find_attested_snapshot(version: Version, snapshot: Snapshot, digest: str) -> Snapshot | None:
    """Return the snapshot before this that the suite attested last, None if it is long ago."""
    newest = version.state.number
    told: set[str] = set()
    for number in range(newest, max(newest - _MAX_ENTRIES, 0), -1):
        for attestation in version.log.entry(number).attestations:
            content = attestation.content
            if attestation.check != EXPECTATIONS or content is None or content in told:
                continue
            told.add(content)  # the latest word on it: earlier ones no longer count
            found = _SUITE.search(attestation.detail)
            if not attestation.passed or found is None or found["digest"] != digest:
                continue
            earlier = _find_same_content(version, content, snapshot.number)
            if earlier is not None:
                return earlier
    return None


def _find_same_content(version: Version, content: str, below: int) -> Snapshot | None:
    """Return the newest snapshot with this content below a number that passed expectations."""
    timeline = version.state.timeline
    for number in range(below - 1, max(below - 1 - _MAX_ENTRIES, 0), -1):
        moment = timeline.moment(number)
        if moment.content == content:
            return version.snapshot(number) if is_in(version, moment.passed, EXPECTATIONS) else None
    return None
