"""Tables that are handed to an audit, held against those that entries tell of by their digests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardline import canonical_json as canonical
from shardline.errors import ShardlineError
from shardline.hints import Hint, Option
from shardline.lineage.auditing.reasons import Reason
from shardline.schema.schema import Feature
from shardline.udf import joined_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.canonical_json import Json
    from shardline.udf import Fields

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

    def lacking(self, told: Json) -> Reason:
        """Return why the table cannot be joined."""
        identity: Any = told["identity"]
        if identity["defaults"]:
            return Reason(
                "values-not-recorded",
                f"the log does not contain the defaults for keys missing from {told['by']}",
                Hint.of("declare it with joined_fields in a Python file for ", Option("fields")),
            )
        like = [path for path in self.paths if _leaf(path) == _leaf(str(told["by"]))]
        for path in like or (self.paths if len(self.paths) == 1 else ()):
            return _difference(path, told)
        return Reason(
            "table-missing",
            f"{told['by']} was not given",
            Hint.of("pass it with ", Option("join")),
        )


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


def _difference(path: str, told: Json) -> Reason:
    identity: Any = told["identity"]
    wanted = str(identity["sha256"])[:_DIGITS]
    made = _joined(path, told)
    found = None if made is None else made.identity()
    if found is None:
        what = f"does not give the columns of {told['by']} (sha256 {wanted}…)"
    else:
        now = str(found["sha256"])[:_DIGITS]
        what = f"differs from {told['by']} (sha256 {now}…, then {wanted}…)"
    return Reason(
        "table-mismatch", f"the table {path} {what}", Hint.of("pass the table as it was then")
    )


def _leaf(path: str) -> str:
    return path.rpartition("/")[2].removeprefix("table ")
