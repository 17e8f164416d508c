"""Every way to tamper with a history that we could think of, each found and named by an audit."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg
import pytest

from shardline.api import Version
from shardline.dagster import metadata_keys
from shardline.dagster.asset_names import get_asset_key, get_asset_name
from shardline.dagster.instance_records import InstanceRecords
from shardline.dagster.versions.materialization import build_materialization
from shardline.errors import UnreadableSnapshotError, WrongShardError
from shardline.hints import Command
from shardline.lineage.audit import dagster_record
from shardline.lineage.audit.root_audit import audit
from shardline.log.append_change import Append
from shardline.log.changes import Replace
from shardline.log.model import Attestation, Ref, Shard
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.export import export
from shardline.operations.rebuild import rebuild
from shardline.operations.repair import repair
from shardline.operations.verify_version import verify_version
from shardline.provenance.log_index import LogIndex
from shardline.schema.schema import Feature, Schema
from tests.errors import raises
from tests.kernel.frames import framed
from tests.lineage import forging
from tests.lineage.roots import BASE, PAIRS, PLANNED, RENAMED, SINGLE, WIDE, Root, forge, rechain
from tests.log.versions import shard_name, source_of
from tests.operations.extensions import SCHEMA, base_of
from tests.operations.landings import json_lines, rows
from tests.tfrecord.samples import example_of, records_of

if TYPE_CHECKING:
    from collections.abc import Callable

LAST = 25
"""The newest entry of the base's log."""


def byte_changed_and_checksum_repaired(root: Root) -> None:
    file = root.shard_file()
    records = records_of(file)
    changed = records[0].replace(b"0", b"1", 1)
    assert changed != records[0]
    file.write_bytes(framed(changed, *records[1:]))


def bit_flipped(root: Root) -> None:
    file = root.shard_file()
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)


def shards_swapped(root: Root) -> None:
    one, other = root.shard_file(0), root.shard_file(1)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def shard_deleted(root: Root) -> None:
    root.shard_file().unlink()


def entry_edited(root: Root) -> None:
    path = root.entry_file(4)
    path.write_bytes(path.read_bytes().replace(b'"append"', b'"apbend"'))


def entry_edited_and_sealed(root: Root) -> None:
    forge(root.entry_file(4), lambda told: told["by"].update(host="elsewhere"))


def entry_removed(root: Root) -> None:
    root.entry_file(6).unlink()


def first_entry_removed(root: Root) -> None:
    root.entry_file(1).unlink()


def entries_exchanged(root: Root) -> None:
    one, other = root.entry_file(4), root.entry_file(5)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def entries_exchanged_and_sealed(root: Root) -> None:
    entries_exchanged(root)
    forge(root.entry_file(4), lambda told: told.update(number=4))
    forge(root.entry_file(5), lambda told: told.update(number=5))


def newest_entry_back_dated(root: Root) -> None:
    forge(root.entry_file(LAST), lambda told: told.update(time="2020-01-01T00:00:00.000000Z"))


def derived_entry_back_dated(root: Root) -> None:
    def earlier(told: dict[str, Any]) -> None:
        told["time"] = "2020-01-01T00:00:00.000000Z"

    for number in (1, 2):
        rechain(root.folder / SINGLE / "log", number, earlier)


def totals_claimed(root: Root) -> None:
    forge(root.entry_file(LAST), lambda told: told["totals"].update(records=1))


def totals_of_an_attestation_claimed(root: Root) -> None:
    rechain(root.folder / BASE / "log", 3, lambda told: told["totals"].update(records=1))


def attestations_exchanged_and_chained_anew(root: Root) -> None:
    """The attestation of the first snapshot and the append behind it change places."""
    one, other = root.entry_file(3), root.entry_file(4)
    first, second = one.read_bytes(), other.read_bytes()
    before = json.loads(root.entry_file(2).read_bytes())["digest"]
    one.write_bytes(second)
    other.write_bytes(first)
    digest = forge(one, lambda told: told.update(number=3, previous=before))
    rechain(root.folder / BASE / "log", 4, lambda told: told.update(number=4, previous=digest))


def stray_entry_far_behind(root: Root) -> None:
    shutil.copy(root.entry_file(3), root.entry_file(10**12))


