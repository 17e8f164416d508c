"""Forge each sidecar of a root: no trace, erase or repair may believe it, and audit finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from shardline.api import Version
from shardline.errors import ShardlineError
from shardline.lineage.trace import trace
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.erase import erase
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.provenance.log_index import LogIndex
from shardline.schema.schema import Feature
from shardline.sidecars.sidecar_reader import SidecarMismatchError
from shardline.udf import batch_udf
from tests.errors import raises
from tests.golden.reader import hinted_checkpoint, read_log
from tests.lineage import forging
from tests.lineage.roots import Root, forge
from tests.operations.extensions import SCHEMA, table
from tests.operations.landings import json_lines, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = ("digits/v1", "digits/v2", "digits/v3", "digits/pairs")


@batch_udf(Feature("twice", "int64"), reads=["id"], code="1")
def odd(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Twice the id, of which record 1 has none."""
    return {"twice": pc.if_else(pc.equal(batch["id"], 1), None, batch["id"])}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Root:
    """An append with a refused row, what is made of it without some records, and a sample."""
    folder = tmp_path_factory.mktemp("sidecars")
    root = Root(folder / "root", folder / "landing")
    root.landing.mkdir()
    v1, v2, v3, pairs = (root.version(name) for name in NAMES)
    source = json_lines(root.landing / "a.jsonl", [{"id": "none"}, *rows(0, 6), {"id": "two"}])
    append(v1, source, schema=SCHEMA, max_quarantined=0.5)
    assert check_version(v1).ok
    extend(v1, odd, v2, mode="rewrite", max_quarantined=0.5)
    assert check_version(v2).ok
    migrate(v2, MigrationSpec(drop=("id", "name"), rename={"twice": "number"}), v3)
    assert check_version(v3).ok
    combine(v1, v2, pairs, sample=6, seed=1, on_collision="prefix", right_prefix="r_")
    assert check_version(pairs).ok
    return root


@pytest.fixture
def root(made: Root, tmp_path: Path) -> Root:
    """A copy of it."""
    return made.copied(tmp_path / "root")


def sidecars(root: Root) -> list[Path]:
    """The receipts, row maps and quarantine files of a root."""
    found = root.folder.rglob("*")
    return sorted(path for path in found if path.suffix in {".receipt", ".rows", ".jsonl"})


def traces(root: Root) -> list[str]:
    """Where each record of each version came from."""
    catalog = LogIndex(root.folder)
    found = []
    for name in NAMES:
        snapshot = root.version(name).latest()
        found += [repr(trace(catalog, snapshot, number)) for number in range(snapshot.records)]
    return [one.replace(str(root.folder), "ROOT") for one in found]


def content(root: Root) -> dict[str, object]:
    """The records of each version."""
    return {name: table(root.version(name).latest()) for name in NAMES}


TAMPERS = (forging.flip, forging.truncate, forging.delete, forging.swap, forging.forge)


def test_entries_commit_digests_of_all_sidecars(root: Root) -> None:
    committed: dict[str, str] = {}
    for name in NAMES:
        for entry in root.version(name).log.entries(1):
            assert entry.features == (["sidecars"] if entry.sidecars else [])
            committed |= entry.sidecars
        read_log(root.folder, *name.split("/"))
    files = {path.name: forging.sha256(path) for path in sidecars(root)}
    assert committed == files
    assert {path.suffix for path in sidecars(root)} == {".receipt", ".rows", ".jsonl"}


def test_erase_refuses_a_forged_receipt(root: Root) -> None:
    shard = root.version("digits/v2").latest().shards[0]
    path = root.folder / "digits/shards" / f"{shard.name}.receipt"
    forging.forge(path)
    before = root.state()
    with raises(SidecarMismatchError, "sidecar-mismatch", path=str(path), version="digits/v2"):
        erase(root.folder, "digits", key="id", values=[3])
    assert root.state() == before


@pytest.mark.sweep(keep=6)
@pytest.mark.parametrize("tamper", TAMPERS, ids=lambda tamper: tamper.__name__)
@pytest.mark.parametrize("place", range(7))
def test_no_tampered_sidecar_is_believed(
    root: Root, place: int, tamper: Callable[[Path, Path], None]
) -> None:
    files = sidecars(root)
    path = files[place]
    same = [one for one in files if one.suffix == path.suffix and one != path]
    truth = traces(root)
    tamper(path, (same or files)[-1])
    for found, told in zip(traces(root), truth, strict=True):
        assert found == told or "TraceGap(" in found
    assert root.findings(sources=False)
    before = root.state()
    try:
        report = erase(root.folder, "digits", key="id", values=[3])
    except ShardlineError:
        assert root.state() == before
        return
    assert table(root.version("digits/v1").latest())["id"] == [0, 1, 2, 4, 5]
    assert table(root.version("digits/v2").latest())["id"] == [0, 2, 4, 5]
    if table(root.version("digits/v3").latest())["number"] != [0, 2, 4, 5]:
        assert "unsearched" in {one.kind for one in report.open_copies}


def test_stopped_erase_leaves_usable_sidecars(root: Root) -> None:
    """An erase that stops after its commit leaves the old files, whose digests were committed."""
    old = {path: path.read_bytes() for path in sidecars(root)}
    report = erase(root.folder, "digits", where="id == 1")
    changed = [path for path, data in old.items() if path.read_bytes() != data]
    assert report.lines
    assert {path.suffix for path in changed} == {".receipt", ".jsonl"}
    assert root.findings(sources=False) == []
    for path in changed:
        path.write_bytes(old[path])
    found = root.findings(sources=False)
    assert {(one.severity, one.kind) for one in found} == {("warning", "stale-sidecar")}
    assert all("TraceGap(" not in one for one in traces(root))
    erase(root.folder, "digits", where="id == 1")
    assert root.findings(sources=False) == []


def test_checkpoint_has_rewritten_sidecars(root: Root) -> None:
    erase(root.folder, "digits", where="id == 1")
    version = root.version("digits/v2")
    numbers = [entry.number for entry in version.log.entries(1) if not entry.changes_data]
    rewriting = [n for n in numbers if version.log.entry(n).sidecars]
    assert rewriting
    version.log.write_checkpoint(version.state)
    loaded = Version(root.folder, "digits/v2").state
    assert loaded.checkpoint == loaded.number
    assert set(dict(loaded.sidecars.items()).values()) == set(rewriting)
    told = hinted_checkpoint(root.folder, "digits", "v2").told()
    assert told["sidecars"] == read_log(root.folder, "digits", "v2").told()["sidecars"]
    assert root.findings(sources=False) == []


def test_entry_with_invalid_sidecar_name_is_refused(root: Root) -> None:
    forge(root.entry_file(2), lambda told: told.update(sidecars={"../x": "0" * 64}))
    assert ("edited-entry", "digits/v1") in root.kinds(sources=False)
