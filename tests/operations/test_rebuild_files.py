"""Rebuilding loose files: one file or a folder of parts, whole or not there at all."""

from __future__ import annotations

import gzip
import tempfile
import zlib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.errors import (
    CorruptFileError,
    FileExistsAlreadyError,
    InvalidArgumentError,
    MixedPayloadsError,
)
from shardline.hints import Command
from shardline.operations.combine_files import combine_files
from shardline.operations.rebuild_files import WrittenFilesReport, rebuild_files
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.index import write_index
from shardline.tfrecord.indexed_file import IndexedFile
from tests.errors import raises
from tests.kernel.examples import seeded
from tests.kernel.frames import framed
from tests.operations.shard_files import (
    KINDS,
    TF_NAMES,
    Kind,
    compression_of,
    file_of,
    numbered,
    objects,
    shards,
)
from tests.tfrecord.samples import (
    bulk_needs_the_compiled_kernel,
    example_of,
    flipped,
    made,
    read_by_tensorflow,
    records_of,
    sequence_of,
)

DESCRIPTORS = Path("/proc/self/fd")
packings = st.sampled_from([None, "none", "gzip", "zlib"])


def write(folder: Path, contents: list[tuple[list[bytes], Kind]]) -> list[Path]:
    """A file for each content."""
    return [
        made(folder / f"in-{at}", file_of(kind, records))
        for at, (records, kind) in enumerate(contents)
    ]


