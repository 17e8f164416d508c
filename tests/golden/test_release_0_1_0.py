"""The root that release 0.1.0 wrote opens, verifies, audits clean and grows in this release."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import shardline
from shardline import Version, table_join
from shardline.lineage.audit.root_audit import audit
from shardline.lineage.trace import trace
from shardline.lineage.trace_step import TraceStep
from shardline.log.model import Source
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.erasure.erasure_proof import prove_erasure
from shardline.operations.example_file import write_examples
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.repair import repair
from shardline.operations.vacuum import vacuum
from shardline.operations.verify_version import verify_version
from shardline.provenance.log_index import LogIndex
from shardline.tfrecord import write_records
from tests.cli.command import shardline as run_command
from tests.golden.alike import assert_alike
from tests.golden.environment import relative_sources
from tests.golden.expected import OPERATIONS, digest_of, expected_of, operations_in, records_of
from tests.golden.fields import inverse, is_even, larger_id, length
from tests.golden.reader import hinted_checkpoint, read_log

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(__file__).parent / "0.1.0"
WHOLE = "f9de6552d2bce8b5c66c0369817548acc480c08da6a708a108d4e4eea1efa121"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
READABLE = [
    (name, number)
    for name, version in EXPECTED.items()
    for number, snapshot in enumerate(version["snapshots"], 1)
    if snapshot["sha256"] is not None
]
CHECKPOINTS = {"pets/v1": 26, "pairs/v2": 5}
APPENDED = ("blobs/v1", "guests/v1", "notes/v1", "notes/v2", "notes/v4", "people/v1")
PETS = [*range(16), 25, 26, 27]


LATER_OPERATIONS = frozenset({"dismiss"})
"""The operations that the engine has since the root was written."""


def digest_of_tree(folder: Path) -> str:
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole.update(f"{path.relative_to(folder).as_posix()}\n".encode())
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Root for tests that change nothing, which is checked at the end; indexes are derived."""
    root = Path(shutil.copytree(GOLDEN / "root", tmp_path_factory.mktemp("golden") / "root"))
    yield root
    for index in root.glob("*/shards/*.index"):
        if not (GOLDEN / "root" / index.relative_to(root)).exists():
            index.unlink()
    assert digest_of_tree(root) == digest_of_tree(GOLDEN / "root")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Root of its own for a test that writes."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "golden")) / "root"


def test_golden_data_is_unchanged() -> None:
    assert digest_of_tree(GOLDEN) == WHOLE


def test_every_operation_is_in_the_root() -> None:
    assert operations_in(GOLDEN / "root") == OPERATIONS


@pytest.mark.skipif(shardline.__version__ != "0.1.0", reason="the operations of 0.1.0 are frozen")
def test_operations_cover_the_engine() -> None:
    found = _operations_of_engine()
    assert found <= OPERATIONS | LATER_OPERATIONS
    assert {"append", "create", "consume", "erase", "reject", "repair"} <= found


def _operations_of_engine() -> set[str]:
    """Return the operations that the engine commits, as far as its code names them by a text."""
    package = Path(shardline.__file__).parent
    code = "\n".join(
        path.read_text()
        for part in ("log", "provenance", "operations")
        for path in package.glob(f"{part}/**/*.py")
    )
    named = re.findall(r'^([A-Z]+(?:, [A-Z]+)*) = ("[a-z]+"(?:, "[a-z]+")*)$', code, re.MULTILINE)
    constants = {
        name: text
        for names, texts in named
        for name, text in zip(names.split(", "), re.findall(r'"(.+?)"', texts), strict=True)
    }
    found = set()
    for value in re.findall(r"\boperation(?:: str)?\s?=\s?([^,(\n]+)", code):
        found |= set(re.findall(r'"([a-z]+)"', value))
        found |= {constants[word] for word in re.findall(r"[A-Z]+", value) if word in constants}
    return found


