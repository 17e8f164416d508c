"""Exporting: one file under a stable path, which is replaced as a whole or left as it is."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from typing import TYPE_CHECKING

import pytest

from shardline.errors import (
    CancelledError,
    CorruptFileError,
    FileExistsAlreadyError,
    InvalidArgumentError,
    ObjectNotFoundError,
    SnapshotNotFoundError,
    WrongShardError,
)
from shardline.execution.executor import CancellationToken, Progress, ThreadExecutor
from shardline.operations.check import check_version
from shardline.operations.export import export, read_export
from shardline.operations.rebuild import rebuild
from tests.errors import raises
from tests.kernel.frames import framed
from tests.log.versions import make_version
from tests.operations.shard_files import file_of, land, landed, numbered, objects, paths
from tests.tfrecord.samples import example_of, flipped, made, read_by_tensorflow, records_of

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = [example_of(x=number) for number in range(6)]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where to export to, in a folder of its own."""
    (tmp_path / "exports").mkdir()
    return tmp_path / "exports" / "digits.tfrecord"


def identity(path: Path) -> tuple[int, int]:
    """What tells whether a file was written to or replaced."""
    return path.stat().st_ino, path.stat().st_mtime_ns


def test_the_file_holds_the_records_of_the_snapshot(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES[:2], EXAMPLES[2:])
    check_version(version)
    report = export(version, out)
    assert (report.path, report.written) == (out, True)
    assert out.read_bytes() == framed(*EXAMPLES)
    assert read_by_tensorflow(out) == EXAMPLES


def test_the_description_beside_the_file_tells_what_is_in_it(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES[:2], EXAMPLES[2:])
    report = export(version, out, snapshot="latest")
    told = json.loads(out.with_name("digits.tfrecord.export").read_bytes())
    assert told == {
        "version": "digits/v1",
        "snapshot": 2,
        "content": version.latest().content,
        "compression": "none",
        "records": 6,
        "bytes": out.stat().st_size,
        "sha256": hashlib.sha256(out.read_bytes()).hexdigest(),
        "modified": out.stat().st_mtime_ns,
    }
    assert read_export(out) == report.exported
    assert sorted(path.name for path in out.parent.iterdir()) == [out.name, f"{out.name}.export"]


def test_nothing_is_written_when_nothing_is_new(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES)
    first = export(version, out, snapshot="latest")
    before = identity(out), identity(out.with_name(f"{out.name}.export"))
    again = export(version, str(out), snapshot="latest")
    assert (again.written, again.exported) == (False, first.exported)
    assert (identity(out), identity(out.with_name(f"{out.name}.export"))) == before


def test_a_stable_path_stays_packed_as_it_was(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES)
    export(version, out, snapshot="latest")
    rebuild(version, snapshot="latest", compression="gzip")
    export(version, out, snapshot="latest")
    assert out.read_bytes() == framed(*EXAMPLES)
    export(version, out, snapshot="latest", compression="gzip")
    export(version, out, snapshot="latest")
    assert read_by_tensorflow(out, "GZIP") == EXAMPLES


def test_a_reader_of_the_old_file_reads_it_to_its_end(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES[:2])
    export(version, out, snapshot="latest")
    with out.open("rb") as opened:
        head = opened.read(10)
        land(version, "more", EXAMPLES[2:])
        assert export(version, out, snapshot="latest").written
        assert head + opened.read() == framed(*EXAMPLES[:2])
    assert out.read_bytes() == framed(*EXAMPLES)


def test_only_what_is_published_comes_out_unless_told(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES[:2])
    with pytest.raises(SnapshotNotFoundError, match="no published snapshot"):
        export(version, out)
    check_version(version)
    land(version, "unchecked", EXAMPLES[2:])
    assert export(version, out).exported.snapshot == 1
    assert records_of(out) == EXAMPLES[:2]
    assert export(version, out, snapshot="latest").exported.snapshot == 2
    assert export(version, out, snapshot=1).exported.records == 2


def test_a_restored_snapshot_is_exported_again(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES[:2], EXAMPLES[2:])
    export(version, out, snapshot="latest")
    version.restore(1)
    assert export(version, out, snapshot="latest").written
    assert records_of(out) == EXAMPLES[:2]


def test_a_foreign_file_is_refused_unless_it_may_be_overwritten(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES)
    made(out, b"precious")
    with raises(FileExistsAlreadyError, "file-exists", path=str(out), version="digits/v1"):
        export(version, out, snapshot="latest")
    assert objects(out.parent) == {out.name: b"precious"}
    export(version, out, snapshot="latest", overwrite=True)
    assert records_of(out) == EXAMPLES