def newest_entry_of_the_future(root: Root) -> None:
    forge(root.entry_file(LAST), lambda told: told.update(time="2199-01-01T00:00:00.000000Z"))


def attestation_edited(root: Root) -> None:
    path = root.entry_file(3)
    path.write_bytes(path.read_bytes().replace(b'"passed":true', b'"passed":false', 1))


def publishing_claimed(root: Root) -> None:
    """The newest entry is a tag: it says that another snapshot is published."""
    forge(root.entry_file(LAST), lambda told: told.update(published=1))


def attestation_of_a_shard_that_does_not_fit(root: Root) -> None:
    version = root.version()
    data = framed(example_of(id=1.5, name=b"no number"))
    source = source_of("forged")
    shard = Shard(shard_name("forged"), 1, len(data), sha256(data).hexdigest(), source=source.key)
    version.store.create(version.shard_name(shard), data)
    version.commit(Append(shards=[shard], sources=[source]))
    checks = ("integrity", "schema")
    version.attest([Attestation(check, passed=True, shards=(shard.name,)) for check in checks])


def attestation_of_nothing(root: Root) -> None:
    told = [{"check": "integrity", "passed": True, "shards": [shard_name("never")]}]

    def attest(entry: dict[str, Any]) -> None:
        del entry["tag"]
        entry.update(operation="attest", attestations=told)

    rechain(root.folder / BASE / "log", _number_of(root, BASE, "tag"), attest)


def log_written_anew(root: Root) -> None:
    """Nothing but who made an entry is changed, and all that follow are chained anew."""
    rechain(root.folder / BASE / "log", 2, lambda told: told["by"].update(host="elsewhere"))


def source_told_otherwise(root: Root) -> None:
    """A log of which nothing was made, written anew with another source."""

    def other(told: dict[str, Any]) -> None:
        (source,) = told["sources"]
        source["path"] = source["path"] + ".old"
        source["sha256"] = "0" * 64

    rechain(root.folder / BASE / "log", 2, other)


def checkpoint_forged(root: Root) -> None:
    version = root.version()
    version.state.tags["good"] = Ref("good", 1)
    version.log.write_checkpoint(version.state)


def pins_taken_away(root: Root) -> None:
    version = root.version()
    for pin in list(version.state.pins):
        version.pin(pin, None)


def receipt_deleted(root: Root) -> None:
    shard = root.shard_file()
    shard.with_name(f"{shard.name}.receipt").unlink()


def receipt_edited(root: Root) -> None:
    shard = root.shard_file()
    receipt = shard.with_name(f"{shard.name}.receipt")
    receipt.write_bytes(receipt.read_bytes().replace(b'"rows":[0', b'"rows":[1'))


def quarantine_deleted(root: Root) -> None:
    (file,) = (root.folder / "digits/quarantine").iterdir()
    file.unlink()


def log_moved_away(root: Root) -> None:
    shutil.rmtree(root.folder / BASE / "log")


def version_moved_away(root: Root) -> None:
    shutil.rmtree(root.folder / BASE)


def older_log_restored(root: Root) -> None:
    """A copy of the log from before the last append, without what is derived from it."""
    last = _number_of(root, BASE, "append")
    for path in (root.folder / BASE / "log").iterdir():
        if not path.stem.isdigit() or int(path.stem) >= last:
            path.unlink()


def log_cut_behind_its_checkpoint(root: Root) -> None:
    """The latest entry is missing, and a checkpoint of it is there."""
    version = root.version()
    version.log.write_checkpoint(version.state)
    root.entry_file(version.state.number).unlink()


def log_of_a_pin_moved_away(root: Root) -> None:
    shutil.rmtree(root.folder / WIDE / "log")


def records_lost_in_a_rebuild(root: Root) -> None:
    version = root.version()
    old = version.latest().shards[0]
    data = framed(*records_of(root.shard_file())[1:])
    shard = Shard(shard_name("fewer"), old.records - 1, len(data), sha256(data).hexdigest())
    version.store.create(version.shard_name(shard), data)
    told = {"compression": "none", "snapshot": version.latest().number}
    version.commit(Replace(removed=[old.name], added=[shard], parameters=told))


@dataclass(frozen=True)
class Case:
    """What is done, and what an audit says of it: the kind, the version and the place."""

    tamper: Callable[[Root], None]
    kind: str
    version: str = BASE
    subject: str = ""