def test_variants_of_operations_are_in_the_root(read_only: Path) -> None:
    catalog = LogIndex(read_only)
    entries = [entry for name in catalog.list_versions() for entry in catalog.entries(name)]

    def of(operation: str) -> list[Any]:
        return [entry for entry in entries if entry.operation == operation]

    landed = {source.label for entry in of("append") for source in entry.sources}
    assert landed == {
        *("landing/monday.jsonl", "landing/tuesday.csv", "landing/wednesday.parquet"),
        *("landing/thursday.arrow", "landing/friday.tfrecord", "landing/saturday.tfrecord.gz"),
        *("batch sunday rows", "batch sunday table", "landing/whole.jsonl"),
        *("landing/torn.tfrecord", "landing/spoiled.jsonl", "landing/few.jsonl"),
        *("landing/second-monday.jsonl", "landing/photos", "landing/walks.tfrecord"),
        *("landing/blobs.tfrecord", "landing/notes-0.jsonl", "landing/notes-1.jsonl"),
        *("batch four and five", "batch six and seven", "landing/people.jsonl"),
        *("batch visitors", "batch guests"),
    }
    assert {entry.parameters["how"] for entry in of("repair")} == {
        *("inputs", "source", "copies", "salvage")
    }
    assert sum("quarantine" in entry.parameters for entry in of("append")) == 3
    assert sum("set_aside" in entry.parameters for entry in of("reject")) == 1
    assert sorted(entry.rejects for entry in of("reject") if entry.rejects) == [9, 11]
    assert sorted(entry.restores for entry in of("restore")) == [4, 5]
    assert {bool(entry.inputs) for entry in of("rebuild")} == {True, False}
    assert {one.shard.base is not None for e in of("extend") for one in e.added} == {True, False}
    assert {one.shard.virtual for e in of("combine") for one in e.added} == {True, False}
    assert {entry.tag.snapshot for entry in of("tag") if entry.tag} == {1, 2, 3, None}
    assert sum(bool(entry.tombstones) for entry in of("vacuum")) == len(of("vacuum"))


@pytest.mark.parametrize("name", EXPECTED)
def test_version_holds_what_it_held(read_only: Path, name: str) -> None:
    assert expected_of(read_only, [name])[name] == EXPECTED[name]


def test_expected_covers_every_version(read_only: Path) -> None:
    assert LogIndex(read_only).list_versions() == sorted(EXPECTED)


def test_pets_have_their_values(read_only: Path) -> None:
    rows = records_of(Version(read_only, "pets/v1").published())
    assert [row["id"] for row in rows] == PETS
    for row in rows:
        number = row["id"]
        assert row["kind"] == number % 3
        if number not in {4, 5}:
            assert row["name"] == f"pet {number} ✓"
            assert row["weight"] == (None if number % 4 == 3 else number / 4)


def test_derived_pets_follow_from_pets(read_only: Path) -> None:
    def rows(name: str) -> list[dict[str, Any]]:
        return records_of(Version(read_only, name).published())

    pets = rows("pets/v1")
    before = pets[:-2]
    sounds = {0: ("meow", 4), 1: ("woof", 4), 2: (None, None)}
    assert rows("pets/v2") == [{**row, "length": len(row["name"])} for row in before]
    assert [(row["sound"], row["legs"]) for row in rows("pets/v3")] == [
        sounds[row["kind"]] for row in pets
    ]
    assert [(row["id"], row["is_even"]) for row in rows("pets/v4")] == [
        (row["id"] + 100, 1 - row["id"] % 2) for row in pets
    ]
    assert [(row["called"], row["weight"]) for row in rows("pets/v5")] == [
        (row["name"], 0.5 if row["weight"] is None else row["weight"]) for row in before
    ]
    assert [row["inverse"] for row in rows("pets/v7")] == [
        None if row["id"] == 0 else pytest.approx(1 / row["id"]) for row in before
    ]
    assert rows("pets/v6") == rows("pets/v7")


def test_virtual_pairs_are_the_written_ones(read_only: Path) -> None:
    written, virtual = (Version(read_only, f"pairs/{v}").published() for v in ("v1", "v2"))
    assert records_of(virtual) == records_of(written)
    assert virtual.records == 12


@pytest.mark.parametrize("name", EXPECTED)
def test_version_verifies_whole(read_only: Path, name: str) -> None:
    report = verify_version(Version(read_only, name))
    assert report.ok
    assert report.log is not None
    assert report.log.entries == EXPECTED[name]["entries"]
    assert report.log.checkpoints == (name in CHECKPOINTS)


@pytest.mark.parametrize(("name", "number"), READABLE)
def test_readable_snapshot_verifies(read_only: Path, name: str, number: int) -> None:
    assert verify_version(Version(read_only, name), str(number)).ok


