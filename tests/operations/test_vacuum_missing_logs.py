"""Vacuum stops before it acts if a log is missing, or shorter than others imply."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

import pytest

from shardline.api import Version
from shardline.errors import IncompleteLogError
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.rebuild import rebuild
from shardline.operations.vacuum import vacuum
from shardline.operations.verify_version import verify_version
from shardline.storage import open_store
from tests.errors import raises
from tests.operations.extensions import base_of, double, version_in
from tests.sampling import sampled
from tests.storage.faulty import FaultyStore

if TYPE_CHECKING:
    from pathlib import Path

AT_ONCE = timedelta(0)
NAMES = ("digits/v1", "digits/v2", "digits/v3", "pairs/v1")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An appended version, overlays on it, a migration of those, and a plan in another dataset."""
    folder = tmp_path_factory.mktemp("template")
    base, wide = base_of(folder, (0, 2), (2, 4)), version_in(folder)
    extend(base, double, wide)
    rebuild(base)
    check_version(base)
    extend(base, double, wide)
    check_version(wide)
    renamed = version_in(folder, "digits/v3")
    migrate(wide, MigrationSpec(rename={"double": "twice"}), renamed)
    check_version(renamed)
    pairs = version_in(folder, "pairs/v1")
    combine(wide, wide, pairs, mode="virtual", on_collision="prefix", left_prefix="a_")
    check_version(pairs)
    append(base, [{"id": 99, "name": "late"}], batch="late")
    return folder / "root"


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "root")


def log_of(root: Path, name: str) -> Path:
    return root / name / "log"


def entries(root: Path, name: str) -> list[Path]:
    return sorted(log_of(root, name).glob("*.json"))


def files(root: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in sorted(root.rglob("*")) if one.is_file()}


def assert_stops(root: Path, dataset: str, version: str) -> None:
    """Vacuum names the version, and not a byte differs afterwards."""
    before = files(root)
    for delete in (False, True):
        with raises(IncompleteLogError, "incomplete-log") as caught:
            vacuum(root, dataset, retention=AT_ONCE, dry_run=not delete)
        assert version in {one["version"] for one in caught.value.missing}
        assert all(one["by"] for one in caught.value.missing)
    assert files(root) == before


def referred(root: Path, name: str) -> int:
    """The entry that made the latest snapshot of a version that another log names."""
    told = [
        one["snapshot"]
        for other in NAMES
        for entry in entries(root, other)
        for one in json.loads(entry.read_bytes()).get("inputs", ())
        if f"{one['dataset']}/{one['version']}" == name
    ]
    return Version(root, name).snapshot(max(told)).entry


Damage: TypeAlias = Callable[["Path", str], object]


def move_log(root: Path, name: str) -> None:
    log_of(root, name).rename(root / "moved")


def move_version(root: Path, name: str) -> None:
    (root / name).rename(root / "moved")


def drop_first(root: Path, name: str) -> None:
    entries(root, name)[0].unlink()


def drop_middle(root: Path, name: str) -> None:
    entries(root, name)[2].unlink()


def drop_many(root: Path, name: str) -> None:
    """More entries than a reader asks for at a time."""
    version = Version(root, name)
    for number in range(8):
        version.tag("t", 1 + number % 2)
    for path in entries(root, name)[:7]:
        path.unlink()


def leave_checkpoint(root: Path, name: str) -> None:
    version = Version(root, name)
    version.log.write_checkpoint(version.state)
    for path in entries(root, name):
        if path.name != "newest-checkpoint.json":
            path.unlink()


def leave_hint(root: Path, name: str) -> None:
    (log_of(root, name) / "newest-checkpoint.json").write_text('{"entry": 192}\n')


DAMAGES: list[Damage] = [
    move_log,
    move_version,
    drop_first,
    drop_middle,
    drop_many,
    leave_checkpoint,
    leave_hint,
]


@pytest.mark.parametrize("name", NAMES[:2])
@pytest.mark.parametrize("damage", DAMAGES)
def test_vacuum_incomplete_log_changes_nothing(root: Path, damage: Damage, name: str) -> None:
    damage(root, name)
    assert_stops(root, "digits", name)


