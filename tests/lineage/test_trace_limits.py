"""How much a trace reads, and what it says when it cannot tell."""

from __future__ import annotations

import hashlib
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.errors import RecordNotFoundError
from shardline.hints import Command
from shardline.lineage.trace import RecordTracer, trace, trace_descendants
from shardline.lineage.trace_step import TraceGap
from shardline.log.append_change import Append
from shardline.log.changes import Derive, Replace
from shardline.log.model import RECEIPT, Added, Shard, Source
from shardline.log.version import DerivedFrom
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from shardline.operations.repair import repair
from shardline.operations.vacuum import vacuum
from shardline.provenance.log_index import LogIndex, TraceGapError, find_added_shard
from shardline.provenance.row_mapping import SourceRow
from shardline.sidecars.receipt import Receipt
from shardline.storage import open_store
from tests.errors import raises
from tests.lineage.histories import PREFIXES, SCHEMA, SMALL, as_json_lines, erased, half, row
from tests.operations.damages import RECORDS, ROWS, TARGET, appended, flip, json_lines, rot
from tests.operations.shard_files import held
from tests.storage.faulty import FaultyStore
from tests.tfrecord.samples import write_by_tensorflow

if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from shardline.api import Snapshot
    from shardline.lineage.trace_step import TraceStep

KEEP_NOTHING = timedelta(0)


class WatchedStore(FaultyStore):
    """Counts what is asked for and how much that is, and refuses to read a shard."""

    def __init__(self, root: Path) -> None:
        super().__init__(open_store(root))
        self.asked = 0
        self.bytes = 0

    def read(self, name: str) -> bytes:
        return self._noted([name], [super().read(name)])[0] or b""

    def read_many(self, names: Sequence[str]) -> builtins.list[bytes | None]:
        return self._noted(names, super().read_many(names))

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        return [one or b"" for one in self._noted([name], [*super().read_ranges(name, ranges)])]

    def _noted(
        self, names: Sequence[str], found: Sequence[bytes | None]
    ) -> builtins.list[bytes | None]:
        assert not any(name.endswith(".tfrecord") for name in names)
        self.asked += len(names)
        beside = [name.endswith((".rows", RECEIPT)) for name in names]
        self.bytes += sum(len(d or b"") for d, ours in zip(found, beside, strict=True) if ours)
        return list(found)


def made_up(version: Version, label: str, records: int, **more: Any) -> Shard:  # noqa: ANN401
    """A shard that a log can tell of, with its receipt: nobody looks into it."""
    digest = hashlib.sha256(label.encode()).hexdigest()
    shard = Shard(f"{version.log.version}.{digest[:32]}.tfrecord", records, 1, digest, **more)
    path = version.store.local_path(version.shard_name(shard))
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    receipt = Receipt((0, records + 1), last=True, shard=shard, refused=((0, 0),))
    path.with_name(path.name + RECEIPT).write_bytes(receipt.encode())
    return shard


def long_history(root: Path, shards: int) -> Snapshot:
    """A version of so many shards, appended, rebuilt in place into one, and changed."""
    base, changed = Version(root, "big/v1"), Version(root, "big/v2")
    for version in (base, changed):
        version.create(SCHEMA)
    source = Source("/in.parquet", 1, "0" * 64)
    landed = [made_up(base, f"{at}", 3, source=source.key) for at in range(shards)]
    base.commit(Append(shards=landed, sources=[source]))
    whole = made_up(base, "all", 3 * shards)
    base.commit(Replace(removed=[one.name for one in landed], added=[whole]))
    made = made_up(changed, "changed", 3 * shards - 1)
    changed.commit(
        Derive(
            head=0,
            removed=(),
            added=[Added(made)],
            operation="migrate",
            parameters={"of": [whole.name]},
            inputs=(DerivedFrom(base, base.latest()).input(),),
        )
    )
    return changed.latest()


def test_trace_reads_few_objects(tmp_path: Path) -> None:
    asked = []
    for shards in (10, 1000):
        root = tmp_path / f"{shards}"
        snapshot = long_history(root, shards)
        store = WatchedStore(root)
        (leaf,) = trace(LogIndex(store), snapshot, 3 * shards - 2).leaves
        assert isinstance(leaf, SourceRow)
        asked.append((store.asked, sum(store.counts.values())))
        assert store.bytes < 2000
    assert asked[0] == asked[1]
    assert max(asked[0]) < 50


