"""Erase: which records go, from where, what cannot come back, and who else still holds them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import pytest

from shardline.api import Version
from shardline.errors import (
    ConflictError,
    CorruptShardError,
    InvalidRecordsError,
    SchemaMismatchError,
    UDFError,
)
from shardline.hints import Hint
from shardline.log.model import RECEIPT, Attestation
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.erase import erase, execute_erase_plan, plan_erase
from shardline.operations.erasure.erasure_proof import prove_erasure, render_proof_page
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.rebuild import rebuild
from shardline.operations.repair import repair
from shardline.operations.status import get_status
from shardline.operations.vacuum import vacuum
from shardline.operations.verify_log import verify_log
from shardline.operations.verify_version import verify_version
from shardline.provenance.shard_mapping import (
    NO_ROWS,
    AlignedMapping,
    collapse_rows,
    expand_spans,
)
from shardline.schema.schema import Feature
from shardline.sidecars.receipt import parse_receipt
from shardline.storage import open_store
from shardline.udf import batch_udf
from tests.errors import raises
from tests.operations.erasures import (
    InterruptedStore,
    emptied,
    erased,
    files_with,
    landed,
    marked,
    marker,
    opened,
)
from tests.operations.extensions import SCHEMA, double, length, table
from tests.operations.landings import ids, json_lines

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

PREFIXES: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "a_", "right_prefix": "b_"}


def kinds(tmp_path: Path, *numbers: int) -> list[str]:
    """What an erase would list of whom it does not reach."""
    plan = plan_erase(tmp_path / "root", "digits", key="id", values=numbers)
    return [one.kind for one in plan.residual_copies]


def test_only_the_shards_that_hold_the_records_are_written_anew_each_in_its_place(
    tmp_path: Path,
) -> None:
    version = landed(tmp_path, (0, 4), (4, 8), (8, 12))
    old = version.latest().shards
    report = erase(tmp_path / "root", "digits", where="id in [5, 7]", request="ticket 81")
    new = opened(version).latest().shards
    assert (new[0], new[2]) == (old[0], old[2])
    assert ids(opened(version)) == [0, 1, 2, 3, 4, 6, 8, 9, 10, 11]
    entry = report.versions[0].entry
    assert entry.parameters["of"] == [old[1].name]
    assert entry.parameters["records"] == [2]
    assert entry.tombstones == (old[1].name,)
    receipt = parse_receipt(version.store.read(version.shard_name(new[1]) + RECEIPT))
    assert receipt is not None
    assert receipt.refused == ((1, 1), (3, 3))
    assert receipt.quarantine is None
    assert new[1].source == old[1].source
    assert verify_log(opened(version).log).problems == ()


def test_values_of_a_list_that_no_record_has_are_told_by_their_places_alone(
    tmp_path: Path,
) -> None:
    version = landed(tmp_path, (0, 4), (4, 8))
    extend(version, double, Version(tmp_path / "root", "digits/v2"))
    root = tmp_path / "root"
    plan = plan_erase(root, "digits", key="id", values=["5", " 5", "99", 7, "99", b"-1"])
    assert plan.missing_values == (3, 6)
    names = [marker(5), "nobody", marker(5)]
    assert plan_erase(root, "digits", key="name", values=names).missing_values == (2,)
    assert plan_erase(root, "digits", where="id == 99").missing_values == ()
    erased(tmp_path, 5)
    emptied(tmp_path)
    assert plan_erase(root, "digits", key="id", values=[5, 7]).missing_values == (1,)


def test_the_log_tells_neither_the_predicate_nor_the_values_of_a_key(tmp_path: Path) -> None:
    version = landed(tmp_path, (0, 4))
    erase(tmp_path / "root", "digits", where=f"name == '{marker(2)}'", request="ticket 81")
    erase(tmp_path / "root", "digits", key="name", values=[marker(1)])
    assert ids(opened(version)) == [0, 3]
    log = tmp_path / "root/digits/v1/log"
    told = "".join(path.read_text() for path in log.glob("*.json"))
    assert "ticket 81" in told
    assert "marker" not in told


def test_a_shard_of_which_every_record_goes_stays_as_an_empty_one(tmp_path: Path) -> None:
    version = landed(tmp_path, (0, 2), (2, 4), compression="gzip")
    extend(version, double, Version(tmp_path / "root", "digits/v2"))
    erased(tmp_path, 2, 3)
    left = opened(version).published()
    assert [shard.records for shard in left.shards] == [2, 0]
    assert [int(one["id"]) for one in left.to_tf()] == [0, 1]
    other = Version(tmp_path / "root", "digits/v2").latest()
    assert [shard.records for shard in other.shards] == [2, 0]
    assert table(other)["double"] == [0, 2]


def test_overlays_stay_overlays_beside_the_bases_without_the_records(tmp_path: Path) -> None:
    v1 = landed(tmp_path, (0, 4), (4, 8))
    v2, v3 = (Version(tmp_path / "root", f"digits/{name}") for name in ("v2", "v3"))
    extend(v1, double, v2)
    check_version(v2)
    extend(v2, length, v3)
    check_version(v3)
    erased(tmp_path, 5)
    tops = [opened(one).latest().shards[1] for one in (v1, v2, v3)]
    assert [one.base and one.base.name for one in tops] == [None, tops[0].name, tops[1].name]
    assert table(opened(v3).published())["double"] == [0, 2, 4, 6, 8, 12, 14]
    emptied(tmp_path)
    assert files_with(tmp_path / "root", marker(5)) == []
    assert verify_version(opened(v3)).ok


def test_an_overlay_whose_base_was_rebuilt_since_is_folded_in(tmp_path: Path) -> None:
    v1 = landed(tmp_path, (0, 4), (4, 8))
    v2 = Version(tmp_path / "root", "digits/v2")
    extend(v1, double, v2)
    check_version(v2)
    rebuild(v1)
    check_version(v1)
    report = erased(tmp_path, 5)
    assert [len(one.plan.older_shards) for one in report.versions] == [1, 0]
    shards = opened(v2).latest().shards
    assert [shard.base is None for shard in shards] == [False, True]
    assert table(opened(v2).published())["id"] == [0, 1, 2, 3, 4, 6, 7]
    emptied(tmp_path)
    assert files_with(tmp_path / "root", marker(5)) == []
    assert verify_version(opened(v2)).ok
    assert ids(opened(v1)) == [0, 1, 2, 3, 4, 6, 7]


def test_records_are_followed_where_their_features_are_gone_and_some_were_refused(
    tmp_path: Path,
) -> None:
    @batch_udf(Feature("twice", "int64"), reads=["id"], code="1")
    def odd(batch: pa.RecordBatch) -> dict[str, pa.Array]:
        return {"twice": pc.if_else(pc.equal(batch["id"], 1), None, batch["id"])}

    v1 = landed(tmp_path, (0, 6))
    v2, v3 = (Version(tmp_path / "root", f"digits/{name}") for name in ("v2", "v3"))
    extend(v1, odd, v2, mode="rewrite", max_quarantined=0.5)
    check_version(v2)
    migrate(v2, MigrationSpec(drop=("id", "name"), rename={"twice": "number"}), v3)
    check_version(v3)
    assert table(v3.latest()) == {"number": [0, 2, 3, 4, 5]}
    erased(tmp_path, 1, 3)
    assert table(opened(v3).published()) == {"number": [0, 2, 4, 5]}
    emptied(tmp_path)
    assert [files_with(tmp_path / "root", marker(number)) for number in (1, 3)] == [[], []]
    # Chosen by what the last version alone has, they go from the first as well.
    erase(tmp_path / "root", "digits", where="number == 4")
    assert ids(opened(v1)) == [0, 2, 5]


def test_a_function_may_choose_the_records(tmp_path: Path) -> None:
    @batch_udf(Feature("meant", "int64"), reads=["id"], code="1")
    def even(batch: pa.RecordBatch) -> dict[str, pa.Array]:
        return {"meant": pc.cast(pc.equal(pc.bit_wise_and(batch["id"], 1), 0), "int64")}

    version = landed(tmp_path, (0, 6))
    assert erase(tmp_path / "root", "digits", where=even).records == 3
    assert ids(opened(version)) == [1, 3, 5]


def test_what_was_erased_cannot_come_back(tmp_path: Path) -> None:
    version = landed(tmp_path, (0, 4))
    landed(tmp_path, (4, 8))
    version.refresh()
    erased(tmp_path, 5)
    version = opened(version)
    assert version.state.published == 3
    for act, *arguments in (
        (version.restore, 2),
        (version.reject, 3),
        (version.tag, "old", 2),
        (version.pin, "someone", 2),
    ):
        with pytest.raises(ConflictError):
            act(*arguments)
    version.tag("fine", 1)
    with pytest.raises(ConflictError, match="snapshot 2"):
        extend(version, double, Version(tmp_path / "root", "digits/v2"), snapshot=2, mode="rewrite")
    # A check that fails on what the erase left is told; nothing comes back by that either.
    failure = Attestation("counts", passed=False, content=version.latest().content)
    entry = version.reject(3, [failure])
    assert entry is not None
    assert (entry.operation, entry.rejects) == ("attest", None)


def test_snapshots_with_erased_records_are_no_longer_published_at_once(tmp_path: Path) -> None:
    version = landed(tmp_path, (0, 4))
    landed(tmp_path, (4, 8))
    report = erase(tmp_path / "root", "digits", key="id", values=[5], check=False)
    assert opened(version).state.published == 1
    assert report.checks == {}
    check_version(opened(version))
    assert opened(version).state.published == 3


def test_erase_checks_and_publishes_every_version(tmp_path: Path) -> None:
    v1 = landed(tmp_path, (0, 4))
    landed(tmp_path, (4, 8))
    v2 = Version(tmp_path / "root", "digits/v2")
    extend(opened(v1), double, v2)
    report = erase(tmp_path / "root", "digits", key="id", values=[5])
    assert report.ok
    assert {name: check.ok for name, check in report.checks.items()} == {
        "digits/v1": True,
        "digits/v2": True,
    }
    for version in map(opened, (v1, v2)):
        assert version.state.published == version.state.snapshot


def test_erase_again_checks_what_a_stopped_erase_left(tmp_path: Path) -> None:
    v1 = landed(tmp_path, (0, 4))
    v2 = Version(tmp_path / "root", "digits/v2")
    extend(opened(v1), double, v2)
    chosen: dict[str, Any] = {"key": "id", "values": [2]}
    erase(tmp_path / "root", "digits", check=False, **chosen)
    assert [one.blocked[-1].blockers[0].kind for one in map(get_status, map(opened, (v1, v2)))] == [
        "missing",
        "missing",
    ]
    report = erase(tmp_path / "root", "digits", **chosen)
    assert (report.versions, list(report.checks)) == ((), ["digits/v1", "digits/v2"])
    for version in map(opened, (v1, v2)):
        assert version.state.published == version.state.snapshot
    assert erase(tmp_path / "root", "digits", **chosen).checks == {}


def test_shards_that_only_older_snapshots_hold_are_given_up(tmp_path: Path) -> None:
    version = landed(tmp_path, (0, 4), (4, 8))
    rebuild(version)
    check_version(version)
    report = erased(tmp_path, 5)
    (done,) = report.versions
    assert [shard.records for shard in done.plan.older_shards] == [4]
    assert done.plan.snapshots == (1, 2)
    with pytest.raises(ConflictError):
        opened(version).restore(1)


def test_vacuum_waits_for_readers_and_for_tags(tmp_path: Path) -> None:
    version = landed(tmp_path, (0, 4))
    version.tag("train", 1)
    root = tmp_path / "root"
    assert kinds(tmp_path, 2) == ["tag"]
    erased(tmp_path, 2)
    vacuum(root, "digits", retention=timedelta(days=7), dry_run=False)
    emptied(tmp_path)
    assert files_with(root, marker(2)) != []
    assert not prove_erasure(root, "digits").complete
    opened(version).tag("train", 2)
    vacuum(root, "digits", retention=timedelta(days=7), dry_run=False)
    assert files_with(root, marker(2)) != []
    emptied(tmp_path)
    assert files_with(root, marker(2)) == []
    assert prove_erasure(root, "digits").complete


def test_an_erase_that_was_stopped_between_two_versions_is_finished_by_the_next(
    tmp_path: Path,
) -> None:
    v1 = landed(tmp_path, (0, 4))
    root = tmp_path / "root"
    v2, v3 = Version(root, "digits/v2"), Version(root, "digits/v3")
    extend(v1, double, v2)
    migrate(v1, MigrationSpec(drop=("id",)), v3)

    def stop() -> None:
        raise KeyboardInterrupt

    second = f"digits/v2/log/{v2.state.number + 1:020}.json"
    plan = plan_erase(InterruptedStore(root, second, stop), "digits", key="id", values=[2])
    with pytest.raises(KeyboardInterrupt):
        execute_erase_plan(plan)
    assert ids(opened(v1)) == [0, 1, 3]
    emptied(tmp_path)
    assert table(opened(v2).latest())["double"] == [0, 2, 4, 6], "its base is still needed"
    assert not prove_erasure(root, "digits").complete
    report = erased(tmp_path, 2)
    assert [one.plan.version for one in report.versions] == ["digits/v2", "digits/v3"]
    assert opened(v2).latest().shards[0].base is not None
    emptied(tmp_path)
    assert files_with(root, marker(2)) == []
    assert table(opened(v2).latest())["double"] == [0, 2, 6]
    assert erased(tmp_path, 2).versions == ()


def test_an_erase_fails_if_someone_appends_meanwhile_and_does_it_when_asked_again(
    tmp_path: Path,
) -> None:
    version = landed(tmp_path, (0, 4))
    plan = plan_erase(tmp_path / "root", "digits", key="id", values=[2])
    landed(tmp_path, (4, 6))
    with raises(ConflictError, "commit-conflict", version="digits/v1", snapshot=2):
        execute_erase_plan(plan)
    assert ids(version, opened(version).latest()) == [0, 1, 2, 3, 4, 5]
    erased(tmp_path, 2)
    assert ids(opened(version)) == [0, 1, 3, 4, 5]


def test_a_derived_version_goes_on_following_its_base(tmp_path: Path) -> None:
    v1 = landed(tmp_path, (0, 4), (4, 8))
    v2 = Version(tmp_path / "root", "digits/v2")
    extend(v1, double, v2)
    check_version(v2)
    erased(tmp_path, 5)
    landed(tmp_path, (8, 10))
    extend(Version(tmp_path / "root", "digits/v1"), double, v2)
    assert check_version(v2).ok
    assert table(v2.published())["id"] == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_a_virtual_combination_is_told_of_and_gone_when_it_was_made_anew(tmp_path: Path) -> None:
    version = landed(tmp_path, (0, 4))
    pairs = Version(tmp_path / "root", "digits/pairs")

    def combined() -> None:
        v1 = opened(version)
        combine(v1, v1, pairs, mode="virtual", unordered=True, **PREFIXES)
        check_version(pairs)

    combined()
    assert kinds(tmp_path, 2) == ["virtual"]
    erased(tmp_path, 2)
    emptied(tmp_path)
    assert table(opened(pairs).latest())["a_id"] == [0, 0, 0, 1, 1, 2]
    combined()
    emptied(tmp_path)
    assert files_with(tmp_path / "root", marker(2)) == []
    assert table(opened(pairs).published())["a_id"] == [0, 0, 1]


def test_whoever_still_holds_the_records_is_listed(tmp_path: Path) -> None:
    version = landed(tmp_path, (0, 4))
    root = tmp_path / "root"
    source = json_lines(tmp_path / "late.jsonl", [{"id": 4, "name": marker(4)}])
    append(version, source)
    check_version(version)
    faces = Version(root, "faces/v1")
    extend(version, double, faces, mode="rewrite")
    extend(faces, length, Version(root, "noses/v1"), mode="rewrite", snapshot="latest")
    version.tag("train", 2)
    version.pin("consumer digits-model", 2, "run 17")
    version.pin("someone", 2)
    plan = plan_erase(root, "digits", key="id", values=[4])
    assert [(one.kind, one.location) for one in plan.residual_copies] == [
        ("tag", "digits/v1@2"),
        ("consumer", "digits/v1@2"),
        ("pin", "digits/v1@2"),
        ("descendant", "faces/v1"),
        ("descendant", "noses/v1"),
        ("source", str(source)),
    ]
    assert all(one.hint for one in plan.residual_copies)
    faces_again, noses_again = (
        one.commands for one in plan.residual_copies if one.kind == "descendant"
    )
    made = "extend digits/v1 --into faces/v1 --udf tests.operations.extensions:double"
    made_whole, vacuum_faces = faces_again
    assert " ".join(made_whole) == f"{made} --mode rewrite"
    assert vacuum_faces == ("vacuum", "faces", "--delete", "--retention", "0")
    assert noses_again[0][:4] == ("extend", "faces/v1", "--into", "noses/v1")
    assert kinds(tmp_path, 1) == ["tag", "consumer", "pin", "descendant", "descendant"]


def test_sources_of_refused_rows_and_those_that_could_not_land_are_listed(tmp_path: Path) -> None:
    version = landed(tmp_path, (0, 4))
    bad = json_lines(tmp_path / "bad.jsonl", [{"id": 9, "name": "fine"}, {"id": 7, "name": {}}])
    append(version, bad, max_quarantined=0.9)
    aside = json_lines(tmp_path / "aside.jsonl", [{"id": "x", "name": "y"}])
    append(version, aside, skip_invalid=True)
    plan = plan_erase(tmp_path / "root", "digits", key="id", values=[7])
    assert [len(file.matches) for file in plan.quarantine] == [1]
    assert [(one.kind, one.location, one.certain) for one in plan.residual_copies] == [
        ("unsearched", str(aside), False),
        ("source", str(bad), True),
    ]


def test_the_sources_of_what_was_erased_before_are_told_by_the_proof_alone(tmp_path: Path) -> None:
    version = landed(tmp_path, (0, 4))
    source = json_lines(tmp_path / "late.jsonl", [*marked(4, 6), {"id": 9, "name": {}}])
    append(version, source, max_quarantined=0.9)
    check_version(version)
    erased(tmp_path, 4)
    erased(tmp_path, 9)
    assert kinds(tmp_path, 2) == []
    erased(tmp_path, 2)
    assert [one.location for one in prove_erasure(tmp_path / "root", "digits").remaining] == [
        str(source)
    ]


def test_older_shards_that_cannot_be_read_are_given_up_and_newest_ones_must_be_repaired(
    tmp_path: Path,
) -> None:
    version = landed(tmp_path, (0, 4))
    (old,) = version.latest().shards
    path = tmp_path / "root" / version.shard_name(old)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    where = {"path": str(path), "record": 3, "version": "digits/v1"}
    with raises(CorruptShardError, "corrupt-shard", **where) as caught:
        plan_erase(tmp_path / "root", "digits", key="id", values=[2])
    assert caught.value.hint == Hint.run("repair", "digits/v1")
    version.reject(1)
    landed(tmp_path, (4, 8))
    report = erased(tmp_path, 5)
    (done,) = report.versions
    assert ([shard.name for shard in done.plan.older_shards], done.plan.unreadable) == (
        [old.name],
        1,
    )


def test_the_source_of_a_shard_that_cannot_be_read_may_hold_the_records(tmp_path: Path) -> None:
    root = tmp_path / "root"
    version = landed(tmp_path, (0, 4))
    source = json_lines(tmp_path / "late.jsonl", marked(4, 8))
    append(version, source)
    path = root / version.shard_name(version.latest().shards[1])
    damaged = path.read_bytes()
    path.write_bytes(damaged.replace(marker(5).encode(), b"?" * len(marker(5))))
    kept = source.read_bytes()
    source.unlink()
    assert [one.lost_records for one in repair(version, allow_data_loss=True).repaired] == [1]
    source.write_bytes(kept)
    report = erased(tmp_path, 5, quarantine=True)
    assert [(one.kind, one.location, one.certain) for one in report.open_copies] == [
        ("unsearched", str(source), False)
    ]
    (told,) = prove_erasure(root, "digits").remaining
    assert (told.location, told.is_open) == (str(source), True)
    json_lines(source, marked(6, 8))
    (told,) = prove_erasure(root, "digits").remaining
    assert (told.location, told.is_open) == (str(source), False)


def test_a_source_that_was_changed_since_is_to_be_looked_into(tmp_path: Path) -> None:
    version = landed(tmp_path, (0, 4))
    source = json_lines(tmp_path / "late.jsonl", marked(4, 8))
    append(version, source)
    check_version(version)
    (source_holder,) = erased(tmp_path, 5).open_copies
    assert (source_holder.kind, source_holder.certain) == ("source", True)
    emptied(tmp_path)
    json_lines(source, [*marked(4, 5), *marked(6, 8)])
    proof = prove_erasure(tmp_path / "root", "digits")
    (told,) = proof.remaining
    assert (told.kind, told.certain, told.is_open) == ("source", False, False)
    assert proof.complete


def test_an_erase_in_an_object_store(tmp_path: Path) -> None:
    store = open_store("memory://erase")
    version = Version(store, "digits/v1")
    append(version, json_lines(tmp_path / "a.jsonl", marked(0, 6)), schema=SCHEMA)
    check_version(version)
    extend(version, double, Version(store, "digits/v2"))
    erase(store, "digits", where="id == 3")
    assert table(Version(store, "digits/v2").latest())["double"] == [0, 2, 4, 8, 10]
    vacuum(store, "digits", retention=timedelta(0), dry_run=False)
    assert prove_erasure(store, "digits").certain_copies[0].kind == "source"
    assert not prove_erasure(store, "digits").files


def test_a_version_that_cannot_be_searched_is_told_of(tmp_path: Path) -> None:
    landed(tmp_path, (0, 4))
    other = Version(tmp_path / "root", "digits/other")
    append(other, json_lines(tmp_path / "other.jsonl", [{"x": 1}]))
    assert kinds(tmp_path, 2) == ["unsearched"]


def test_lines_of_quarantine_files_that_cannot_be_searched_go_when_asked(tmp_path: Path) -> None:
    version = landed(tmp_path, (0, 4))
    bad = tmp_path / "bad.csv"
    bad.write_text(f"id,name\n5,fine\nseven,{marker(7)}\n")
    append(version, bad, max_quarantined=0.9)
    bad.unlink()
    root = tmp_path / "root"
    (file,) = plan_erase(root, "digits", where="id == 7").quarantine
    assert (len(file.matches), len(file.uncertain)) == (0, 1)
    (file,) = plan_erase(root, "digits", key="id", values=[31]).quarantine
    assert (len(file.matches), len(file.uncertain)) == (0, 1)
    assert plan_erase(root, "digits", key="name", values=[marker(31)]).quarantine == ()
    assert erase(root, "digits", where="id == 7", quarantine=True).lines == 1
    assert files_with(root, marker(7)) == []


def test_a_condition_that_fits_no_version_is_refused(tmp_path: Path) -> None:
    landed(tmp_path, (0, 4))
    with raises(SchemaMismatchError, "unknown-feature", feature="label"):
        plan_erase(tmp_path / "root", "digits", where="label == 3")
    with raises(SchemaMismatchError, "unknown-feature", feature="label") as caught:
        plan_erase(tmp_path / "root", "digits", where="id == 2 and label == 3")
    assert "id, name" in str(caught.value)
    with raises(SchemaMismatchError, "invalid-value", feature="id"):
        plan_erase(tmp_path / "root", "digits", where="id == 'three'")
    with raises(SchemaMismatchError, "invalid-value", feature="id") as caught:
        plan_erase(tmp_path / "root", "digits", key="id", values=["3", "three"])
    assert "value 2 of" in str(caught.value)


def test_rows_are_carried_from_shard_to_shard_and_back() -> None:
    random = np.random.default_rng(7)
    for _ in range(50):
        total = int(random.integers(1, 40))
        gone = np.flatnonzero(random.random(total) < 0.3)
        left = np.setdiff1d(np.arange(total), gone)
        related = AlignedMapping("a", "b", tuple(collapse_rows(gone)))
        some = np.flatnonzero(random.random(total) < 0.3)
        mapped = list(related.map_rows("a", some))
        carried = np.concatenate([NO_ROWS, *(one.rows for one in mapped)])
        assert left[carried].tolist() == np.intersect1d(some, left).tolist()
        back = np.flatnonzero(random.random(len(left)) < 0.5)
        (one,) = related.map_rows("b", back)
        assert one.rows.tolist() == left[back].tolist()
        assert expand_spans(collapse_rows(some)).tolist() == some.tolist()


def test_proof_page_escapes_hostile_values(tmp_path: Path) -> None:
    landed(tmp_path, (0, 4))
    erased(tmp_path, 2, request="a | b <script>x</script> [c](d) `e` **f**\n# g")
    proof = prove_erasure(tmp_path / "root", "digits")
    page = render_proof_page(proof, lambda *_: "run `this`\n# now")
    assert "<script>" not in page
    assert r"\[c\](d) \`e\` \*\*f\*\* \# g" in page
    assert "\n# g" not in page
    assert "\n# now" not in page
    assert "`run 'this' # now`" in page
    (row,) = (line for line in page.splitlines() if "script" in line)
    assert row.replace("\\|", "").count("|") == 8


def test_the_proof_tells_which_shards_and_snapshots_are_gone(tmp_path: Path) -> None:
    version = landed(tmp_path, (0, 4))
    root = tmp_path / "root"
    (old,) = version.latest().shards
    erased(tmp_path, 2, request="ticket 81")
    before = prove_erasure(root, "digits")
    assert before.files == [f"digits/shards/{old.name}", f"digits/shards/{old.name}.index"]
    assert not before.complete
    emptied(tmp_path)
    again = plan_erase(root, "digits", key="id", values=[2])
    proof = prove_erasure(root, "digits", request="ticket 81", plan=again)
    assert proof.complete
    told = json.loads(json.dumps(proof.to_dict()))
    (entry,) = told["entries"]
    assert (entry["version"], entry["records"], entry["snapshots"]) == ("digits/v1", 1, [1])
    (shard,) = entry["shards"]
    assert (shard["name"], shard["sha256"], shard["still_there"]) == (old.name, old.sha256, [])
    assert shard["vacuum_entry"] == opened(version).state.number
    assert told["searched"]
    assert prove_erasure(root, "digits", request="another").entries == ()


def test_a_batch_function_that_gives_too_few_rows_tells_the_records(tmp_path: Path) -> None:
    @batch_udf(Feature("meant", "int64"), reads=["id"], processes=False)
    def one(_batch: pa.RecordBatch) -> dict[str, Any]:
        return {"meant": [1]}

    version = landed(tmp_path, (0, 5))
    with pytest.raises(InvalidRecordsError, match="function 'one'") as caught:
        plan_erase(tmp_path / "root", "digits", where=one)
    assert (caught.value.record, caught.value.bad) == (0, 5)
    assert str(caught.value.path).endswith(version.latest().shards[0].name)


def test_a_function_that_gives_other_numbers_than_0_and_1_chooses_nothing(tmp_path: Path) -> None:
    @batch_udf(Feature("twice", "int64"), reads=["id"], processes=False)
    def twice(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"twice": pc.multiply(batch["id"], 2)}

    landed(tmp_path, (0, 5))
    with raises(UDFError, "invalid-filter-result"):
        plan_erase(tmp_path / "root", "digits", where=twice)