CASES = (
    Case(byte_changed_and_checksum_repaired, "changed-shard", subject="shard v1."),
    Case(bit_flipped, "damaged-shard", subject="shard v1."),
    Case(shards_swapped, "swapped-shard", subject="shard v1."),
    Case(shard_deleted, "missing-shard", subject="shard v1."),
    Case(entry_edited, "edited-entry", subject="entry 4"),
    Case(entry_edited_and_sealed, "broken-chain", subject="entry 5"),
    Case(entry_removed, "missing-entry", subject="entry 6"),
    Case(first_entry_removed, "missing-entry", subject="entry 1"),
    Case(entries_exchanged, "moved-entry", subject="entry 4"),
    Case(entries_exchanged_and_sealed, "broken-chain", subject="entry 4"),
    Case(newest_entry_back_dated, "back-dated-entry", subject=f"entry {LAST}"),
    Case(derived_entry_back_dated, "back-dated-entry", SINGLE, "entry 2, input digits/v1@"),
    Case(totals_claimed, "false-entry", subject=f"entry {LAST}"),
    Case(totals_of_an_attestation_claimed, "false-entry", subject="entry 3"),
    Case(attestations_exchanged_and_chained_anew, "false-entry", subject="entry 3"),
    Case(stray_entry_far_behind, "missing-entry", subject=f"entry {LAST + 1}"),
    Case(stray_entry_far_behind, "moved-entry", subject=f"entry {10**12}"),
    Case(newest_entry_of_the_future, "future-entry", subject=f"entry {LAST}"),
    Case(attestation_edited, "edited-entry", subject="entry 3"),
    Case(publishing_claimed, "false-entry", subject=f"entry {LAST}"),
    Case(attestation_of_a_shard_that_does_not_fit, "false-attestation", subject="shard v1."),
    Case(attestation_of_nothing, "idle-attestation", subject="entry"),
    Case(log_written_anew, "other-input", WIDE, "input digits/v1@"),
    Case(log_written_anew, "other-input", PLANNED, "input digits/v1@"),
    Case(source_told_otherwise, "unproved-name", subject="entry 2, shard v1."),
    Case(checkpoint_forged, "bad-checkpoint", subject=f"checkpoint at entry {LAST}"),
    Case(pins_taken_away, "missing-pin", WIDE, "shard v2."),
    Case(pins_taken_away, "missing-pin", PLANNED, "shard plan."),
    Case(receipt_deleted, "missing-receipt", subject="shard v1."),
    Case(receipt_edited, "wrong-receipt", subject="shard v1."),
    Case(quarantine_deleted, "missing-quarantine", subject="digits/quarantine/"),
    *(
        Case(tamper, "missing-input", name, f"input {BASE}@")
        for tamper in (log_moved_away, version_moved_away, older_log_restored)
        for name in (WIDE, RENAMED, PLANNED)
    ),
    Case(log_of_a_pin_moved_away, "missing-log", subject="pin digits/v2"),
    Case(log_cut_behind_its_checkpoint, "missing-entry", subject="entry"),
    Case(records_lost_in_a_rebuild, "wrong-count", subject=f"entry {LAST + 1}"),
)


def _beside(suffix: str, name: str = BASE) -> Callable[[Root, int], Path]:
    def find(root: Root, place: int) -> Path:
        shard = root.shard_file(place, name)
        return shard.with_name(f"{shard.name}{suffix}")

    return find


def _quarantined(root: Root, place: int) -> Path:
    """The quarantine file, and a shard's receipt to put in its place."""
    (file,) = (root.folder / "digits/quarantine").iterdir()
    return file if not place else _beside(".receipt")(root, 0)


Kinds: TypeAlias = "dict[Callable[..., None], str]"


@dataclass(frozen=True)
class Object:
    """A kind of object, in which version, and what an audit says of each way to tamper with it."""

    find: Callable[[Root, int], Path]
    version: str
    kinds: Kinds