def test_trace_reads_a_row_map_once_for_its_digest(tmp_path: Path) -> None:
    asked = []
    for count in (50, 5000):
        root = tmp_path / f"{count}"
        left, right = Version(root, "a/v1"), Version(root, "b/v1")
        append(left, [row(number) for number in range(count)], batch="l")
        append(right, [row(number) for number in range(0, count, 2)], batch="r")
        into = Version(root, "pairs/v1")
        combine(left, right, into, on="id", **PREFIXES)
        store = WatchedStore(root)
        step = trace(LogIndex(store), into.latest(), count // 2 - 1)
        assert [leaf.row for leaf in step.leaves if isinstance(leaf, SourceRow)] == [
            count - 2,
            count // 2 - 1,
        ]
        asked.append((store.asked, sum(store.counts.values())))
        (row_map,) = (root / "pairs/shards").glob("*.rows")
        assert store.bytes < 6000 + row_map.stat().st_size
    assert asked[0] == asked[1]


def source_numbers(version: Version) -> list[int | None]:
    """The number that stands in the line from which each record came, None if not known."""
    tracer, snapshot = RecordTracer(LogIndex(version.store)), version.latest()
    found: list[int | None] = []
    for record in range(snapshot.records):
        (leaf,) = tracer.trace_upstream(snapshot, record).leaves
        found.append(leaf.row if isinstance(leaf, SourceRow) else None)
    return found


def test_repaired_records_trace_to_their_rows(tmp_path: Path) -> None:
    version = appended(tmp_path, json_lines(tmp_path), target_bytes=TARGET)
    rot(version, 1)
    assert [one.method for one in repair(version).repaired] == ["source"]
    assert source_numbers(version) == list(range(ROWS))
    rebuild(version, snapshot="latest")
    assert check_version(version).ok
    rot(version, 0)
    assert [one.method for one in repair(version).repaired] == ["inputs"]
    assert source_numbers(version) == list(range(ROWS))
    places = trace_descendants(LogIndex(version.store), version.snapshot(1), 20)
    operations = [place.origin.operation for place in places]
    assert operations == ["append", "repair", "rebuild", "repair"]


@pytest.mark.parametrize("cut", [False, True])
def test_salvaged_records_trace_to_their_rows(tmp_path: Path, *, cut: bool) -> None:
    source = json_lines(tmp_path)
    version = appended(tmp_path, source)
    source.unlink()

    def damage(path: Path) -> None:
        flip(path)
        data = path.read_bytes()
        path.write_bytes(data[:-5] if cut else data)

    rot(version, 0, damage)
    (repaired,) = repair(version, allow_data_loss=True).repaired
    assert repaired.method == "salvage"
    kept = [int.from_bytes(payload[-1:], "big") for payload in held(version.latest())]
    assert source_numbers(version) == kept
    (place, *others) = trace_descendants(LogIndex(version.store), version.snapshot(1), kept[-1])
    assert [one.record for one in others] == [len(kept) - 1]
    lost = next(number for number in range(ROWS) if number not in kept)
    (_, gone) = trace_descendants(LogIndex(version.store), version.snapshot(1), lost)
    assert (gone.record, place.record) == (None, kept[-1])
    assert gone.code == "lost"


def test_records_of_salvaged_file_trace_to_rows(tmp_path: Path) -> None:
    source = write_by_tensorflow(tmp_path / "in.tfrecord", RECORDS)
    flip(source)
    version = appended(tmp_path, source, salvage=True, target_bytes=TARGET)
    payloads = held(version.latest())
    assert len(payloads) == ROWS - 1
    assert [RECORDS[number or 0] for number in source_numbers(version)] == payloads


def digits(tmp_path: Path, rows: int = 40) -> Version:
    """A version of JSON lines with blank and refused ones, in several shards."""
    version = Version(tmp_path / "root", "digits/v1")
    source = as_json_lines(tmp_path / "in.jsonl", 0, rows)
    append(version, source, schema=SCHEMA, max_quarantined=0.5, target_bytes=SMALL)
    return version


def test_row_number_counts_quarantined_rows(tmp_path: Path) -> None:
    version = digits(tmp_path)
    (leaf,) = trace(LogIndex(version.store), version.latest(), 37).leaves
    assert isinstance(leaf, SourceRow)
    assert (leaf.without_record, leaf.refused) == (8 + 6, 6)
    assert leaf.where == f"line {37 + 8 + 6 + 1}"


def lose(suffix: str) -> Callable[[Version], None]:
    def lost(version: Version) -> None:
        for info in version.store.list(version.log.dataset):
            if info.name.endswith(suffix):
                version.store.delete(info.name)

    return lost


def damage_maps(version: Version) -> None:
    for info in version.store.list(version.log.dataset):
        path = version.store.local_path(info.name)
        if path is not None and path.suffix == ".rows":
            flip(path)


@pytest.mark.parametrize(
    ("hurt", "code"),
    [
        (lose(RECEIPT), "receipt-not-found"),
        (lose(".rows"), "row-map-not-found"),
        (damage_maps, "sidecar-mismatch"),
    ],
)
def test_missing_sidecar_is_a_trace_gap(
    tmp_path: Path, hurt: Callable[[Version], None], code: str
) -> None:
    version = digits(tmp_path)
    hurt(version)
    (leaf,) = trace(LogIndex(version.store), version.latest(), 20).leaves
    assert isinstance(leaf, TraceGap)
    assert leaf.code == code
    assert "in.jsonl" in leaf.reason


def test_missing_input_is_a_trace_gap(tmp_path: Path) -> None:
    version = digits(tmp_path)
    into = Version(tmp_path / "root", "other/v1")
    rebuild(version, snapshot="latest", into=into)
    shutil.rmtree(tmp_path / "root/digits")
    (leaf,) = trace(LogIndex(tmp_path / "root"), into.latest(), 3).leaves
    assert isinstance(leaf, TraceGap)
    assert leaf.code == "version-not-found"
    assert leaf.reason.startswith("digits/v1 ")


def test_rewritten_input_is_a_trace_gap(tmp_path: Path) -> None:
    version = digits(tmp_path)
    into = Version(tmp_path / "root", "other/v1")
    rebuild(version, snapshot="latest", into=into)
    shutil.rmtree(tmp_path / "root/digits")
    digits(tmp_path)
    (leaf,) = trace(LogIndex(tmp_path / "root"), into.latest(), 3).leaves
    assert isinstance(leaf, TraceGap)
    assert leaf.code == "log-rewritten"
    assert leaf.reason.startswith("digits/v1@1 ")
    assert leaf.hint is not None
    assert leaf.hint.commands == (Command.of("audit"),)


def test_pairs_without_row_map_are_a_trace_gap(tmp_path: Path) -> None:
    version = digits(tmp_path)
    into = Version(tmp_path / "root", "pairs/v1")
    combine(version, version, into, on="id", **PREFIXES)
    lose(".rows")(into)
    (leaf,) = trace(LogIndex(tmp_path / "root"), into.latest(), 3).leaves
    assert isinstance(leaf, TraceGap)
    assert leaf.code == "row-map-not-found"
    assert leaf.hint is not None
    (again,) = leaf.hint.commands
    assert again.arguments[:3] == ("combine", "digits/v1@1", "digits/v1@1")
    assert leaf.to_dict()["code"] == leaf.code
    assert leaf.to_dict()["hint"]["commands"] == [list(again.to_argv())]
    places = trace_descendants(LogIndex(tmp_path / "root"), version.latest(), 3)
    assert [(one.version, one.record) for one in places] == [("digits/v1", 3), ("pairs/v1", None)]
    assert (places[1].code, places[1].hint) == ("row-map-not-found", leaf.hint)
    assert places[1].to_dict()["code"] == "row-map-not-found"
    assert places[1].to_dict()["hint"] == leaf.hint.to_dict()


def test_vacuum_keeps_sidecars_for_traces(tmp_path: Path) -> None:
    version = digits(tmp_path)
    into = Version(tmp_path / "root", "digits/pairs")
    combine(version, version, into, on="id", **PREFIXES)
    rebuild(into, snapshot="latest", compression="gzip")
    rebuild(version, snapshot="latest", compression="gzip")
    before = [trace(LogIndex(version.store), one.latest(), 30).leaves for one in (version, into)]
    orphan = f"digits/shards/v1.{'0' * 32}.tfrecord.rows"
    version.store.create(orphan, b"of a shard that was never committed")
    later = datetime.now(UTC) + timedelta(days=1)
    report = vacuum(
        version.store, "digits", retention=KEEP_NOTHING, dry_run=False, clock=lambda: later
    )
    names = [file.name for file in report.files]
    assert len([name for name in names if name.endswith(".tfrecord")]) >= 5
    assert [name for name in names if name.endswith((".rows", RECEIPT))] == [orphan]
    after = [trace(LogIndex(version.store), one.latest(), 30).leaves for one in (version, into)]
    assert after == before
    assert all(isinstance(leaf, SourceRow) for leaves in after for leaf in leaves)


def test_downstream_trace_names_lost_records(tmp_path: Path) -> None:
    version = digits(tmp_path)
    erased(version, lambda number: number == 5)
    into = Version(tmp_path / "root", "digits/v2")
    share: dict[str, Any] = {"snapshot": 1, "mode": "rewrite", "max_quarantined": 0.5}
    extend(version, half, into, **share)
    catalog = LogIndex(tmp_path / "root")
    (_, gone, there) = trace_descendants(catalog, version.snapshot(1), 5)
    assert (gone.origin.operation, gone.record, gone.code) == ("erase", None, "erased")
    assert (there.version, there.record) == ("digits/v2", 4)
    refused = trace_descendants(catalog, version.snapshot(1), 13)[-1]
    assert (refused.version, refused.record) == ("digits/v2", None)
    assert refused.code == "quarantined"
    assert "digits/quarantine/v2." in refused.reason


def test_descendants_list_consumers(tmp_path: Path) -> None:
    version = digits(tmp_path)
    version.pin("consumer nightly training", 1, "run 12")
    version.pin("digits/v9 on 1", 1)
    append(version, [row(99)], batch="more")
    version.pin("consumer other", 2)
    catalog = LogIndex(tmp_path / "root")
    (old,) = trace_descendants(catalog, version.latest(), 3)
    assert (old.snapshots, old.consumers) == (((1, 2),), ("nightly training", "other"))
    (new,) = trace_descendants(catalog, version.latest(), 40)
    assert new.consumers == ("other",)
    (leaf,) = trace(catalog, version.latest(), 40).leaves
    assert isinstance(leaf, SourceRow)
    assert (leaf.source.batch, leaf.where) == ("more", "row 0")


def test_trace_of_unknown_record_raises(tmp_path: Path) -> None:
    version = digits(tmp_path)
    for record in (-1, 40):
        with raises(
            RecordNotFoundError,
            "record-not-found",
            record=record,
            version=version.name,
            snapshot=version.latest().number,
        ):
            trace(LogIndex(version.store), version.latest(), record)


def test_limit_lists_few_and_counts_all(tmp_path: Path) -> None:
    version = digits(tmp_path)
    pairs, more = Version(version.store, "pairs/v1"), Version(version.store, "more/v1")
    combine(version, version, pairs, **PREFIXES)
    rebuild(pairs, snapshot="latest", into=more)
    rebuild(more, snapshot="latest", compression="gzip")
    tracer = RecordTracer(LogIndex(version.store))
    assert len(list(tracer.trace_downstream(version.latest(), 3).records())) == 1 + 79 + 2 * 79
    found = tracer.trace_downstream(version.latest(), 3, 10)
    told = [(one.version, one.now, one.ever, one.snapshots, one.listed) for one in found.versions]
    assert told == [
        ("digits/v1", 1, 1, ((1, 1),), 1),
        ("pairs/v1", 79, 79, ((1, 1),), 10),
        ("more/v1", 79, 158, ((1, 2),), 10),
    ]
    assert [place.version for place in found.records("pairs/v1")] == ["pairs/v1"] * 10
    assert len(list(found.records())) == 21


def test_pairs_of_pairs_are_found_once(tmp_path: Path) -> None:
    """Pairs of pairs, once by counting and once by a row map, against tracing each one back."""
    version = Version(tmp_path / "root", "digits/v1")
    append(version, [row(number) for number in range(5)], batch="a", target_bytes=100)
    pairs = Version(version.store, "pairs/v1")
    combine(version, version, pairs, unordered=True, **PREFIXES)
    every, some = Version(version.store, "every/v1"), Version(version.store, "some/v1")
    names: dict[str, Any] = {**PREFIXES, "left_prefix": "l_", "right_prefix": "r_"}
    combine(pairs, pairs, every, **names)
    combine(pairs, pairs, some, on="b_id", **names)
    tracer = RecordTracer(LogIndex(version.store))
    for record in range(5):
        places = list(tracer.trace_downstream(version.latest(), record).records())
        for one in (pairs, every, some):
            newest = one.latest()
            expected = [
                number
                for number in range(newest.records)
                if record in {leaf.row for leaf in rows_of(tracer.trace_upstream(newest, number))}
            ]
            found = [place.record for place in places if place.version == one.name]
            assert sorted(number or 0 for number in found) == expected
            assert expected


def rows_of(step: TraceStep) -> list[SourceRow]:
    """The rows that a record was made of."""
    return [leaf for leaf in step.leaves if isinstance(leaf, SourceRow)]


@pytest.mark.parametrize("original", [None, "unknown", "itself"])
def test_repair_entry_with_unknown_original_raises(tmp_path: Path, original: str | None) -> None:
    version = Version(tmp_path, "big/v1")
    version.create(SCHEMA)
    source = Source("/in.parquet", 1, "0" * 64)
    old = made_up(version, "old", 3, source=source.key)
    version.commit(Append(shards=[old], sources=[source]))
    new = made_up(version, "new", 3)
    parameters = {None: {}, "unknown": {"shard": "unknown"}, "itself": {"shard": new.name}}[
        original
    ]
    version.commit(
        Replace(removed=[old.name], added=[new], operation="repair", parameters=parameters)
    )
    with raises(TraceGapError, code="origin-not-recorded", path=new.name, version="big/v1"):
        find_added_shard(version, new)
