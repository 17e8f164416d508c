"""What an audit proves of a history that is in order, and how it deals with what it cannot."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from shardline.api import Version
from shardline.errors import StorageError
from shardline.hints import Option
from shardline.lineage.audit.audited_logs import AuditedLogs
from shardline.lineage.audit.name_audit import find_name_faults
from shardline.lineage.audit.recompute_audit import RecomputeOptions
from shardline.lineage.audit.root_audit import audit
from shardline.log.state import content_digest
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.erase import erase
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from shardline.operations.repair import repair
from shardline.provenance.log_index import LogIndex
from shardline.schema.schema import Feature
from shardline.storage.local_store import LocalStore
from shardline.udf import batch_udf, record_udf
from tests.kernel.frames import framed
from tests.lineage.roots import (
    BASE,
    PAIRS,
    PLANNED,
    RENAMED,
    SINGLE,
    WHOLE,
    WIDE,
    Root,
    forge,
    half,
    rechain,
)
from tests.operations import extensions
from tests.operations.extensions import SCHEMA, base_of, double, version_in
from tests.operations.landings import rows
from tests.tfrecord.samples import records_of

if TYPE_CHECKING:
    import pyarrow as pa

NAMES = (SINGLE, BASE, WIDE, RENAMED, WHOLE, PLANNED, PAIRS)


class ReadOnlyStore(LocalStore):
    """A store that nobody may write to."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise StorageError("this store is read-only")

    create = replace = delete = writer = check_conditions = _refuse


def test_audit_of_valid_root_has_no_findings(untouched: Root) -> None:
    before = untouched.state()
    report = audit(
        LogIndex(ReadOnlyStore(untouched.folder)),
        recompute=RecomputeOptions(100, udfs=(double, half)),
    )
    assert (report.findings, report.ok) == ((), True)
    assert report.versions == NAMES
    assert report.entries == sum(untouched.version(name).state.number for name in NAMES)
    assert report.shards > 50
    assert report.recomputed > 35
    assert untouched.state() == before


def test_quick_audit_of_valid_root_has_no_findings(untouched: Root) -> None:
    assert untouched.findings(shards=False) == []


def test_audit_of_some_versions(untouched: Root) -> None:
    report = audit(LogIndex(untouched.folder), [WIDE])
    assert (report.versions, report.findings) == ((WIDE,), ())