RECEIPT_KINDS: Kinds = {
    forging.flip: "wrong-receipt",
    forging.truncate: "changed-sidecar",
    forging.delete: "missing-receipt",
    forging.swap: "wrong-receipt",
    forging.forge: "changed-sidecar",
}
ROW_MAP_KINDS: Kinds = {
    forging.flip: "damaged-row-map",
    forging.truncate: "damaged-row-map",
    forging.delete: "missing-row-map",
    forging.swap: "damaged-row-map",
    forging.forge: "changed-sidecar",
}
VACUUMED_KINDS: Kinds = dict.fromkeys(
    (forging.flip, forging.truncate, forging.swap, forging.forge), "changed-sidecar"
)
QUARANTINE_KINDS: Kinds = {
    forging.flip: "changed-sidecar",
    forging.truncate: "changed-sidecar",
    forging.delete: "missing-quarantine",
    forging.swap: "changed-sidecar",
    forging.forge: "changed-sidecar",
}
INDEX_KINDS: Kinds = dict.fromkeys(
    (forging.flip, forging.truncate, forging.swap, forging.forge), "wrong-index"
)
SHARD_KINDS: Kinds = {
    forging.flip: "damaged-shard",
    forging.truncate: "damaged-shard",
    forging.delete: "missing-shard",
    forging.swap: "swapped-shard",
    forging.forge: "changed-shard",
}
PLAN_KINDS: Kinds = {
    forging.flip: "damaged-shard",
    forging.truncate: "damaged-shard",
    forging.delete: "missing-shard",
    forging.forge: "damaged-shard",
}
PACKED_KINDS = {tamper: kind for tamper, kind in SHARD_KINDS.items() if tamper != forging.forge}
PACKED_INDEX_KINDS = {
    tamper: kind for tamper, kind in INDEX_KINDS.items() if tamper != forging.forge
}


def _vacuumed(root: Root, place: int) -> Path:
    """The receipt of a shard that went to vacuum, and that of a shard in the latest snapshot."""
    if place:
        return _beside(".receipt")(root, place)
    files = sorted((root.folder / "digits/shards").glob("v1.*.receipt"))
    return next(path for path in files if not path.with_suffix("").exists())


OBJECTS = {
    "receipt": Object(_beside(".receipt"), BASE, RECEIPT_KINDS),
    "receipt of a vacuumed shard": Object(_vacuumed, BASE, VACUUMED_KINDS),
    "receipt of a packed shard": Object(_beside(".receipt", RENAMED), RENAMED, RECEIPT_KINDS),
    "receipt of an overlay": Object(_beside(".receipt", WIDE), WIDE, RECEIPT_KINDS),
    "row map": Object(_beside(".rows", PAIRS), PAIRS, ROW_MAP_KINDS),
    "quarantine file": Object(_quarantined, BASE, QUARANTINE_KINDS),
    "index": Object(_beside(".index"), BASE, INDEX_KINDS),
    "index of an overlay": Object(_beside(".index", WIDE), WIDE, INDEX_KINDS),
    "index of a packed shard": Object(_beside(".index", RENAMED), RENAMED, PACKED_INDEX_KINDS),
    "base": Object(_beside(""), BASE, SHARD_KINDS),
    "overlay": Object(_beside("", WIDE), WIDE, SHARD_KINDS),
    "packed shard": Object(_beside("", RENAMED), RENAMED, PACKED_KINDS),
    "pairs": Object(_beside("", PAIRS), PAIRS, SHARD_KINDS),
    "plan": Object(_beside("", PLANNED), PLANNED, PLAN_KINDS),
}
TAMPERED = [(name, tamper) for name, one in OBJECTS.items() for tamper in one.kinds]


@pytest.mark.sweep(keep=12)
@pytest.mark.parametrize(
    ("name", "tamper"), TAMPERED, ids=[f"{name}-{one.__name__}" for name, one in TAMPERED]
)
def test_audit_finds_each_tampered_object(
    root: Root, name: str, tamper: Callable[[Path, Path], None]
) -> None:
    tampered = OBJECTS[name]
    tamper(tampered.find(root, 0), tampered.find(root, -1))
    found = [one for one in root.findings(tampered.version) if one.version == tampered.version]
    assert tampered.kinds[tamper] in {one.kind for one in found}
    assert {one.severity for one in found} & {"error", "warning"}


