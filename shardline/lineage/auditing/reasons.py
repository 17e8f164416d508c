"""Why a shard cannot be recomputed, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardline.canonical_json import Json
    from shardline.hints import Hint


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason: `code` for scripts, `text` for people, and what to do.

    `version` is the input that the reason is about, and `entry` an entry of its log, if known.
    """

    code: str
    text: str
    hint: Hint | None = None
    version: str = ""
    entry: int = 0

    def to_dict(self) -> Json:
        """Return the reason as JSON."""
        told: Json = {"code": self.code, "why": self.text}
        return told if self.hint is None else {**told, "hint": self.hint.to_dict()}


class UnmakeableError(Exception):
    """A shard that cannot be recomputed."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.text)
        self.reason = reason