def test_vacuum_older_copy_of_log_changes_nothing(template: Path, tmp_path: Path) -> None:
    """Every log, cut at every entry below one that another log names."""
    cases = [(name, number) for name in NAMES[:2] for number in range(referred(template, name))]
    for name, number in sampled(cases, 5, "older logs"):
        root = shutil.copytree(template, tmp_path / f"{name.replace('/', '-')}-{number}")
        for path in entries(root, name)[number:]:
            path.unlink()
        assert_stops(root, "digits", name)


@pytest.mark.parametrize("dataset", ["digits", "pairs"])
def test_vacuum_holder_without_log_keeps_pinned_shards(root: Path, dataset: str) -> None:
    move_log(root, "pairs/v1")
    assert_stops(root, dataset, "pairs/v1")


def test_vacuum_log_grown_differently_after_restore_changes_nothing(root: Path) -> None:
    """The log is as long as before, but the snapshot that others read is another one."""
    version = Version(root, "digits/v1")
    number = referred(root, "digits/v1")
    for path in entries(root, "digits/v1")[number - 1 :]:
        path.unlink()
    append(Version(root, "digits/v1"), [{"id": 77, "name": "other"}], batch="instead")
    assert Version(root, "digits/v1").state.snapshot >= version.snapshot(1).number
    assert_stops(root, "digits", "digits/v1")


def test_vacuum_after_log_is_back_loses_nothing(root: Path) -> None:
    move_log(root, "digits/v1")
    assert_stops(root, "digits", "digits/v1")
    (root / "moved").rename(log_of(root, "digits/v1"))
    assert vacuum(root, "digits", retention=AT_ONCE, dry_run=False).files
    assert all(verify_version(Version(root, name)).ok for name in NAMES)


def test_vacuum_unreferenced_version_without_log_is_kept(root: Path) -> None:
    """Nobody refers to v3: its shards look like those of an append that died."""
    move_log(root, "digits/v3")
    before = {path for path in (root / "digits" / "shards").iterdir() if path.name[:3] == "v3."}
    report = vacuum(root, "digits", retention=AT_ONCE, dry_run=False)
    assert "log" in {one.kind for one in report.retainers}
    assert all(path.exists() for path in before)
    (root / "moved").rename(log_of(root, "digits/v3"))
    assert verify_version(Version(root, "digits/v3")).ok


def test_vacuum_without_files_of_the_lost_version_runs(root: Path) -> None:
    """The way out if a log is gone for good: move the files of its version away."""
    shutil.rmtree(root / "pairs")
    for pin in [name for name in Version(root, "digits/v2").state.pins if "pairs" in name]:
        Version(root, "digits/v2").pin(pin, None)
    move_version(root, "digits/v3")
    for path in (root / "digits" / "shards").glob("v3.*"):
        path.unlink()
    assert vacuum(root, "digits", retention=AT_ONCE, dry_run=False).files
    assert all(verify_version(Version(root, name)).ok for name in NAMES[:2])


def test_vacuum_log_restored_meanwhile_deletes_nothing(root: Path) -> None:
    """The log that implies more arrives between the first look and the deletion."""
    number = referred(root, "digits/v1") - 1
    for path in entries(root, "digits/v1")[number:]:
        path.unlink()
    for name in ("digits/v2", "digits/v3", "pairs/v1"):
        (root / name).rename(root / f"moved-{name.replace('/', '-')}")
    for path in (root / "digits" / "shards").glob("v[23].*"):
        path.rename(root / path.name)
    shards = set((root / "digits" / "shards").iterdir())

    def put_back() -> None:
        (root / "moved-digits-v2").rename(root / "digits/v2")

    store = FaultyStore(open_store(root), {("create", 1): put_back})
    with pytest.raises(Exception) as caught:  # noqa: PT011 - its code is asserted
        vacuum(store, "digits", retention=AT_ONCE, dry_run=False)
    assert getattr(caught.value, "code", "") in {"incomplete-log", "vacuum-incomplete"}
    assert set((root / "digits" / "shards").iterdir()) == shards