def large(tmp_path: Path) -> tuple[Version, list[Path]]:
    """A version whose shards are read through their indexes."""
    version = Version(tmp_path / "large", BASE)
    schema = Schema((Feature("id", "int64"), Feature("name", "bytes")))
    many = [{"id": number, "name": f"{number:03}" * 500} for number in range(100)]
    append(version, many, batch="many", schema=schema, target_bytes=80_000)
    assert check_version(version).ok
    shards = version.latest().shards
    return version, [tmp_path / "large" / f"digits/shards/{one.name}.index" for one in shards]


NUMBERS = [1, 50, 99]


def test_deleted_index_is_no_finding_and_read_again(tmp_path: Path) -> None:
    version, (path, *_) = large(tmp_path)
    before = path.read_bytes()
    path.unlink()
    assert audit(LogIndex(tmp_path / "large")).ok
    assert version.latest().take(NUMBERS)["id"].to_pylist() == NUMBERS
    assert path.read_bytes() == before


@pytest.mark.parametrize("tamper", [forging.flip, forging.truncate, forging.swap])
def test_take_writes_a_bad_index_again(
    tmp_path: Path, tamper: Callable[[Path, Path], None]
) -> None:
    version, (path, other) = large(tmp_path)
    before = path.read_bytes()
    tamper(path, other)
    assert not verify_version(version).ok
    assert version.latest().take(NUMBERS)["id"].to_pylist() == NUMBERS
    assert path.read_bytes() == before
    assert verify_version(version).ok


def test_repair_writes_a_forged_index_again(tmp_path: Path) -> None:
    version, (path, _) = large(tmp_path)
    before = path.read_bytes()
    forging.forge(path)
    assert [one.kind for one in audit(LogIndex(tmp_path / "large")).findings] == ["wrong-index"]
    assert not verify_version(version).ok
    assert repair(version).indexes == (version.latest().shards[0].name,)
    assert path.read_bytes() == before
    assert repair(version).indexes == ()


def test_take_of_forged_index_that_cuts_records_is_right(tmp_path: Path) -> None:
    version, (path, _) = large(tmp_path)
    forging.forge(path)
    last = version.latest().shards[0].records - 1
    assert version.latest().take([last])["id"].to_pylist() == [last]


def test_readers_refuse_a_large_swapped_shard(tmp_path: Path) -> None:
    version, indexes = large(tmp_path)
    shard = indexes[0].with_suffix("")
    forging.forge(shard)
    snapshot = version.latest()
    for index in (True, False):
        if not index:
            indexes[0].unlink()
        for read in (
            lambda: snapshot.to_arrow().read_all(),
            lambda: snapshot.take([0]),
            snapshot.to_tf,
            lambda: export(version, tmp_path / "out", snapshot=snapshot.number),
        ):
            with raises(WrongShardError, "shard-mismatch"):
                read()


@pytest.mark.parametrize("place", [0, 1])
def test_readers_refuse_a_swapped_layer(root: Root, place: int) -> None:
    snapshot = root.version(WIDE).latest()
    path = (root.shard_file(0), root.shard_file(0, WIDE))[place]
    base = snapshot.shards[0].base
    assert base is not None
    path = path if place else path.with_name(base.name)
    forging.forge(path)
    readers: dict[str, Callable[[], object]] = {
        "arrow": lambda: snapshot.to_arrow().read_all(),
        "take": lambda: snapshot.take([0]),
        "pandas": lambda: list(snapshot.to_pandas()),
        "tf": snapshot.to_tf,
        "export": lambda: export(root.version(WIDE), root.folder / "out", snapshot=snapshot.number),
        "rebuild": lambda: rebuild(root.version(WIDE), into=root.version("digits/again")),
    }
    for read in readers.values():
        with raises(WrongShardError, "shard-mismatch", path=str(path)):
            read()
    path.with_name(f"{path.name}.index").unlink()
    with raises(WrongShardError, "shard-mismatch", path=str(path)):
        snapshot.to_arrow().read_all()


def test_readers_refuse_a_forged_plan(root: Root) -> None:
    forging.forge(root.shard_file(0, PLANNED))
    snapshot = root.version(PLANNED).latest()
    with raises(UnreadableSnapshotError, "invalid-plan"):
        snapshot.to_arrow().read_all()


def _number_of(root: Root, name: str, operation: str) -> int:
    entries = root.version(name).log.entries(1)
    return max(entry.number for entry in entries if entry.operation == operation)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.tamper.__name__}-{case.kind}")
