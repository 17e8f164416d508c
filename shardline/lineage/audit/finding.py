"""What an audit found: how bad it is, where, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from shardline.canonical_json import Json
    from shardline.hints import Hint

Severity: TypeAlias = Literal["error", "warning", "note"]
"""An error says that the history is not true, or that data is not what it was; a warning that
something cannot be proved; a note explains what would otherwise look like either."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    `kind` is a short word for what it is, the same for all of its kind ("changed-shard"). `version`
    is `digits/v1`, or empty if it is about the root; `place` says where in it: an entry, a
    snapshot, a shard. `detail` says what is wrong, `advice` is the hint what to do. `entry` is the
    number of the entry that it is about, 0 if it is about none.
    """

    severity: Severity
    kind: str
    version: str
    place: str
    detail: str
    advice: Hint
    entry: int = 0

    def to_dict(self) -> Json:
        """The finding for machines."""
        return {
            "severity": self.severity,
            "kind": self.kind,
            "version": self.version,
            "place": self.place,
            "detail": self.detail,
            "advice": str(self.advice),
            "entry": self.entry,
        }