@given(shards, packings)
@settings(max_examples=40)
def test_one_file_has_the_records_of_all_inputs(
    contents: list[tuple[list[bytes], Kind]], packing: str | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = write(Path(folder), contents)
        out = Path(folder, "out")
        wanted = [record for records, _ in contents for record in records]
        report = rebuild_files(files, out, compression=packing, allow_mixed=True)
        assert (report.files, report.records) == ((out,), len(wanted))
        assert report.bytes == out.stat().st_size
        assert records_of(out) == wanted
        assert read_by_tensorflow(out, TF_NAMES[report.compression.value]) == wanted
        write_index(out)
        with IndexedFile(out) as indexed:
            assert [indexed[at] for at in range(len(indexed))] == wanted
        assert packing is None or report.compression == Compression(packing)


@given(shards, packings, st.sampled_from([1, 40, 100, 5000]))
@settings(max_examples=40)
def test_parts_have_the_records_of_all_inputs_and_end_at_the_target(
    contents: list[tuple[list[bytes], Kind]], packing: str | None, target: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = write(Path(folder), contents)
        out = Path(folder, "out")
        report = rebuild_files(
            files, out, compression=packing, target_bytes=target, allow_mixed=True
        )
        parts = [records_of(path) for path in report.files]
        assert [r for part in parts for r in part] == [r for rs, _ in contents for r in rs]
        assert sorted(out.iterdir()) == list(report.files)
        assert report.bytes == sum(path.stat().st_size for path in report.files)
        assert report.records == sum(map(len, parts))
        if report.compression is Compression.NONE:
            assert all(len(framed(*part)) <= target or len(part) == 1 for part in parts)
            for part, following in pairwise(parts):
                assert len(framed(*part, following[0])) > target
        assert all(parts) or parts == [[]]


@given(shards, st.sampled_from([None, 40]), st.integers(0), st.integers(0))
@settings(max_examples=60)
def test_a_flipped_bit_is_told_and_leaves_nothing_or_changes_no_record(
    contents: list[tuple[list[bytes], Kind]], target: int | None, which: int, bit: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = write(Path(folder), contents)
        damaged = files[which % len(files)]
        data = damaged.read_bytes()
        if data:
            damaged.write_bytes(flipped(data, bit % (8 * len(data))))
        before = objects(Path(folder))
        done = rebuilt_or_stopped(files, Path(folder, "out"), target)
        if not isinstance(done, CorruptFileError):
            # The name and the time in the header of a GZIP member are nobody's business.
            found = [record for path in done.files for record in records_of(path)]
            assert found == [record for records, _ in contents for record in records]
            return
        assert done.path == str(damaged)
        assert done.hint is not None
        assert Command.of("salvage", str(damaged), "-o", "OUT") in done.hint.commands
        assert objects(Path(folder)) == before
        assert sorted(path.name for path in Path(folder).iterdir()) == sorted(before)


def rebuilt_or_stopped(
    files: list[Path], out: Path, target: int | None
) -> WrittenFilesReport | CorruptFileError:
    """What was written, or what it was stopped by."""
    try:
        return rebuild_files(files, out, target_bytes=target, allow_mixed=True)
    except CorruptFileError as error:
        return error


def test_plain_files_are_put_behind_each_other_as_cat_does(tmp_path: Path) -> None:
    files = write(tmp_path, [(numbered(0, 3), "plain"), ([], "plain"), ([b"", b"x"], "plain")])
    rebuild_files(files, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"".join(path.read_bytes() for path in files)


def test_gzip_files_are_put_behind_each_other_as_cat_does(tmp_path: Path) -> None:
    files = write(tmp_path, [(numbered(0, 3), "members"), (numbered(3, 9), "tensorflow")])
    report = rebuild_files(files, tmp_path / "out")
    assert report.compression is Compression.GZIP
    data = (tmp_path / "out").read_bytes()
    assert data == b"".join(path.read_bytes() for path in files)
    assert gzip.decompress(data) == framed(*numbered(0, 9))


@pytest.mark.parametrize("end", [b"", framed(b"z")])
def test_an_empty_member_does_not_come_between_others(tmp_path: Path, end: bytes) -> None:
    empty = made(tmp_path / "empty", file_of("members", []))
    tail = made(tmp_path / "tail", file_of("members", [b"a"]) + file_of("members", []))
    other = made(tmp_path / "other", file_of("members", []))
    last = made(tmp_path / "last", gzip.compress(end))
    rebuild_files([empty, tail, other, last], tmp_path / "out")
    wanted = [b"a", b"z"] if end else [b"a"]
    assert records_of(tmp_path / "out") == wanted
    assert read_by_tensorflow(tmp_path / "out", "GZIP") == wanted
    assert gzip.decompress((tmp_path / "out").read_bytes()) == framed(*wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packing", ["none", "gzip", "zlib"])
def test_every_packing_becomes_every_other(tmp_path: Path, kind: Kind, packing: str) -> None:
    records = numbered(0, 7)
    files = write(tmp_path, [(records[:4], kind), (records[4:], kind)])
    rebuild_files(files, tmp_path / "out", compression=packing)
    data = (tmp_path / "out").read_bytes()
    if packing != "none":
        data = gzip.decompress(data) if packing == "gzip" else zlib.decompress(data)
    assert data == framed(*records)
    assert read_by_tensorflow(tmp_path / "out", TF_NAMES[packing]) == records


@pytest.mark.parametrize("kind", KINDS)
def test_unless_told_only_gzip_alone_stays_packed(tmp_path: Path, kind: Kind) -> None:
    files = write(tmp_path, [([b"a"], kind), ([b"b"], kind)])
    report = rebuild_files(files, tmp_path / "out")
    wanted = "gzip" if compression_of(kind) == "gzip" else "none"
    assert report.compression.value == wanted
    mixed = write(tmp_path, [([b"a"], kind), ([b"b"], "plain")])
    assert rebuild_files(mixed, tmp_path / "mixed").compression is Compression.NONE


def test_files_of_no_bytes_do_not_count_for_how_the_others_are_packed(tmp_path: Path) -> None:
    files = write(tmp_path, [([], "plain"), ([b"b"], "members")])
    assert rebuild_files(files, tmp_path / "out").compression is Compression.GZIP


@pytest.mark.parametrize(("packing", "data"), [("none", b""), ("gzip", None), ("zlib", None)])
def test_no_records_make_a_file_without_records(
    tmp_path: Path, packing: str, data: bytes | None
) -> None:
    files = write(tmp_path, [([], "plain"), ([], "members")])
    report = rebuild_files(files, tmp_path / "out", compression=packing)
    assert (report.records, records_of(tmp_path / "out")) == (0, [])
    assert read_by_tensorflow(tmp_path / "out", TF_NAMES[packing]) == []
    assert data is None or (tmp_path / "out").read_bytes() == data
    parts = rebuild_files(files, tmp_path / "parts", compression=packing, target_bytes=10)
    assert [path.name for path in parts.files] == ["part-00000-of-00001.tfrecord"]


def test_parts_are_named_in_order_and_by_how_many_they_are(tmp_path: Path) -> None:
    files = write(tmp_path, [(numbered(0, 7), "plain"), (numbered(7, 11), "members")])
    report = rebuild_files(files, tmp_path / "out", target_bytes=26 * 4)
    names = [f"part-0000{at}-of-00003.tfrecord" for at in range(3)]
    assert [path.name for path in report.files] == names
    assert [records_of(path) for path in report.files] == [
        numbered(0, 4),
        numbered(4, 8),
        numbered(8, 11),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in-0", "in-1", "out"]


@bulk_needs_the_compiled_kernel
def test_packed_parts_end_soon_after_the_target(tmp_path: Path) -> None:
    records = [seeded(at).randbytes(100_000) for at in range(60)]
    files = write(tmp_path, [(records, "plain")])
    target = 1_500_000
    report = rebuild_files(files, tmp_path / "out", compression="gzip", target_bytes=target)
    sizes = [path.stat().st_size for path in report.files]
    assert len(sizes) > 1
    assert all(target <= size < target + 2**20 + 110_000 for size in sizes[:-1])
    assert [record for path in report.files for record in records_of(path)] == records


def test_an_output_that_exists_is_kept_unless_it_may_be_overwritten(tmp_path: Path) -> None:
    files = write(tmp_path, [([b"a"], "plain")])
    out = made(tmp_path / "out", b"precious")
    with raises(FileExistsAlreadyError, "file-exists"):
        rebuild_files(files, out)
    assert out.read_bytes() == b"precious"
    rebuild_files(files, out, overwrite=True)
    assert records_of(out) == [b"a"]


@pytest.mark.parametrize("there", ["file", "folder", "link"])
def test_parts_never_go_where_something_is(tmp_path: Path, there: str) -> None:
    files = write(tmp_path, [([b"a"], "plain")])
    out = tmp_path / "out"
    if there == "file":
        out.touch()
    elif there == "folder":
        out.mkdir()
    else:
        out.symlink_to(tmp_path / "nowhere")
    before = sorted(tmp_path.iterdir())
    for overwrite in (False, True):
        with raises(FileExistsAlreadyError, "file-exists", path=str(out)):
            rebuild_files(files, out, target_bytes=10, overwrite=overwrite)
    assert sorted(tmp_path.iterdir()) == before


def test_an_input_may_be_the_output_if_it_may_be_overwritten(tmp_path: Path) -> None:
    first, second = write(tmp_path, [(numbered(0, 3), "plain"), (numbered(3, 5), "plain")])
    with pytest.raises(FileExistsAlreadyError):
        rebuild_files([first, second], first)
    assert records_of(first) == numbered(0, 3)
    rebuild_files([first, second], first, overwrite=True)
    assert records_of(first) == numbered(0, 5)
    assert records_of(second) == numbered(3, 5)


def test_an_input_that_is_the_output_survives_damage_in_another(tmp_path: Path) -> None:
    first, second = write(tmp_path, [(numbered(0, 3), "plain"), (numbered(3, 5), "plain")])
    second.write_bytes(flipped(second.read_bytes(), 300))
    before = objects(tmp_path)
    with pytest.raises(CorruptFileError):
        rebuild_files([first, second], first, overwrite=True)
    assert objects(tmp_path) == before


@pytest.mark.parametrize("again", ["in-0", "./in-0", "../{}/in-0", "link"])
def test_rebuild_repeated_file_raises(tmp_path: Path, again: str) -> None:
    (path,) = write(tmp_path, [([b"a", b"b"], "members")])
    (tmp_path / "link").symlink_to(path)
    other = tmp_path / again.format(tmp_path.name)
    before = objects(tmp_path)
    for target in (None, 10):
        with raises(InvalidArgumentError, "duplicate-file", path=str(other)):
            rebuild_files([path, other], tmp_path / "out", target_bytes=target)
    with raises(InvalidArgumentError, "duplicate-file", path=str(other)):
        combine_files([path, other], path, tmp_path / "out")
    assert objects(tmp_path) == before


EXAMPLES = [example_of(x=1), example_of(x=2)]
SEQUENCES = [sequence_of({"x": 1}), sequence_of({"x": 1}, steps=[[1], [2]])]
PAYLOADS = {"example": EXAMPLES, "sequence_example": SEQUENCES, "opaque": [b"text", b"more"]}


@pytest.mark.parametrize("first", PAYLOADS)
@pytest.mark.parametrize("second", PAYLOADS)
def test_rebuild_mixed_payloads_raises(tmp_path: Path, first: str, second: str) -> None:
    contents = [PAYLOADS[first], [], [b""], PAYLOADS[first], PAYLOADS[second]]
    files = write(tmp_path, [(records, "plain") for records in contents])
    everything = [record for records in contents for record in records]
    before = objects(tmp_path)
    if first != second:
        with raises(MixedPayloadsError, "mixed-payloads", path=str(files[0])) as caught:
            rebuild_files(files, tmp_path / "out")
        assert (caught.value.other_path, caught.value.payloads) == (str(files[4]), (first, second))
        assert objects(tmp_path) == before
    rebuild_files(files, tmp_path / "out", allow_mixed=first != second)
    assert records_of(tmp_path / "out") == everything


@pytest.mark.parametrize("target", [None, 10])
def test_a_missing_folder_is_told_by_its_name(tmp_path: Path, target: int | None) -> None:
    files = write(tmp_path, [([b"a"], "plain")])
    with pytest.raises(FileNotFoundError, match="missing"):
        rebuild_files(files, tmp_path / "missing" / "out", target_bytes=target)
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.parametrize("target", [None, 10])
def test_a_missing_input_leaves_nothing_behind(tmp_path: Path, target: int | None) -> None:
    files = write(tmp_path, [([b"a"], "plain")])
    with pytest.raises(FileNotFoundError, match="missing"):
        rebuild_files(
            [*files, tmp_path / "missing"],
            tmp_path / "out",
            target_bytes=target,
            compression="none",
        )
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="the system does not tell what is open")
def test_parts_that_come_to_nothing_leave_no_file_open(tmp_path: Path) -> None:
    (path,) = write(tmp_path, [(numbered(0, 3), "plain")])
    path.write_bytes(flipped(path.read_bytes(), 500))
    opened = len(list(DESCRIPTORS.iterdir()))
    for _ in range(3):
        with pytest.raises(CorruptFileError):
            rebuild_files([path], tmp_path / "out", target_bytes=30)
    assert len(list(DESCRIPTORS.iterdir())) == opened


def test_nothing_to_rebuild_and_a_target_below_one_are_refused(tmp_path: Path) -> None:
    with raises(InvalidArgumentError, "missing-argument"):
        rebuild_files([], tmp_path / "out")
    files = write(tmp_path, [([b"a"], "plain")])
    with raises(InvalidArgumentError, "out-of-range"):
        rebuild_files(files, tmp_path / "out", target_bytes=0)


@pytest.mark.parametrize("target", [None, 60])
def test_progress_comes_to_the_end_of_each_file(tmp_path: Path, target: int | None) -> None:
    files = write(tmp_path, [(numbered(0, 3), "plain"), (numbered(3, 5), "members")])
    told: dict[Path, int] = {}
    rebuild_files(files, tmp_path / "out", target_bytes=target, progress=told.__setitem__)
    assert told == {path: path.stat().st_size for path in files}
