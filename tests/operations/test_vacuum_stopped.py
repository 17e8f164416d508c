"""A vacuum that fails half way says what it announced, deleted and released."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.errors import IncompleteOperationError, StorageError, VacuumStoppedError
from shardline.operations.append import append
from shardline.operations.extend import extend
from shardline.operations.vacuum import vacuum
from shardline.schema.schema import Feature, Schema
from shardline.storage import open_store
from tests.log import versions
from tests.operations.extensions import base_of, double, version_in
from tests.sampling import sampled
from tests.storage.faulty import Fault, FaultyStore

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = Schema((Feature("id", "int64"),))
NAMES = ("digits/v1", "digits/v2")


def prepare(root: Path) -> None:
    """Two versions, each with shards to announce, and a pin that nobody needs."""
    for name in NAMES:
        version = versions.make_version(root, name)
        versions.append(version, "a", "b")
        versions.rebuild(version, "ab", "r")
        versions.write_shard(version, "orphan")
    Version(root, NAMES[0]).pin("digits/v2 on 2", 2)


def announced(root: Path) -> set[str]:
    """The shards that entries of the logs announce."""
    return {
        shard
        for name in NAMES
        for entry in Version(root, name).log.entries(1)
        for shard in entry.tombstones
    }


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in (root / "digits" / "shards").iterdir()}


def stopped(root: Path, step: tuple[str, int]) -> StorageError | None:
    store = FaultyStore(open_store(root), {step: Fault.FAILED})
    try:
        vacuum(store, "digits", retention=timedelta(0), dry_run=False)
    except StorageError as error:
        return error
    return None


@pytest.mark.parametrize("operation", ["create", "delete", "list", "read_many"])
def test_vacuum_failing_at_each_request_reports_what_it_did(tmp_path: Path, operation: str) -> None:
    for number in sampled(range(1, 50), 49 if operation != "read_many" else 6, operation):
        root = tmp_path / str(number)
        prepare(root)
        before = files(root)
        error = stopped(root, (operation, number))
        if error is None:
            assert number > 1
            break
        done = announced(root), before - files(root), Version(root, NAMES[0]).state.pins == {}
        if isinstance(error, VacuumStoppedError):
            assert set(error.announced) == done[0]
            assert set(error.deleted) == done[1]
            assert bool(error.released_pins) == done[2]
            assert "announced" in pickle.loads(pickle.dumps(error)).to_dict()  # noqa: S301 - ours
        assert isinstance(error, VacuumStoppedError) == any(done), error
        assert vacuum(root, "digits", retention=timedelta(0), dry_run=False).kept_files == 2
        assert files(root) == {f"digits/shards/{versions.shard_name('r', v)}" for v in ("v1", "v2")}


def test_append_rejection_fails_after_commit_names_entry(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text('{"id": 1}\n')
    bad.write_text('{"id": "x"}\n')
    clean = FaultyStore(open_store(tmp_path / "clean"))
    append(Version(clean, "digits/v1"), [good, bad], schema=SCHEMA, skip_invalid=True)
    root = tmp_path / "root"
    store = FaultyStore(open_store(root), {("create", clean.counts["create"]): Fault.FAILED})
    with pytest.raises(IncompleteOperationError) as caught:
        append(Version(store, "digits/v1"), [good, bad], schema=SCHEMA, skip_invalid=True)
    assert caught.value.done == ("digits/v1 entry 2",)
    assert Version(root, "digits/v1").state.number == 2


def test_extend_fails_after_commit_names_entry(tmp_path: Path) -> None:
    base_of(tmp_path, (0, 2))
    counted = FaultyStore(open_store(tmp_path / "root"))
    extend(Version(counted, "digits/v1"), double, Version(counted, "digits/v2"))
    number = counted.counts["read_many"]
    store = FaultyStore(open_store(tmp_path / "root"), {("read_many", number): Fault.FAILED})
    with pytest.raises(IncompleteOperationError) as caught:
        extend(Version(store, "digits/v1"), double, Version(store, "digits/v3"))
    assert caught.value.done == ("digits/v3 entry 2",)
    assert version_in(tmp_path, "digits/v3").state.snapshot == 1