def test_audit_finds_only_the_lost_record(read_only: Path) -> None:
    for shards in (True, False):
        report = audit(LogIndex(read_only), shards=shards)
        assert report.ok
        assert [(one.severity, one.kind, one.version) for one in report.findings] == [
            ("note", "lost-records", "notes/v4")
        ]
        assert len(report.versions) == len(EXPECTED)
        assert report.entries == sum(version["entries"] for version in EXPECTED.values())


def test_audit_command_is_ok(read_only: Path) -> None:
    result = run_command("audit", "--json", "--root", read_only)
    assert (result.code, result.json["ok"]) == (0, True)


@pytest.mark.parametrize("name", EXPECTED)
def test_independent_reader_agrees(read_only: Path, name: str) -> None:
    assert_alike(read_log(read_only, *name.split("/")), Version(read_only, name))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoint_is_used(read_only: Path, name: str) -> None:
    state = Version(read_only, name).state
    assert state.checkpoint == CHECKPOINTS[name]
    reader = hinted_checkpoint(read_only, *name.split("/"))
    assert reader.told() == read_log(read_only, *name.split("/"), last=reader.number).told()


def _leaves(step: TraceStep) -> list[Any]:
    found: list[Any] = []
    for cause in step.upstream:
        found += _leaves(cause) if isinstance(cause, TraceStep) else [cause]
    return found


@pytest.mark.parametrize(
    ("name", "record", "sources"),
    [
        ("pets/v1", 4, [("landing/tuesday.csv", 0)]),
        ("pets/v1", 5, [("landing/tuesday.csv", 2)]),
        ("pets/v7", 1, [("landing/monday.jsonl", 1)]),
        ("pairs/v4", 2, [("landing/monday.jsonl", 3), ("landing/monday.jsonl", 3)]),
        ("pairs/v2", 3, [("landing/monday.jsonl", 1), ("landing/photos", 1)]),
        ("notes/v1", 3, [("landing/notes-1.jsonl", 1)]),
        ("notes/v2", 1, [("batch four and five", 1)]),
        ("people/v2", 1, [("landing/people.jsonl", 2)]),
    ],
)
def test_record_traces_to_its_source(
    read_only: Path, name: str, record: int, sources: list[tuple[str, int]]
) -> None:
    step = trace(LogIndex(read_only), Version(read_only, name).published(), record)
    assert [(one.source.label, one.row) for one in _leaves(step)] == sources


def test_vacuum_dry_run_changes_nothing(read_only: Path) -> None:
    before = digest_of_tree(read_only)
    announced = {}
    for dataset in ("guests", "notes", "people", "pets"):
        report = vacuum(read_only, dataset, retention=timedelta(0))
        announced[dataset] = len([one for one in report.files if one.name.endswith(".tfrecord")])
    assert announced == {"guests": 1, "notes": 6, "people": 0, "pets": 0}
    assert digest_of_tree(read_only) == before


def test_stopped_vacuum_is_finished(root: Path) -> None:
    number = Version(root, "notes/v1").state.number
    assert len(vacuum(root, "notes", retention=timedelta(0), dry_run=False).files) == 6
    assert vacuum(root, "notes", retention=timedelta(0)).files == []
    assert Version(root, "notes/v1").state.number == number
    assert verify_version(Version(root, "notes/v1")).ok


def test_erasure_proof_still_holds(root: Path, tmp_path: Path) -> None:
    kept = json.loads((GOLDEN / "people-proof.json").read_text())
    proof = prove_erasure(root, "people")
    assert (proof.complete, proof.files, proof.certain_copies) == (True, [], [])
    again = tmp_path / "proof.json"
    values = ("--key", "id", "--value", "1", "--value", "4")
    result = run_command("erase", "people", "--proof", again, *values, "--json", "--root", root)
    assert result.code == 0
    told = json.loads(again.read_text())
    changing = ("root", "time", "release")
    assert {k: v for k, v in told.items() if k not in changing} == {
        k: v for k, v in kept.items() if k not in changing
    }


def test_erasure_without_vacuum_is_completed(root: Path) -> None:
    assert not prove_erasure(root, "guests").complete
    version = Version(root, "guests/v1")
    assert check_version(version).published == 2
    vacuum(root, "guests", retention=timedelta(0), dry_run=False)
    assert prove_erasure(root, "guests").complete
    assert [row["id"] for row in records_of(version.published())] == [0]