def test_the_export_of_another_version_is_refused(tmp_path: Path, out: Path) -> None:
    version, other = landed(tmp_path, EXAMPLES), make_version(tmp_path, "digits/v2")
    land(other, "other", EXAMPLES[:1])
    export(other, out, snapshot="latest")
    with raises(FileExistsAlreadyError, "file-exists", path=str(out), version="digits/v1"):
        export(version, out, snapshot="latest")
    assert records_of(out) == EXAMPLES[:1]


def test_a_link_that_leads_nowhere_is_not_replaced(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES)
    out.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsAlreadyError):
        export(version, out, snapshot="latest")
    assert out.is_symlink()


@pytest.mark.parametrize("change", ["touched", "grown", "replaced", "deleted", "description"])
def test_a_file_that_is_not_as_it_was_written_is_exported_anew(
    tmp_path: Path, out: Path, change: str
) -> None:
    version = landed(tmp_path, EXAMPLES)
    export(version, out, snapshot="latest")
    data = out.read_bytes()
    if change == "touched":
        os.utime(out, ns=(1, 1))
    elif change == "grown":
        out.write_bytes(data + b"x")
    elif change == "replaced":
        out.unlink()
        made(out, bytes(len(data)))
        os.utime(out, ns=(1, 1))
    elif change == "deleted":
        out.unlink()
    else:
        out.with_name(f"{out.name}.export").write_bytes(b"{}")
    overwrite = change == "description"  # without it nobody knows whose file it is
    assert export(version, out, snapshot="latest", overwrite=overwrite).written
    assert out.read_bytes() == data
    assert not export(version, out, snapshot="latest").written


def test_a_damaged_shard_leaves_the_old_file(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES[:2])
    export(version, out, snapshot="latest")
    land(version, "more", EXAMPLES[2:])
    bad = paths(version.latest())[1]
    data = bad.read_bytes()
    before = objects(out.parent), identity(out)
    for content, error in (
        (flipped(data, 8 * 40), CorruptFileError),
        (data[: len(framed(EXAMPLES[2]))], WrongShardError),
        (framed(*EXAMPLES[1:5]), WrongShardError),
        (None, ObjectNotFoundError),
    ):
        if content is None:
            bad.unlink()
        else:
            bad.write_bytes(content)
        with pytest.raises(error, match=bad.name):
            export(version, out, snapshot="latest")
        assert (objects(out.parent), identity(out)) == before
    made(bad, data)
    assert export(version, out, snapshot="latest").written


def test_gzip_comes_out_as_it_is_or_as_told(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES[:2], [], EXAMPLES[2:], kind="members")
    export(version, out, snapshot="latest")
    parts = (EXAMPLES[:2], EXAMPLES[2:])
    assert out.read_bytes() == b"".join(file_of("members", part) for part in parts)
    assert read_by_tensorflow(out, "GZIP") == EXAMPLES
    report = export(version, out, snapshot="latest", compression="none")
    assert (report.written, report.exported.compression) == (True, "none")
    assert out.read_bytes() == framed(*EXAMPLES)
    export(version, out, snapshot="latest", compression="gzip")
    assert gzip.decompress(out.read_bytes()) == framed(*EXAMPLES)
    with raises(InvalidArgumentError, "unsupported-compression"):
        export(version, out, snapshot="latest", compression="zlib")


def test_a_rebuilt_snapshot_gives_the_same_file(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES[:2], EXAMPLES[2:])
    before = export(version, out, snapshot="latest").exported
    rebuild(version, snapshot="latest")
    assert export(version, out, snapshot="latest").exported.sha256 == before.sha256


def test_a_snapshot_without_shards_is_an_empty_file(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES)
    version.reject(1)
    export(version, out, snapshot="latest")
    assert out.read_bytes() == b""


def test_a_missing_folder_is_told_by_its_name(tmp_path: Path) -> None:
    version = landed(tmp_path, EXAMPLES)
    with pytest.raises(FileNotFoundError, match="missing"):
        export(version, tmp_path / "missing" / "out", snapshot="latest")


def test_an_export_that_is_cancelled_leaves_the_old_file(tmp_path: Path, out: Path) -> None:
    version = landed(tmp_path, EXAMPLES[:2])
    export(version, out, snapshot="latest")
    land(version, "more", EXAMPLES[2:])
    before = objects(out.parent)
    cancellation = CancellationToken()
    told: list[Progress] = []

    def cancel(progress: Progress) -> None:
        told.append(progress)
        cancellation.cancel()

    executor = ThreadExecutor(cancellation=cancellation)
    with pytest.raises(CancelledError):
        export(version, out, snapshot="latest", executor=executor, progress=cancel)
    assert objects(out.parent) == before
    assert (told[0].step, told[0].task, told[0].records) == ("exporting", str(out), 2)


def test_an_export_reads_from_a_store_that_is_no_disk(out: Path) -> None:
    version = landed("memory://export", numbered(0, 3), numbered(3, 5))
    export(version, out, snapshot="latest")
    assert records_of(out) == numbered(0, 5)
