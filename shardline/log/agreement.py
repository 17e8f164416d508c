"""Whether a checkpoint says what the entries up to it amount to, column by column."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from shardline.log.facts import COMPRESSIONS
from shardline.log.state import BEGINNING, name_key
from shardline.log.timeline import microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from shardline.log.ledger import Ledger
    from shardline.log.published_so_far import Made, Row
    from shardline.log.state import State

    Getter: TypeAlias = Callable[[Any], Any]

_FACTS = (
    "number",
    "digest",
    "time",
    "schema",
    "policies",
    "bits",
    "snapshot",
    "published",
    "totals",
    "content",
    "tags",
    "pins",
    "uses_sidecars",
)


def agrees(ledger: Ledger, state: State) -> bool:
    """Whether a state, such as a checkpoint keeps it, is what a ledger worked out."""
    if any(getattr(ledger, name) != getattr(state, name) for name in _FACTS):
        return False
    newest = ledger.made[-1] if ledger.made else None
    told = (state.snapshot_entry, state.snapshot_time, state.snapshot_rejected)
    if told != ((newest.entry, newest.time, newest.rejected) if newest else (0, BEGINNING, 0)):
        return False
    names = {name_key(name): number for name, number in ledger.shard_names.items()}
    sidecars = {name_key(name): number for name, number in ledger.sidecars.items()}
    return (
        _same_numbers(ledger.rows, _STAY_NUMBERS, state.stays.column)
        and _same_others(ledger.rows, _STAYS, state.stays.to_table())
        and _same_numbers(ledger.made, _MOMENT_NUMBERS, state.timeline.column)
        and [made.content for made in ledger.made] == state.timeline.contents()
        and _same_keys(ledger.sources, state.sources.to_table())
        and (
            not state.open_sources.stored
            or _same_keys(ledger.open_sources, state.open_sources.to_table())
        )
        and _same_keys(names, state.shard_names.to_table())
        and _same_keys(sidecars, state.sidecars.to_table())
        and (
            not state.landings.stored
            or ledger.landings.to_table().equals(state.landings.to_table())
        )
    )


def _same_numbers(
    rows: Sequence[Any], columns: dict[str, Getter], column: Callable[[str], NDArray[Any]]
) -> bool:
    return all(column(name).tolist() == list(map(get, rows)) for name, get in columns.items())


def _same_others(rows: Sequence[Any], columns: dict[str, Getter], table: pa.Table) -> bool:
    return all(table[name].to_pylist() == list(map(get, rows)) for name, get in columns.items())


def _same_keys(told: dict[str, int], table: pa.Table) -> bool:
    keys = sorted(told)
    return (
        bytes.fromhex("".join(keys)) == b"".join(table["key"].to_pylist())
        and [told[key] for key in keys] == table["number"].to_pylist()
    )


def _digest(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _base(row: Row) -> tuple[str | None, bytes | None]:
    base = row.shard.base
    return (None, None) if base is None else (base.name, bytes.fromhex(base.sha256))


def _released(made: Made) -> int:
    return 0 if made.released is None else microseconds(made.released)


_MARKS: dict[str, Getter] = {name: attrgetter(name) for name in ("passed", "failed", "told")}
_STAY_NUMBERS: dict[str, Getter] = {
    **_MARKS,
    **{name: attrgetter(name) for name in ("since", "until", "landed", "once")},
    **{name: attrgetter(f"shard.{name}") for name in ("records", "bytes")},
    "compression": lambda row: COMPRESSIONS.index(row.shard.compression),
}
_STAYS: dict[str, Getter] = {
    "name": attrgetter("shard.name"),
    "sha256": lambda row: bytes.fromhex(row.shard.sha256),
    "source": lambda row: _digest(row.shard.source),
    "base": lambda row: _base(row)[0],
    "base_sha256": lambda row: _base(row)[1],
}
_MOMENT_NUMBERS: dict[str, Getter] = {
    **_MARKS,
    **{name: attrgetter(name) for name in ("entry", "made_from", "rejected")},
    **{name: attrgetter(f"totals.{name}") for name in ("records", "bytes", "shards")},
    "time": lambda made: microseconds(made.time),
    "released": _released,
}