def _new_record(name: str) -> object:
    if name == "blobs/v1":
        return "fe"
    if name == "people/v1":  # whose names are bytes
        return {"id": 99, "name": b"new".hex()}
    return {"id": 99, "text" if name.startswith("notes") else "name": "new"}


@pytest.mark.parametrize("name", APPENDED)
def test_append_rows_publishes(root: Path, name: str, tmp_path: Path) -> None:
    version = Version(root, name)
    before = records_of(version.latest())
    if name == "blobs/v1":
        write_records(tmp_path / "more.tfrecord", [b"\xfe"])
        append(version, tmp_path / "more.tfrecord")
    else:
        feature = "text" if name.startswith("notes") else "name"
        append(version, [{"id": 99, feature: "new"}], batch="new in a later release")
    assert check_version(version).published == version.latest().number
    after = records_of(version.published())
    assert after[:-1] == before
    assert after[-1] == _new_record(name)
    assert verify_version(version).ok
    assert_alike(read_log(root, *name.split("/")), Version(root, name))


def test_append_to_images_and_walks_publishes(root: Path, tmp_path: Path) -> None:
    photos, walks = Version(root, "photos/v1"), Version(root, "walks/v1")
    append(photos, root.parent / "landing" / "photos" / "dog", format="folder")
    write_examples(tmp_path / "w.tfrecord", {"walker": ["cy"], "place": [[[6.0, 7.0]]]})
    append(walks, tmp_path / "w.tfrecord")
    assert [check_version(one).published for one in (photos, walks)] == [2, 2]
    assert [row["label"] for row in records_of(photos.published())][-1] == "dog"
    assert records_of(walks.published())[-1]["place"] == [[6.0, 7.0]]


def test_pets_grow_and_derived_versions_follow(root: Path) -> None:
    pets = Version(root, "pets/v1")
    append(pets, [{"id": 100, "kind": 0, "name": "new"}], batch="new in a later release")
    assert check_version(pets).published == 19
    sounds = table_join(root.parent / "landing" / "sounds.csv", key="kind", on_missing="absent")
    v2, v3, v4, v5 = (Version(root, f"pets/v{number}") for number in (2, 3, 4, 5))
    steps = MigrationSpec(
        rename={"name": "called"}, drop=["kind"], cast={"id": "float"}, default={"weight": 0.5}
    )
    reports = [extend(pets, length, v2)]
    check_version(v2)
    reports += [
        extend(pets, sounds, v3),
        extend(pets, [larger_id, is_even], v4, mode="rewrite", replaces=["id"], drop=["weight"]),
        migrate(pets, steps, v5, compression="gzip"),
        extend(v2, inverse, Version(root, "pets/v7"), max_quarantined=0.5),
    ]
    assert [(len(one.reused), len(one.written)) for one in reports] == [
        (1, 2), (2, 1), (2, 1), (1, 2), (1, 2),
    ]  # fmt: skip
    for number in (2, 3, 4, 5, 7):
        version = Version(root, f"pets/v{number}")
        assert check_version(version).published == version.latest().number
        assert version.published().records == pets.published().records
    report = audit(LogIndex(root))
    assert [one.kind for one in report.findings] == ["lost-records"]


def test_landed_sources_are_known(root: Path) -> None:
    version = Version(root, "pets/v1")
    names = [
        *("monday.jsonl", "tuesday.csv", "wednesday.parquet", "thursday.arrow"),
        *("friday.tfrecord", "saturday.tfrecord.gz", "spoiled.jsonl"),
    ]
    with relative_sources(root.parent):
        report = append(version, [root.parent / "landing" / name for name in names])
    assert (report.entry, len(report.skipped)) == (None, len(names))
    again = append(version, [{"id": 1}], batch="sunday rows")
    assert [one.source for one in again.skipped] == [Source(batch="sunday rows")]


def test_damaged_shard_is_repaired_from_its_source(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = Version(root, "photos/v1")
    (shard,) = version.latest().shards
    path = root / version.shard_name(shard)
    path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.chdir(root.parent)
    with relative_sources(root.parent):
        (repaired,) = repair(version).repaired
    assert (repaired.method, repaired.lost_records) == ("source", 0)
    assert repaired.new_shard is not None
    assert repaired.new_shard.sha256 == shard.sha256
    assert digest_of(version.latest()) == EXPECTED["photos/v1"]["snapshots"][0]["sha256"]