def test_audit_names_each_tampering(root: Root, case: Case) -> None:
    case.tamper(root)
    before = root.state()
    found = [one for one in root.findings() if (one.kind, one.version) == (case.kind, case.version)]
    assert found
    assert case.subject in found[0].subject
    assert found[0].severity in {"error", "warning"}
    assert found[0].detail
    assert found[0].hint
    assert root.state() == before


OF_A_LOG = (
    entry_edited,
    entry_edited_and_sealed,
    entry_removed,
    first_entry_removed,
    entries_exchanged,
    entries_exchanged_and_sealed,
    newest_entry_back_dated,
    totals_claimed,
    totals_of_an_attestation_claimed,
    attestations_exchanged_and_chained_anew,
    stray_entry_far_behind,
    attestation_edited,
    publishing_claimed,
)


@pytest.mark.parametrize("tamper", OF_A_LOG, ids=lambda tamper: tamper.__name__)
@pytest.mark.parametrize("shards", [True, False])
def test_corrupt_log_gives_a_single_error(
    root: Root, tamper: Callable[[Root], None], *, shards: bool
) -> None:
    tamper(root)
    found = root.findings(shards=shards)
    assert {one.kind for one in found if one.version == BASE and one.severity != "note"} <= {
        *("edited-entry", "broken-chain", "missing-entry", "moved-entry", "back-dated-entry"),
        "false-entry",
    }
    others = [one for one in found if one.version != BASE]
    assert {(one.severity, one.kind, one.subject) for one in others} <= {
        ("note", "not-judged", f"log of {BASE}")
    }
    assert len({one.version for one in others}) == len(others)


def test_version_from_corrupt_log_is_a_warning(root: Root) -> None:
    entry_edited(root)
    (found,) = root.findings(RENAMED)
    assert (found.severity, found.kind) == ("warning", "not-judged")
    assert found.hint.commands == (Command.of("audit", BASE),)
    for name in (WIDE, PLANNED):  # they are read from it, so its log is proved with theirs
        assert ("edited-entry", BASE) in root.kinds(name)


def test_deleted_log_is_found_by_inputs(root: Root) -> None:
    for path in (root.folder / BASE / "log").iterdir():
        path.unlink()
    assert {one.kind for one in root.findings()} == {"missing-input"}


def change_in_place(source: Path) -> None:
    """Change a byte; size and time stay as they are."""
    times = source.stat()
    source.write_bytes(source.read_bytes().replace(b"0", b"1", 1))
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize(
    ("kind", "tamper"),
    [
        ("missing-source", Path.unlink),
        ("changed-source", lambda source: source.write_bytes(b"x")),
        ("changed-source", change_in_place),
    ],
)
def test_missing_or_changed_source_is_found(
    tmp_path: Path, kind: str, tamper: Callable[[Path], object]
) -> None:
    version = base_of(tmp_path, (0, 5))
    (source,) = (tmp_path / "landing").iterdir()
    tamper(source)
    for shards in (True, False) if tamper is not change_in_place else (True,):
        found = Root(tmp_path / "root", tmp_path / "landing").findings(shards=shards)
        assert [(one.kind, one.version) for one in found] == [(kind, version.name)]
        assert str(source) in found[0].subject


@pytest.fixture
def instance(root: Root) -> dg.DagsterInstance:
    """An instance that was told of every snapshot, as the sensor tells it."""
    instance = dg.DagsterInstance.ephemeral()
    for name in (BASE, SINGLE, RENAMED):
        report(instance, root, name)
    return instance


def report(instance: dg.DagsterInstance, root: Root, name: str) -> None:
    version = root.version(name)
    for number in range(1, version.state.snapshot + 1):
        snapshot = version.snapshot(number)
        event = build_materialization(get_asset_key(name), version, snapshot, added_rows=0)
        instance.report_runless_asset_event(event)


def test_valid_history_agrees_with_dagster(root: Root, instance: dg.DagsterInstance) -> None:
    assert root.findings(recorded=InstanceRecords(instance)) == []


def test_asset_names_match_dagster() -> None:
    for name in ("digits/v1", "my-data/v1-2", "a_b/c"):
        assert dagster_record.get_asset_name(name) == get_asset_name(name)


