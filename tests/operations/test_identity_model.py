"""Random deliveries against a model: which rows a version holds, and where each came from."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.errors import ChangedSourceError
from shardline.lineage.audit.root_audit import audit
from shardline.lineage.trace import RecordTracer
from shardline.operations.append import append
from shardline.operations.erase import erase
from shardline.operations.rebuild import rebuild
from shardline.provenance.log_index import LogIndex
from shardline.provenance.row_mapping import SourceRow
from shardline.schema.schema import Feature, Schema
from tests.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.operations.append import AppendReport

SCHEMA = Schema((Feature("id", "int64"),))
SEEDS = list(range(60))
STEPS = 14


@dataclass(eq=False)
class Landing:
    """Rows that a path or batch brought in, and the landings that they replaced."""

    place: str
    ids: tuple[int, ...]
    replaced: frozenset[Landing] = frozenset()


@dataclass(frozen=True)
class Held:
    """What a snapshot holds; `line` are all landings that led to it."""

    landings: tuple[Landing, ...] = ()
    line: frozenset[Landing] = frozenset()

    def at(self, place: str) -> list[Landing]:
        return [one for one in self.landings if one.place == place]


@dataclass
class Model:
    """A version as it should be."""

    version: Version
    folder: Path
    draw: random.Random
    content: dict[str, tuple[int, ...]] = field(default_factory=dict)
    snapshots: list[Held] = field(default_factory=list)
    now: Held = field(default_factory=Held)
    ever: list[Landing] = field(default_factory=list)
    next_id: int = 0
    next_place: int = 0

    def fresh(self) -> tuple[int, ...]:
        count = self.draw.choice([1, 1, 2, 3, 5])
        self.next_id += count
        return tuple(range(self.next_id - count, self.next_id))

    def place(self, kind: str = "file") -> str:
        self.next_place += 1
        return f"{kind}-{self.next_place}"

    def deliver(self, place: str, ids: tuple[int, ...], **options: Any) -> AppendReport | None:  # noqa: ANN401 - of append
        """Append a file or batch; None if it was refused."""
        rows = [{"id": one} for one in ids]
        self.content[place] = ids
        try:
            if place.startswith("batch"):
                return append(self.version, rows, batch=place, schema=SCHEMA, **options)
            return append(self.version, self.written(place, rows), schema=SCHEMA, **options)
        except ChangedSourceError:
            return None

    def written(self, place: str, rows: list[dict[str, int]]) -> str:
        path = self.folder / f"{place}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    def expected(self, place: str, ids: tuple[int, ...], changed: str, duplicate: str) -> str:
        """What should become of a delivery."""
        held = self.now.at(place)
        if any(one.ids == ids for one in held):
            return "appended"
        batch = place.startswith("batch")  # Its name is all that the log knows it by.
        before = [one for one in self.ever if one.place == place and (batch or one.ids == ids)]
        replaced = before and any(before[-1] in one.replaced for one in self.now.line)
        if before and not replaced and not (batch and held):
            return "out"
        if held and changed == "reject":
            return "refused"
        leaving = held if changed == "replace" else []
        twins = [one for one in self.now.landings if one.ids == ids and one not in leaving]
        if duplicate == "skip" and not batch and any(one.place[0] == "f" for one in twins):
            return "refused" if leaving else "duplicate"
        return "lands"

    def append(self, place: str, ids: tuple[int, ...]) -> None:
        changed = self.draw.choice(["reject", "append", "replace"])
        duplicate = self.draw.choice(["skip", "skip", "append"])
        wanted = self.expected(place, ids, changed, duplicate)
        report = self.deliver(place, ids, on_changed=changed, on_duplicate=duplicate)
        if wanted == "refused":
            assert report is None
            return
        assert report is not None
        got = [str(one.code) for one in report.skipped]
        assert (got or ["lands"])[0].replace("rolled-back", "out").replace("rejected", "out") == (
            wanted
        ), (place, ids, changed, duplicate)
        if wanted == "lands":
            self.land(place, ids, replaces=self.now.at(place) if changed == "replace" else [])

    def land(self, place: str, ids: tuple[int, ...], replaces: list[Landing]) -> None:
        landing = Landing(place, ids, frozenset(replaces))
        self.ever.append(landing)
        kept = tuple(one for one in self.now.landings if one not in replaces)
        self.now = Held((*kept, landing), self.now.line | {landing})
        self.note()

    def note(self) -> None:
        """Take over the snapshot that the last step made, if it made one."""
        self.version.refresh()
        if self.version.state.snapshot > len(self.snapshots):
            self.snapshots.append(self.now)

    def step(self) -> None:  # noqa: C901 - a case for each kind
        files = [one for one in self.content if one.startswith("file")]
        batches = [one for one in self.content if one.startswith("batch")]
        match self.draw.choice(
            ["new", "copy", "copy", "change", "change", "again", "batch", "batch again", "rebuild",
             "reject", "restore", "twice"]
        ):  # fmt: skip
            case "new":
                self.append(self.place(), self.fresh())
            case "copy" if files:
                self.append(self.place(), self.content[self.draw.choice(files)])
            case "change" if files:
                self.append(self.draw.choice(files), self.fresh())
            case "again" if files:
                place = self.draw.choice(files)
                old = [one.ids for one in self.ever if one.place == place]
                self.append(place, self.draw.choice([self.content[place], *old]))
            case "batch":
                self.append(self.place("batch"), self.fresh())
            case "batch again" if batches:
                place = self.draw.choice(batches)
                self.append(place, self.draw.choice([self.content[place], self.fresh()]))
            case "rebuild" if self.now.landings:
                size = self.draw.choice([None, None, 200])
                rebuild(self.version, snapshot="latest", target_bytes=size)
                self.note()
            case "reject" if len(self.snapshots) > 1:
                self.reject()
            case "restore" if self.snapshots:
                number = self.draw.randrange(len(self.snapshots))
                self.version.restore(number + 1)
                self.now = self.snapshots[number]
                self.note()
            case "twice":
                self.twice()

    def reject(self) -> None:
        newest = self.version.latest()
        if self.version.log.entry(newest.entry).operation in {"append", "rebuild"}:
            self.version.reject(newest.number)
            self.now = self.snapshots[-2]
            self.note()

    def twice(self) -> None:
        """Two identical files in one call: the first lands."""
        ids, places = self.fresh(), [self.place(), self.place()]
        rows = [{"id": one} for one in ids]
        report = append(self.version, [self.written(one, rows) for one in places], schema=SCHEMA)
        (skipped,) = report.duplicates
        assert skipped.first is not None
        assert report.entry is not None
        assert skipped.entry == report.entry.number
        self.content |= dict.fromkeys(places, ids)
        self.land(places[0], ids, [])

    def check(self) -> None:
        """Hold the version against the model: its rows, the trace of each, and the audit."""
        version = Version(self.version.store, self.version.name)
        wanted = Counter((one.place, id_) for one in self.now.landings for id_ in one.ids)
        found: Counter[tuple[str, int]] = Counter()
        if version.state.snapshot:
            snapshot, tracer = version.latest(), RecordTracer(LogIndex(version.store))
            ids = snapshot.to_arrow(columns=["id"]).read_all()["id"].to_pylist()
            assert Counter(ids) == Counter(id_ for _, id_ in wanted.elements())
            for number, id_ in enumerate(ids):
                (leaf,) = tracer.trace_upstream(snapshot, number).leaves
                assert isinstance(leaf, SourceRow), leaf
                place = leaf.source.batch or (leaf.source.path or "").rpartition("/")[2][:-6]
                assert (id_,) in {one.ids[leaf.row : leaf.row + 1] for one in self.now.at(place)}
                found[place, id_] += 1
        assert found == wanted
        report = audit(LogIndex(version.store), sources=False)
        assert [one for one in report.findings if one.severity != "note"] == []


@pytest.mark.parametrize("seed", sampled(SEEDS, 2, "identity"))
def test_random_deliveries_match_model(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    model = Model(Version(tmp_path / "root", "digits/v1"), tmp_path, draw)
    model.append(model.place(), model.fresh())
    for _ in range(STEPS):
        model.step()
        model.check()
    gone = draw.choice([id_ for one in model.now.landings for id_ in one.ids] or [0])
    erase(tmp_path / "root", "digits", where=f"id == {gone}")
    model.now = Held(
        tuple(
            Landing(one.place, tuple(-1 if id_ == gone else id_ for id_ in one.ids))
            for one in model.now.landings
        )
    )
    report = audit(LogIndex(model.version.store), sources=False)
    assert [one for one in report.findings if one.severity != "note"] == []
    version = Version(model.version.store, "digits/v1")
    for snapshot in [version.latest()] if version.state.snapshot else []:
        ids = snapshot.to_arrow(columns=["id"]).read_all()["id"].to_pylist()
        left = [id_ for one in model.now.landings for id_ in one.ids if id_ >= 0]
        assert sorted(ids) == sorted(left)
