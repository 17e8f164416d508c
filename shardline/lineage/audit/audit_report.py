"""The result of an audit: findings, and what was and was not verified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from shardline.report import Report

if TYPE_CHECKING:
    from datetime import datetime

    from shardline.hints import Hint

Severity: TypeAlias = Literal["error", "warning", "note"]
"""An error is a false history or changed data, a warning a missing proof, a note an explanation."""


@dataclass(frozen=True, slots=True)
class Finding(Report):
    """A finding of an audit.

    `kind` is the same word for all findings of a kind: `changed-shard`. `version` is empty for a
    finding about the root. `subject` is an entry, snapshot or shard of the version. `entry` is the
    entry that the finding is about, or 0.
    """

    severity: Severity
    kind: str
    version: str
    subject: str
    detail: str
    hint: Hint
    entry: int = 0


@dataclass(frozen=True, slots=True)
class SkipReason(Report):
    """Why a shard cannot be recomputed: a code for scripts, a text and a hint for people.

    `version` is the input that the reason is about, and `entry` an entry of its log, if known.
    """

    code: str
    text: str
    hint: Hint | None = None
    version: str = ""
    entry: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the reason as JSON."""
        hint = {} if self.hint is None else {"hint": self.hint.to_dict()}
        return {"code": self.code, "reason": self.text, **hint}


@dataclass(frozen=True, slots=True)
class SkippedShards(Report):
    """A count of shards of a version that cannot be recomputed, for the same reason."""

    version: str
    shards: int
    reason: SkipReason

    def to_dict(self) -> dict[str, Any]:
        """Return the version, the count, and the reason as JSON."""
        return {"version": self.version, "shards": self.shards, **self.reason.to_dict()}


@dataclass(frozen=True, slots=True)
class AuditReport(Report):
    """The findings of an audit, errors first, and its extent.

    Attributes:
        time: When the audit ran.
        versions: The versions that were asked for.
        dependencies: Other versions that these are read from. The audit verifies their logs and
            the shards that are read.
        not_audited: The other versions of the root, which may prove that a log was rewritten.
        not_in_dagster: Versions without a materialization in Dagster, if the audit compared.
        entries: The number of verified entries.
        shards: The number of shards that were read, or only listed.
        bytes: The size of these shards.
        recomputed: The number of recomputed shards.
        not_recomputed: The shards that cannot be recomputed.
        findings: What the audit found.
    """

    JSON_PROPERTIES: ClassVar[tuple[str, ...]] = ("ok",)

    time: datetime
    versions: tuple[str, ...]
    dependencies: tuple[str, ...]
    not_audited: tuple[str, ...]
    not_in_dagster: tuple[str, ...]
    entries: int
    shards: int
    bytes: int
    recomputed: int
    not_recomputed: tuple[SkippedShards, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """True if there are no errors and no warnings."""
        return all(finding.severity == "note" for finding in self.findings)