def test_dagster_record_reveals_rewritten_log(root: Root, instance: dg.DagsterInstance) -> None:
    log_written_anew(root)
    assert root.findings(BASE) == []  # the log by itself is in order
    assert ("dagster-differs", BASE) in root.kinds(BASE, recorded=InstanceRecords(instance))


def test_dagster_record_reveals_changed_content(root: Root, instance: dg.DagsterInstance) -> None:
    folder = root.folder / BASE / "log"
    for path in folder.iterdir():
        path.unlink()
    version = root.version()
    for label in "xyz":
        source = json_lines(root.folder.parent / f"{label}.jsonl", rows(0, 3))
        append(version, source, schema=SCHEMA, retry_rejected=True)
        assert check_version(version).ok
    found = root.findings(BASE, recorded=InstanceRecords(instance))
    assert ("dagster-differs", "snapshot 1") in {(one.kind, one.subject) for one in found}
    assert ("event-without-snapshot", "snapshot 4") in {(one.kind, one.subject) for one in found}


def test_dagster_record_reveals_truncated_log(root: Root) -> None:
    instance = dg.DagsterInstance.ephemeral()
    report(instance, root, PAIRS)
    version = root.version(PAIRS)
    last = version.latest()
    for number in range(last.entry, version.state.number + 1):
        root.entry_file(number, PAIRS).unlink()
    assert root.findings(PAIRS) == []  # a chain does not tell that its end is missing
    (found,) = root.findings(PAIRS, recorded=InstanceRecords(instance))
    assert (found.kind, found.version) == ("event-without-snapshot", PAIRS)
    assert found.subject == f"snapshot {last.number}"


def test_dagster_record_reveals_deleted_log(root: Root, instance: dg.DagsterInstance) -> None:
    for path in (root.folder / RENAMED / "log").iterdir():
        path.unlink()
    assert ("event-without-snapshot", RENAMED) in root.kinds(recorded=InstanceRecords(instance))


def test_materialization_without_snapshot_is_found(
    root: Root, instance: dg.DagsterInstance
) -> None:
    version = root.version()
    event = build_materialization(get_asset_key(BASE), version, version.latest(), added_rows=0)
    told = {**event.metadata, metadata_keys.SNAPSHOT: dg.MetadataValue.int(99)}
    instance.report_runless_asset_event(event._replace(metadata=told))
    (found,) = root.findings(recorded=InstanceRecords(instance))
    assert (found.kind, found.version, found.subject) == (
        "event-without-snapshot",
        BASE,
        "snapshot 99",
    )


def test_unreported_snapshot_is_found(root: Root, instance: dg.DagsterInstance) -> None:
    version = root.version()
    source = json_lines(root.folder.parent / "more.jsonl", rows(200, 203))
    append(version, source)
    assert check_version(version).ok
    (found,) = root.findings(recorded=InstanceRecords(instance))
    assert (found.severity, found.kind) == ("warning", "unreported-snapshot")
    assert found.subject == f"snapshot {version.latest().number}"


def test_materializations_of_other_root_are_a_note(
    root: Root, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    moved = root.copied(tmp_path / "moved")
    found = moved.findings(recorded=InstanceRecords(instance))
    assert {(one.severity, one.kind) for one in found} == {("note", "other-root")}


def test_dagster_root_compares_a_copy(
    root: Root, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    moved = root.copied(tmp_path / "moved")
    options = {"recorded": InstanceRecords(instance), "dagster_root": str(root.folder)}
    assert moved.findings(**options) == []
    log_written_anew(moved)
    assert ("dagster-differs", BASE) in moved.kinds(**options)


def test_unrecorded_version_is_found(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", BASE, run="a-run")
    append(version, json_lines(tmp_path / "a.jsonl", rows(0, 3)), schema=SCHEMA)
    assert check_version(version).ok
    other = Version(tmp_path / "root", SINGLE)
    rebuild(version, into=other)
    assert check_version(other).ok
    instance = dg.DagsterInstance.ephemeral()
    report = audit(LogIndex(tmp_path / "root"), recorded=InstanceRecords(instance))
    (found,) = report.findings
    assert (found.severity, found.kind, found.version) == ("warning", "unrecorded-version", BASE)
    assert re.findall(r"\d+", found.detail) == ["1", "1"]
    assert set(report.not_in_dagster) == {BASE, SINGLE}  # of the other no run is told