@pytest.mark.parametrize("operation", ["append", "rebuild", "extend", "migrate", "combine"])
def test_names_follow_from_entries(
    untouched: Root, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were names hashed otherwise, every shard but those of a batch would be told."""
    monkeypatch.setattr("shardline.lineage.audit.name_audit.make_stem", lambda _: "other")
    logs = AuditedLogs(LogIndex(untouched.folder))
    found: dict[str, int] = {}
    for name in NAMES:
        history = logs.get(name)
        assert history is not None
        for one in find_name_faults(history, logs):
            entry = history.entry(one.entry)
            assert entry is not None
            found[entry.operation] = found.get(entry.operation, 0) + 1
    added = sum(
        len(entry.added)
        for name in NAMES
        for entry in untouched.version(name).log.entries(1)
        if entry.operation == operation
    )
    assert found[operation] == added - (operation == "append")


def test_vacuumed_shards_are_no_finding(untouched: Root) -> None:
    entries = list(untouched.version().log.entries(1))
    condemned = {name for entry in entries for name in entry.tombstones}
    assert condemned
    there = {path.name for path in (untouched.folder / "digits/shards").iterdir()}
    assert not condemned & there
    assert untouched.findings(BASE) == []


def test_source_changed_for_erasure_is_a_note(tmp_path: Path) -> None:
    version = base_of(tmp_path, (0, 5), (5, 9))
    for source in (tmp_path / "landing").iterdir():
        source.unlink()
    report = erase(version.store, version.log.dataset, key="id", values=[6])
    found = {one.subject: one for one in Root(tmp_path / "root", tmp_path / "landing").findings()}
    first, second = (found[place] for place in sorted(found))
    assert {first.kind, second.kind} == {"missing-source"}
    assert (first.severity, second.severity) == ("warning", "note")
    assert f"entry {report.versions[0].entry.number}" in second.detail


def test_since_filters_findings_but_not_the_chain(root: Root) -> None:
    version = root.version()
    shard = version.latest().shards[0]
    (root.folder / version.shard_name(shard)).unlink()
    landed = version.state.shard_history.named([shard.name])[shard.name].added_entry
    snapshot = version.state.snapshot_history.of_entry(landed)
    time = version.snapshot(snapshot).time
    for since in (snapshot, time):
        assert root.kinds(BASE, since=since) == {("missing-shard", BASE)}
    for later in (snapshot + 1, time + timedelta(microseconds=1)):
        assert root.findings(BASE, since=later) == []
    root.entry_file(4).write_bytes(b"{}\n")
    assert root.findings(BASE, since=1)


def test_corrupt_log_leaves_others_verified(root: Root) -> None:
    root.entry_file(2, RENAMED).write_bytes(b"no JSON\n")
    root.shard_file(0, SINGLE).unlink()
    assert root.kinds() == {("edited-entry", RENAMED), ("missing-shard", SINGLE)}


def test_log_of_newer_release_is_unreadable(root: Root) -> None:
    rechain(root.folder / RENAMED / "log", 1, lambda told: told.update(format=2))
    assert root.kinds() == {("unreadable-log", RENAMED)}


def test_deleted_version_is_a_missing_input(root: Root) -> None:
    shutil.rmtree(root.folder / SINGLE)
    found = root.kinds()
    assert ("missing-input", PAIRS) in found


def test_unpublished_input_stays_a_finding(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 5)), version_in(tmp_path)
    append(base, rows(5, 8), batch="more")
    rebuild(base, snapshot="latest", into=into)
    catalog = LogIndex(tmp_path / "root")
    (found,) = audit(catalog).findings
    assert (found.severity, found.kind, found.version) == (
        "warning",
        "unpublished-input",
        into.name,
    )
    assert found.subject.split(", ") == ["entry 2", "input digits/v1@2"]
    assert check_version(base).ok
    (later,) = audit(LogIndex(tmp_path / "root")).findings
    assert later == found


def test_input_rejected_later_is_no_finding(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 5)), version_in(tmp_path)
    rebuild(base, into=into)
    base.reject(1, reason="on second thoughts")
    assert audit(LogIndex(tmp_path / "root")).findings == ()


def test_shard_forged_with_log_is_not_reproduced(root: Root) -> None:
    """Shard, entry, receipt and chain all agree; only what it was made of tells."""
    into = root.version("digits/forged")
    rebuild(root.version(), into=into)
    (made,) = into.latest().shards
    place = root.folder / into.shard_name(made)
    first, *others = records_of(place)
    data = framed(*others, first)
    place.write_bytes(data)
    forged = replace(made, sha256=sha256(data).hexdigest())

    receipt = place.with_name(f"{place.name}.receipt")
    forge(receipt, lambda told: told["shard"].update(sha256=forged.sha256))

    def forge_entry(entry: dict[str, Any]) -> None:
        entry["added"][0]["sha256"] = forged.sha256
        entry["sidecars"][receipt.name] = sha256(receipt.read_bytes()).hexdigest()
        entry["content"] = content_digest(entry["fingerprint"], [forged])

    rechain(root.folder / into.name / "log", 2, forge_entry)
    place.with_name(f"{place.name}.index").unlink()
    assert root.findings(into.name) == []
    (found,) = root.findings(into.name, recompute=RecomputeOptions())
    assert (found.kind, found.subject) == ("not-reproduced", f"shard {made.name}")


def test_sample_size_limits_recomputation(untouched: Root) -> None:
    def recomputed(sample: int) -> int:
        return audit(
            LogIndex(untouched.folder), shards=False, recompute=RecomputeOptions(sample)
        ).recomputed

    assert [recomputed(sample) for sample in (1, 3)] == [1, 3]


def test_not_recomputed_shards_have_reasons(untouched: Root) -> None:
    report = audit(LogIndex(untouched.folder), shards=False, recompute=RecomputeOptions(1000))
    assert {(one.version, one.reason.code) for one in report.not_recomputed} == {
        (BASE, "rows-in-memory"),
        (WIDE, "udf-missing"),
        (WHOLE, "not-deterministic"),
        (PAIRS, "vacuumed-input"),
    }
    hints = {one.version: one.reason.hint for one in report.not_recomputed if one.reason.hint}
    function = Option("udfs", f"{extensions.__name__}:double")
    assert [(name, hint.parts[-1]) for name, hint in hints.items()] == [(WIDE, function)]
    (wide,) = (one.reason for one in report.not_recomputed if one.version == WIDE)
    told = {"code": "udf-missing", "reason": wide.text, "hint": hints[WIDE].to_dict()}
    assert wide.to_dict() == told
    assert report.findings == ()


def test_changed_function_is_not_reproduced(
    untouched: Root,
) -> None:
    @batch_udf(Feature("double", "int64"), reads=["id"], code="1")
    def double(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"double": batch["id"]}

    double.function.__module__ = extensions.__name__
    kinds = untouched.kinds(WIDE, shards=False, recompute=RecomputeOptions(100, udfs=(double,)))
    assert kinds == {("not-reproduced", WIDE)}


def test_selected_pairs_are_recomputed(tmp_path: Path) -> None:
    @record_udf(Feature("sum", "int64"), reads=["a_id", "b_id"], code="1")
    def added(record: dict[str, Any]) -> dict[str, Any]:
        return {"sum": record["a_id"] + record["b_id"]}

    @record_udf(Feature("wanted", "int64"), reads=["a_id", "b_id"], code="1")
    def unlike(record: dict[str, Any]) -> dict[str, Any]:
        return {"wanted": int(record["a_id"] != record["b_id"])}

    base = base_of(tmp_path, (0, 4), (4, 8))
    names: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "a_", "right_prefix": "b_"}
    ways: dict[str, dict[str, Any]] = {
        "all": {"udfs": added, "where": unlike},
        "few": {"sample": 5, "seed": 3},
        "first": {"limit": 7},
        "packed": {"compression": "gzip", "target_bytes": 500},
    }
    for name, options in ways.items():
        combine(base, base, version_in(tmp_path, f"pairs/{name}"), **names, **options)
    report = audit(
        LogIndex(tmp_path / "root"), recompute=RecomputeOptions(100, udfs=(added, unlike))
    )
    assert (report.findings, report.not_recomputed) == ((), ())
    assert report.recomputed == report.shards
    kept = audit(
        LogIndex(tmp_path / "root"), shards=False, recompute=RecomputeOptions(100)
    ).not_recomputed
    assert [one.reason.code for one in kept] == ["udf-missing"]
    assert "'added'" in kept[0].reason.text


def test_log_records_nondeterministic_functions(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 3)), version_in(tmp_path)
    extend(base, [double, half], into)
    told = into.log.entry(2).parameters["fields"]
    assert [one.get("deterministic", True) for one in told] == [True, False]


def test_repaired_shard_is_a_note_and_recomputed(tmp_path: Path) -> None:
    base = base_of(tmp_path, (0, 5))
    Path(base.latest().files()[0]).write_bytes(b"")
    assert repair(base).repaired
    report = audit(LogIndex(tmp_path / "root"), recompute=RecomputeOptions())
    assert [(one.severity, one.kind) for one in report.findings] == [("note", "repaired-shard")]
    assert (report.ok, report.recomputed) == (True, 2)
    assert audit(LogIndex(tmp_path / "root"), shards=False).findings == ()


def test_empty_version_has_no_findings(tmp_path: Path) -> None:
    Version(tmp_path, "digits/v1").create(SCHEMA)
    report = audit(LogIndex(tmp_path))
    assert (report.versions, report.findings) == (("digits/v1",), ())


GOLDEN = Path(__file__).parents[1] / "golden" / "format-1"


def test_other_writer_gives_a_note_per_version() -> None:
    for shards in (True, False):
        report = audit(LogIndex(GOLDEN), shards=shards)
        assert [(one.severity, one.kind, one.version) for one in report.findings] == [
            ("note", "other-writer", name) for name in ("pets/v1", "pets/v2", "walks/v1")
        ]
        assert report.ok


def test_shards_of_other_writer_are_not_recomputed() -> None:
    report = audit(LogIndex(GOLDEN), recompute=RecomputeOptions(100))
    left = [(one.version, one.shards, one.reason.code) for one in report.not_recomputed]
    assert ("pets/v2", 1, "other-writer") in left
