"""Receipts that are sealed and malformed: audit and trace report them, and never break."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardline.errors import ShardlineError
from shardline.lineage.audit.root_audit import audit
from shardline.lineage.trace import trace, trace_descendants
from shardline.operations.extend import extend
from shardline.provenance.log_index import LogIndex
from shardline.sidecars.receipt import read_receipt
from tests.lineage.roots import forge
from tests.operations.extensions import base_of, double, version_in

if TYPE_CHECKING:
    from collections.abc import Callable

WRONG: list[Any] = [None, -1, "x", [], [1, "x"], [7, 3], {}]
MISSING = object()
KEYS = ("rows", "refused", "last", "shard", "damaged", "quarantine", "told", "format", "more")


def _set(told: dict[str, Any], *, key: str, value: object) -> None:
    told.pop(key, None)
    if value is not MISSING:
        told[key] = value


def changes() -> list[Callable[[dict[str, Any]], object]]:
    """Every wrong value under every key, also inside of lists."""
    found: list[Callable[[dict[str, Any]], object]] = []
    for key in KEYS:
        found += [partial(_set, key=key, value=value) for value in WRONG]
        nested = WRONG if key in {"rows", "refused"} else []
        found += [partial(_set, key=key, value=[value]) for value in nested]
        found.append(partial(_set, key=key, value=MISSING))
    return found


def test_audit_and_trace_survive_malformed_receipts(tmp_path: Path) -> None:
    base, wide = base_of(tmp_path, (0, 5)), version_in(tmp_path)
    extend(base, double, wide)
    path = Path(f"{base.latest().files()[0]}.receipt")
    whole = path.read_bytes()
    name = f"{base.shard_name(base.latest().shards[0])}.receipt"
    for change in changes():
        path.write_bytes(whole)
        forge(path, change)
        with suppress(ShardlineError):
            read_receipt(base.store, name)
            trace(LogIndex(base.store), wide.latest(), 3)
            trace_descendants(LogIndex(base.store), base.latest(), 3)
    for key in KEYS[:2]:
        path.write_bytes(whole)
        forge(path, partial(_set, key=key, value=[["x", None]]))
        assert audit(LogIndex(base.store), sources=False).findings != (), key
