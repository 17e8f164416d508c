"""One rule for sources: known content is a duplicate, other content of a known path has changed."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.errors import ChangedSourceError, InvalidArgumentError, SourceError
from shardline.execution.executor import ThreadExecutor
from shardline.hints import Option
from shardline.lineage.audit.root_audit import audit
from shardline.lineage.trace import trace, trace_descendants
from shardline.operations.append import append
from shardline.operations.erase import erase
from shardline.operations.landing_folder import LandingFolder, record_scan, scan_landing_folders
from shardline.operations.rebuild import rebuild
from shardline.operations.repair import repair
from shardline.operations.status import get_status
from shardline.provenance.log_index import LogIndex
from shardline.schema.schema import Feature, Schema
from tests.errors import raises

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from shardline.log.entry import Entry
    from shardline.operations.append import AppendReport

NAME = "digits/v1"
SCHEMA = Schema((Feature("id", "int64"),))


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return Version(tmp_path / "root", NAME)


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, *ids: int) -> Path:
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(f'{{"id": {one}}}\n' for one in ids))
        return path

    return write


def land(version: Version, *sources: Any, **options: Any) -> AppendReport:  # noqa: ANN401 - any
    return append(version, list(sources), schema=SCHEMA, **options)


def batch(version: Version, *ids: int, **options: Any) -> AppendReport:  # noqa: ANN401 - any
    rows = [{"id": one} for one in ids]
    return append(version, rows, batch="b", schema=SCHEMA, **options)


def ids(version: Version, snapshot: int | None = None) -> list[int]:
    version = Version(version.store, NAME)
    held = version.latest() if snapshot is None else version.snapshot(snapshot)
    found: list[int] = held.to_arrow(columns=["id"]).read_all()["id"].to_pylist()
    return found


def leaves(version: Version) -> list[tuple[str, int]]:
    """The file and the row of each record of the newest snapshot."""
    snapshot = Version(version.store, NAME).latest()
    found = []
    for record in range(snapshot.records):
        (leaf,) = trace(LogIndex(version.store), snapshot, record).to_list()[-1]["upstream"]
        source = leaf["source"]
        name = source.get("batch") or source["path"].rpartition("/")[2][:-6]
        found.append((name, leaf["row"]))
    return found


def problems(version: Version) -> list[str]:
    report = audit(LogIndex(version.store), sources=False)
    return [f"{one.kind}: {one.detail}" for one in report.findings if one.severity != "note"]


def notes(version: Version) -> list[Entry]:
    return [one for one in version.log.entries(1) if "duplicates" in one.parameters]


def test_duplicate_is_skipped_and_reported(version: Version, put: Callable[..., Path]) -> None:
    first, copy = put("a", 1, 2), put("b", 1, 2)
    land(version, first)
    for _ in range(2):
        report = land(version, copy)
        (skipped,) = report.duplicates
        assert (skipped.source.path, skipped.code, skipped.entry) == (str(copy), "duplicate", 2)
        assert skipped.first is not None
        assert skipped.first.path == str(first)
        assert (report.entry, report.rejected) == (None, ())
    assert ids(version) == [1, 2]
    (note,) = notes(version)
    assert [source.path for source in note.sources] == [str(copy)]
    (told,) = get_status(Version(version.store, NAME)).sources.duplicates
    assert (told.source.path, told.first, told.first_entry) == (str(copy), str(first), 2)
    assert land(version, copy, retry_rejected=True).duplicates
    land(version, copy, on_duplicate="append")
    assert ids(version) == [1, 2, 1, 2]
    assert get_status(version).sources.duplicates == ()
    assert land(version, first, copy).entry is None
    assert problems(version) == []


@pytest.mark.parametrize("content", [(), (7,)], ids=["empty", "single event"])
def test_same_content_in_one_call_lands_once(
    version: Version, put: Callable[..., Path], content: tuple[int, ...]
) -> None:
    other, *same = put("other", 0), *(put(name, *content) for name in "abc")
    report = land(version, other, *same)
    assert [one.source.path for one in report.appended] == [str(other), str(same[0])]
    assert [(one.first and one.first.path, one.entry) for one in report.duplicates] == [
        (str(same[0]), 2)
    ] * 2
    assert ids(version) == [0, *content]
    again = land(version, *same[1:], on_duplicate="append")
    assert len(again.appended) == 2
    assert ids(version) == [0, *content * 3]


def test_copied_folder_is_duplicate_and_grown_folder_changed(
    version: Version, tmp_path: Path
) -> None:
    folder = tmp_path / "monday"
    folder.mkdir()
    (folder / "1").write_bytes(b"one")
    schema = Schema((Feature("content", "bytes"),))
    append(version, folder, schema=schema)
    shutil.copytree(folder, tmp_path / "copy")
    assert len(append(version, tmp_path / "copy").duplicates) == 1
    (folder / "2").write_bytes(b"two")
    with raises(ChangedSourceError, "changed-since-append", path=str(folder)):
        append(version, folder)
    append(version, folder, on_changed="replace")
    assert version.latest().records == 2


def test_changed_source_is_rejected_with_options(
    version: Version, put: Callable[..., Path]
) -> None:
    path = put("a", 1, 2)
    land(version, path)
    put("a", 1, 2, 3)
    with raises(ChangedSourceError, "changed-since-append", path=str(path)) as caught:
        land(version, put("b", 9), path)
    assert caught.value.entry == 2
    assert caught.value.hint is not None
    options = [one for one in caught.value.hint.parts if isinstance(one, Option)]
    assert options == [Option("on_changed", "append"), Option("on_changed", "replace")]
    assert ids(version) == [1, 2], "nothing was committed"
    plan = land(version, path, dry_run=True)
    assert [one.code for one in plan.rejected] == ["changed-since-append"]


def test_changed_source_is_appended_beside_the_old(
    version: Version, put: Callable[..., Path]
) -> None:
    land(version, put("a", 1, 2))
    land(version, put("a", 1, 2, 3), on_changed="append")
    assert ids(version) == [1, 2, 1, 2, 3]
    assert land(version, put("a", 1, 2)).entry is None, "both contents are there"
    land(version, put("a", 4), on_changed="replace")
    assert ids(version) == [4]
    assert problems(version) == []


@pytest.mark.parametrize("rebuilt", [False, True])
def test_replace_exchanges_records_in_one_commit(
    version: Version,
    put: Callable[..., Path],
    rebuilt: bool,  # noqa: FBT001 - a parameter
) -> None:
    for name, content in (("a", (1, 2)), ("b", (3, 4)), ("c", (5, 6))):
        land(version, put(name, *content))
    if rebuilt:
        rebuild(version, snapshot="latest")
        land(version, put("d", 7))
    before = version.state.snapshot
    number = version.state.number
    report = land(version, put("b", 30, 40, 50), on_changed="replace")
    assert (version.state.number, version.state.snapshot) == (number + 1, before + 1)
    assert [(one.source.path, one.entry) for one in report.replaced] == [
        (str(put("b", 30, 40, 50)), 3)
    ]
    kept = [1, 2, 5, 6, 30, 40, 50, 7] if rebuilt else [1, 2, 30, 40, 50, 5, 6]
    assert ids(version) == kept
    assert ids(version, before)[:6] == [1, 2, 3, 4, 5, 6], "this is no erasure"
    wanted = [("a", 0), ("a", 1), ("c", 0), ("c", 1), ("b", 0), ("b", 1), ("b", 2), ("d", 0)]
    assert leaves(version) == (wanted if rebuilt else wanted[:2] + wanted[4:7] + wanted[2:4])
    old = Version(version.store, NAME).snapshot(before)
    places = trace_descendants(LogIndex(version.store), old, 2)
    assert "replaced" in {place.code for place in places}
    assert any(
        place.snapshot == before + 1 for place in trace_descendants(LogIndex(version.store), old, 0)
    )
    assert problems(version) == []
    assert land(version, put("b", 30, 40, 50), on_changed="replace").entry is None


def test_cut_shard_is_repaired_rebuilt_and_erased_from(
    version: Version, put: Callable[..., Path], tmp_path: Path
) -> None:
    for name, content in (("a", (1, 2)), ("b", (3, 4)), ("c", (5, 6))):
        land(version, put(name, *content))
    rebuild(version, snapshot="latest")
    land(version, put("b", 30), on_changed="replace")
    cut = version.latest().shards[0]
    file = tmp_path / "root" / version.shard_name(cut)
    file.chmod(0o600)
    file.write_bytes(b"\x00" * 10)
    (repaired,) = repair(version).repaired
    assert (repaired.method, repaired.lost_records) == ("inputs", 0)
    rebuild(version, snapshot="latest", target_bytes=60)
    land(version, put("c", 50), on_changed="replace")
    assert sorted(ids(version)) == [1, 2, 30, 50]
    assert sorted(leaves(version)) == [("a", 0), ("a", 1), ("b", 0), ("c", 0)]
    erase(tmp_path / "root", "digits", where="id == 1")
    assert sorted(ids(version)) == [2, 30, 50]
    assert sorted(leaves(version)) == [("a", 1), ("b", 0), ("c", 0)]
    assert problems(version) == []


def test_content_of_before_replaces_again(version: Version, put: Callable[..., Path]) -> None:
    land(version, put("a", 1))
    land(version, put("a", 2), on_changed="replace")
    with raises(ChangedSourceError, "changed-since-append"):
        land(version, put("a", 1))
    land(version, put("a", 1), on_changed="replace")
    assert ids(version) == [1]
    assert len(land(version, put("copy", 2)).appended) == 1, "the version no longer holds that"
    assert len(land(version, put("more", 1)).duplicates) == 1


def test_path_whose_content_never_landed_is_new(version: Version, put: Callable[..., Path]) -> None:
    land(version, put("other", 0))
    land(version, put("a", 1))
    version.reject(version.state.snapshot)
    land(version, put("a", 2))
    version.restore(1)
    land(version, put("a", 3))
    assert ids(version) == [0, 3]
    assert len(land(version, put("b", 2)).appended) == 1, "what was rolled back is no duplicate"


def test_rotated_files_keep_all_records(version: Version, put: Callable[..., Path]) -> None:
    """The content of a replaced path counts as gone, so that it lands under its new path."""
    land(version, put("log-1", 1))
    report = land(version, put("log-2", 1), put("log-1", 2), on_changed="replace")
    assert (sorted(ids(version)), report.duplicates) == ([1, 2], ())
    report = land(version, put("log-2", 2), put("log-1", 1), on_changed="replace")
    assert (sorted(ids(version)), len(report.replaced)) == ([1, 2], 2)
    assert problems(version) == []


def test_replacing_by_a_duplicate_needs_both_options(
    version: Version, put: Callable[..., Path]
) -> None:
    land(version, put("a", 1), put("b", 2))
    with raises(ChangedSourceError, "changed-since-append") as caught:
        land(version, put("a", 2), on_changed="replace")
    assert caught.value.hint is not None
    assert Option("on_duplicate", "append") in caught.value.hint.parts
    land(version, put("a", 2), on_changed="replace", on_duplicate="append")
    assert ids(version) == [2, 2]
    assert len(land(version, put("a", 3), on_changed="append").appended) == 1
    assert len(land(version, put("a", 2), on_changed="append").skipped) == 1


def test_batch_is_known_by_the_digest_of_its_rows(version: Version) -> None:
    batch(version, 1, 2)
    (told,) = version.log.entry(2).parameters["batches"]
    assert told["source"] == version.log.entry(2).sources[0].key
    assert batch(version, 1, 2).entry is None
    with raises(ChangedSourceError, "changed-since-append"):
        batch(version, 1, 3)
    batch(version, 1, 3, on_changed="append")
    assert ids(version) == [1, 2, 1, 3]
    assert batch(version, 1, 2).entry is None
    batch(version, 4, on_changed="replace")
    assert ids(version) == [4]
    batch(version, 1, 2, on_changed="replace")
    assert ids(version) == [1, 2]
    assert batch(version, 1, 2).entry is None
    assert problems(version) == []


def test_digest_of_batch_ignores_chunks_and_kind_of_rows(version: Version) -> None:
    batch(version, *range(3000), target_bytes=4000)
    rows = ({"id": one} for one in range(3000))
    assert append(version, rows, batch="b").entry is None
    with raises(SourceError, "duplicate-batch"):
        append(version, [_Batch(1), _Batch(2)], schema=SCHEMA)


class _Batch:
    """A source of which only the identity is asked."""

    size, shown = None, "batch"

    def __init__(self, number: int) -> None:
        self.number = number

    def identity(self, _progress: object = None) -> object:
        from shardline.log.model import Source  # noqa: PLC0415 - here alone

        return Source(batch="same")

    def chunks(self, *_: object) -> Iterable[object]:
        return ()


def test_changed_source_is_set_aside_once(version: Version, put: Callable[..., Path]) -> None:
    path = put("a", 1)
    land(version, path)
    put("a", 2)
    report = land(version, path, put("b", 3), skip_invalid=True)
    assert [one.code for one in report.rejected] == ["changed-since-append"]
    assert ids(version) == [1, 3]
    number = version.state.number
    land(version, path, skip_invalid=True)
    assert version.state.number == number, "the log tells it once"
    land(version, path, skip_invalid=True, on_changed="replace")
    assert ids(version) == [2, 3]


def test_landing_folder_asks_for_each_only_once(version: Version, tmp_path: Path) -> None:
    folder = LandingFolder(str(tmp_path / "in"), settle_seconds=0)
    (tmp_path / "in").mkdir()

    def write(name: str, one: int) -> None:
        (tmp_path / "in" / name).write_text(json.dumps({"id": one}))

    def run() -> int:
        found = scan_landing_folders(version, [folder])
        report = land(version, *(one.path for one in found.new), skip_invalid=True)
        told = (report.appended, report.skipped, report.rejected)
        record_scan(version, found, [one.source for group in told for one in group])
        return len(found.new)

    write("a.jsonl", 1)
    assert run() == 1
    write("copy.jsonl", 1)
    write("a.jsonl", 2)
    assert [run(), run()] == [2, 0]
    assert ids(version) == [1]
    assert len(get_status(version).sources.duplicates) == 1


class Racing(ThreadExecutor):
    """Lets someone else commit while an append has its shards ready."""

    def __init__(self, racer: Callable[[], object]) -> None:
        super().__init__(1)
        self.racer: Callable[[], object] | None = racer

    def run(self, work: Any, tasks: Any, progress: Any = None) -> Any:  # noqa: ANN401 - as Threads
        made = list(super().run(work, tasks, progress))
        if self.racer is not None and any(one.step == "appending" for one in tasks):
            racer, self.racer = self.racer, None
            racer()
        return made


def test_racing_copies_land_once(version: Version, put: Callable[..., Path]) -> None:
    land(version, put("z", 0))
    first, copy = put("a", 1), put("b", 1)
    other = Version(version.store, NAME)
    report = land(version, first, executor=Racing(lambda: land(other, copy)))
    assert [one.first and one.first.path for one in report.duplicates] == [str(copy)]
    assert ids(version) == [0, 1]


@pytest.mark.parametrize("on_changed", ["reject", "append", "replace"])
def test_racing_contents_of_a_path_have_one_outcome(
    version: Version, put: Callable[..., Path], on_changed: str
) -> None:
    land(version, put("z", 0))
    path = put("a", 1)
    other = Version(version.store, NAME)

    def race() -> None:
        """Someone whose copy of the path has other content is first."""
        data = path.read_bytes()
        put("a", 2)
        land(other, path)
        path.write_bytes(data)

    executor = Racing(race)
    if on_changed == "reject":
        with raises(ChangedSourceError, "changed-since-append"):
            land(version, path, executor=executor)
        assert ids(version) == [0, 2]
    else:
        land(version, path, executor=executor, on_changed=on_changed)
        assert ids(version) == ([0, 2, 1] if on_changed == "append" else [0, 1])
    assert problems(version) == []


def test_racing_replacements_leave_one(version: Version, put: Callable[..., Path]) -> None:
    for name in "abc":
        land(version, put(name, ord(name)))
    rebuild(version, snapshot="latest")
    path = put("b", 1)
    other = Version(version.store, NAME)

    def race() -> None:
        data = path.read_bytes()
        put("b", 2)
        land(other, path, on_changed="replace")
        path.write_bytes(data)
        rebuild(other, snapshot="latest")

    land(version, path, executor=Racing(race), on_changed="replace")
    assert sorted(ids(version)) == [1, ord("a"), ord("c")]
    assert problems(version) == []


def test_invalid_rule_is_refused(version: Version, put: Callable[..., Path]) -> None:
    for options in ({"on_changed": "skip"}, {"on_duplicate": "replace"}):
        with raises(InvalidArgumentError, "invalid-choice"):
            land(version, put("a", 1), **options)
