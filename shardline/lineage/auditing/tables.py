"""Tables that are handed to an audit, held against those that entries tell of by their digests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardline.errors import ShardlineError
from shardline.fields import joined_fields
from shardline.log import canonical
from shardline.log.schema import Feature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.fields import Fields
    from shardline.log.facts import Json

_DIGITS = 12


def is_table(told: Json) -> bool:
    """Whether an entry tells of a table that was joined."""
    return isinstance(told["identity"], dict) and told["identity"].get("maker") == "table"


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables at hand, by their paths or URIs. How they are joined is told by the entry."""

    paths: Sequence[str] = ()
    _known: dict[bytes, Fields | None] = field(default_factory=dict)

    def join(self, told: Json) -> Fields | None:
        """The table that an entry tells of, if it is at hand; each is read once."""
        key = canonical.encode(told["identity"])
        if key not in self._known:
            tried = (_joined(path, told) for path in self.paths)
            same = (one for one in tried if one and one.identity() == told["identity"])
            self._known[key] = next(same, None)
        return self._known[key]

    def lacking(self, told: Json) -> str:
        """Why it is not."""
        identity: Any = told["identity"]
        if identity["defaults"]:
            return (
                f"the log does not tell which values stand in where a key is not in {told['by']}: "
                "declare it with joined_fields in a file of Python, and name that with --fields"
            )
        like = [path for path in self.paths if _leaf(path) == _leaf(str(told["by"]))]
        for path in like or (self.paths if len(self.paths) == 1 else ()):
            return _difference(path, told)
        return f"{told['by']} is not at hand: hand it with --join"


def _joined(path: str, told: Json) -> Fields | None:
    identity: Any = told["identity"]
    if identity["defaults"]:
        return None
    try:
        made = joined_fields(
            path,
            identity["key"],
            features=[Feature.from_json(one) for one in identity["features"]],
            table_key=identity["column"],
            missing=identity["missing"],
            doubled=identity["doubled"],
        )
        return made.settled()
    except (ShardlineError, OSError, ValueError):
        return None  # it is another table, whatever is wrong with it


def _difference(path: str, told: Json) -> str:
    identity: Any = told["identity"]
    wanted = str(identity["sha256"])[:_DIGITS]
    made = _joined(path, told)
    found = None if made is None else made.identity()
    if found is None:
        return (
            f"the table {path} does not give the columns that {told['by']} gave, whose sha256 was "
            f"{wanted}…: hand the table as it was then"
        )
    return (
        f"the table {path} is another one than {told['by']} was: its sha256 is "
        f"{str(found['sha256'])[:_DIGITS]}…, and it was {wanted}…: hand it as it was then"
    )


def _leaf(path: str) -> str:
    return path.rpartition("/")[2].removeprefix("table ")
