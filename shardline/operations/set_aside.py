"""Sources that cannot land: told one by one, so that they do not hold up the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardline.errors import (
    BadRecordsError,
    ChangedSourceError,
    DamagedFileError,
    SchemaMismatchError,
    SourceError,
)
from shardline.hints import Hint
from shardline.log.model import INTEGRITY, SCHEMA
from shardline.operations.landing import Landing, land, refuse_too_many
from shardline.sources.choose import stored_file
from shardline.sources.origin import FileOrigin
from shardline.text import counted_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardline.canonical_json import Json
    from shardline.errors import ShardlineError
    from shardline.execution.executor import Running
    from shardline.hints import Option
    from shardline.log.model import Shard
    from shardline.log.model import Source as Identity
    from shardline.operations.landing import LandingTask
    from shardline.sources import RecordSource

_UNFIT = (DamagedFileError, SchemaMismatchError, BadRecordsError, SourceError)
_MAX_REASON = 2000
_TOLD = 3


@dataclass(frozen=True, slots=True)
class Refusal:
    """A source that cannot land, and why. `check` is the one that its shards would have failed.

    Of a damaged TFRecord file, `record` and `offset` tell where, and `detail` only what. `code`
    is that of the error; entries store it only of a source that has changed since it landed, which
    was in `entry`.
    """

    source: Identity
    check: str
    why: str
    record: int | None = None
    offset: int | None = None
    detail: str | None = None
    code: str = "invalid-source"
    hint: Hint | None = None
    entry: int = 0

    @property
    def shards(self) -> tuple[Shard, ...]:
        """It has none."""
        return ()

    def to_json(self) -> Json:
        """The reason as an entry tells it."""
        told: Json = {"check": self.check, "reason": self.why}
        if self.record is not None:
            told |= {"record": self.record, "offset": self.offset, "detail": self.detail}
        return {**told, "code": self.code} if self.code == ChangedSourceError.code else told

    def with_hint(self, option: Option) -> Refusal:
        """The same with one more option to set."""
        more = Hint.of(self.hint or "", "; to have the same content twice also set ", option)
        return replace(self, hint=more)


def refusal(source: Identity, error: ShardlineError) -> Refusal:
    """What an error says of a source."""
    why = str(error)
    if isinstance(error, BadRecordsError):
        told = "; ".join(str(one) for one in error.refused[:_TOLD])
        counts = counted_of(error.bad, error.rows, "row", complete=error.complete)
        why = f"{counts} do not fit the schema: {told}"
    why = why if len(why) <= _MAX_REASON else why[: _MAX_REASON - 1] + "…"
    if isinstance(error, DamagedFileError):
        what = f"{error.kind}: {error.detail}"
        place = (error.record, error.offset)
        return Refusal(source, INTEGRITY, why, *place, what, error.code, error.hint)
    check = INTEGRITY if isinstance(error, SourceError) else SCHEMA
    return Refusal(source, check, why, code=error.code, hint=error.hint)


def open_or_refuse(
    sources: Sequence[Any], opened: Callable[[Any], RecordSource], *, set_aside: bool
) -> tuple[list[RecordSource], list[Refusal]]:
    """The sources, and with `set_aside` the files that are nothing that can be read."""
    good, refused = [], []
    for one in sources:
        try:
            good.append(opened(one))
        except SourceError as error:
            origin = _file(one) if set_aside else None
            if origin is None:
                raise
            refused.append(refusal(origin.identity(), error))
    return good, refused


def _file(what: object) -> FileOrigin | None:
    """The file that a caller named; None if that is no file, or is not there."""
    if isinstance(what, str) and "://" in what:
        file = stored_file(what)
        return FileOrigin(file) if file.store.info(file.name) is not None else None
    if isinstance(what, str | Path) and Path(what).is_file():
        return FileOrigin(Path(what))
    return None


def land_or_refuse(task: LandingTask, running: Running) -> Landing | Refusal:
    """Make the shards of a source, or say why that cannot be."""
    try:
        return land(task, running)
    except _UNFIT as error:
        return refusal(task.identity, error)


def split_refused(
    name: str, made: Sequence[Landing | Refusal], share: float, *, set_aside: bool
) -> tuple[list[Landing], list[Refusal]]:
    """What may be committed, and what not: more than a share of its rows do not fit.

    Without `set_aside` the share is one of all rows, and BadRecordsError is raised.
    """
    landings = [one for one in made if isinstance(one, Landing)]
    refused = [one for one in made if isinstance(one, Refusal)]
    if not set_aside:
        refuse_too_many(name, landings, share)
        return landings, refused
    kept = []
    for landing in landings:
        try:
            refuse_too_many(name, [landing], share)
        except BadRecordsError as error:
            refused.append(refusal(landing.source, error))
        else:
            kept.append(landing)
    return kept, refused
