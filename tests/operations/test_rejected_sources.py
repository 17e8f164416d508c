"""Rejected sources and duplicates stay open until the log says that somebody dealt with them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from shardline import canonical_json as canonical
from shardline.api import Version
from shardline.errors import CorruptLogError, InvalidTypeError, SourceError
from shardline.lineage.audit.root_audit import audit
from shardline.lineage.trace import trace
from shardline.log.append_change import DismissSources, RejectSources
from shardline.log.changes import EntryDraft
from shardline.log.checkpoint import write_checkpoint
from shardline.log.model import Attestation, Source
from shardline.log.parameters import Dismissal, SourceProblem
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.rejected_sources import dismiss, open_sources
from shardline.operations.verify_log import verify_log
from shardline.operations.verify_version import verify_version
from shardline.provenance.log_index import LogIndex
from shardline.schema.schema import Feature, Schema
from tests.errors import raises
from tests.log.versions import append_of, facts_of, grow
from tests.storage.faulty import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardline.log.state import State

NAME = "digits/v1"
SCHEMA = Schema((Feature("id", "int64"),))
BAD = '{"id": "seven"}\n'


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return Version(tmp_path / "root", NAME)


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, *ids: int, text: str = "") -> Path:
        path = tmp_path / f"{name}.jsonl"
        path.write_text(text or "".join(f'{{"id": {one}}}\n' for one in ids))
        return path

    return write


def land(version: Version, *sources: Any, **options: Any) -> Any:  # noqa: ANN401 - any source
    return append(version, list(sources), schema=SCHEMA, skip_invalid=True, **options)


def rejected(version: Version) -> list[str]:
    """The names of the open rejected sources, without their suffix."""
    return [_stem(one.source) for one in open_sources(version).rejected]


def duplicates(version: Version) -> list[str]:
    return [_stem(one.source) for one in open_sources(version).duplicates]


def _stem(source: Source) -> str:
    return source.label.rpartition("/")[2].partition(".")[0]


def test_rejected_source_is_listed_with_its_reason(
    version: Version, put: Callable[..., Path]
) -> None:
    good, bad = put("good", 1, 2), put("bad", text=f'{{"id": 3}}\n{BAD}')
    land(version, good, bad)
    (listed,) = open_sources(version).rejected
    entry = version.log.entry(listed.entry)
    assert listed.source.path == str(bad)
    assert (listed.check, listed.time) == ("schema", entry.time)
    assert listed.reason == entry.parameters["set_aside"][0]["reason"]
    assert listed.to_dict()["entry"] == entry.number
    assert open_sources(version).duplicates == ()


def test_corrupt_file_is_listed_with_record_and_offset(version: Version, tmp_path: Path) -> None:
    path = tmp_path / "bad.tfrecord"
    source = Source(path=str(path), size=5, sha256="0" * 64)
    version.create(SCHEMA)
    problem = SourceProblem(
        source=source.key, check="integrity", reason="flipped", record=2, offset=90, detail="crc"
    )
    version.commit(RejectSources([source], [problem]))
    (listed,) = open_sources(version).rejected
    assert (listed.record, listed.offset, listed.check) == (2, 90, "integrity")


def test_retried_source_is_closed(version: Version, put: Callable[..., Path]) -> None:
    bad = put("bad", text=f'{{"id": 3}}\n{BAD}')
    land(version, put("good", 1), bad)
    land(version, bad)
    assert rejected(version) == ["bad"], "an append skips it, and says nothing new"
    land(version, bad, retry_rejected=True)
    assert rejected(version) == ["bad"], "the retry failed"
    land(version, bad, retry_rejected=True, max_quarantined=0.9)
    assert rejected(version) == []


def test_replaced_source_is_closed(version: Version, put: Callable[..., Path]) -> None:
    land(version, put("good", 1), put("bad", text=BAD), put("other", text=BAD * 2))
    assert rejected(version) == ["bad", "other"]
    land(version, put("bad", 3))
    assert rejected(version) == ["other"]


def test_path_is_listed_once_with_its_latest_rejection(
    version: Version, put: Callable[..., Path]
) -> None:
    land(version, put("good", 1), put("bad", text=BAD))
    land(version, put("bad", text=BAD * 2))
    (listed,) = open_sources(version).rejected
    assert listed.entry == version.state.number
    dismiss(version, [listed])
    assert rejected(version) == [], "the content before is gone"


def test_changed_source_is_open_until_it_replaces(
    version: Version, put: Callable[..., Path]
) -> None:
    land(version, put("a", 1))
    land(version, put("a", 2))
    (listed,) = open_sources(version).rejected
    assert listed.code == "changed-since-append"
    land(version, put("a", 2), on_changed="replace")
    assert rejected(version) == []


def test_dismissed_source_stays_out_and_closed(version: Version, put: Callable[..., Path]) -> None:
    bad = put("bad", text=BAD)
    land(version, put("good", 1), bad, put("worse", text=BAD * 2))
    report = dismiss(version, [bad], reason="sent by mistake")
    assert [_stem(one.source) for one in report.dismissed] == ["bad"]
    assert report.entry is not None
    assert report.entry.operation == "dismiss"
    assert not report.entry.changes_data
    assert rejected(Version(version.store, NAME)) == ["worse"]
    number = version.state.number
    assert land(version, bad).skipped[0].code == "rejected"
    assert (version.state.number, rejected(version)) == (number, ["worse"])
    land(version, bad, retry_rejected=True)
    assert rejected(version) == ["bad", "worse"], "somebody tried it again"


def test_duplicate_is_open_until_it_lands_or_is_dismissed(
    version: Version, put: Callable[..., Path]
) -> None:
    first, second, third = put("first", 1), put("second", 1), put("third", 1)
    land(version, first)
    land(version, second, third)
    listed = open_sources(version).duplicates[0]
    assert (listed.source.path, listed.first, listed.first_entry) == (str(second), str(first), 2)
    land(version, put("more", 7))
    assert duplicates(version) == ["second", "third"], "a later append does not settle it"
    land(version, second, on_duplicate="append")
    assert duplicates(version) == ["third"]
    dismiss(version, open_sources(version).duplicates)
    assert open_sources(version).all == ()
    assert land(version, third).duplicates, "it is skipped all the same"
    assert open_sources(version).all == ()


def test_sources_of_a_rejected_snapshot_are_open(
    version: Version, put: Callable[..., Path]
) -> None:
    land(version, put("a", 1))
    land(version, put("b", 2))
    failed = Attestation("expectations", False, content=version.latest().content, detail="too old")  # noqa: FBT003
    version.reject(2, [failed])
    (listed,) = open_sources(version).rejected
    assert (_stem(listed.source), listed.snapshot) == ("b", 2)
    assert (listed.check, listed.reason) == ("expectations", "too old")
    version.restore(2)
    assert rejected(version) == [], "it is in the latest snapshot again"
    version.restore(1)
    assert rejected(version) == ["b"]
    land(version, put("b", 2), retry_rejected=True)
    assert rejected(version) == []


def test_dismissed_source_of_a_rejected_snapshot_is_not_held(
    version: Version, put: Callable[..., Path]
) -> None:
    """The content must still be able to land under another path."""
    land(version, put("a", 1))
    land(version, put("b", 2))
    land(version, put("c", 3))
    version.reject(2, reason="by hand")
    assert dismiss(version, open_sources(version).all).dismissed
    report = land(version, put("again", 2), put("b", 4))
    assert ([_stem(one.source) for one in report.appended], report.skipped) == (["again", "b"], ())


def test_batch_is_dismissed_by_its_name(version: Version) -> None:
    rows = [{"id": 1}, {"id": "x"}]
    append(version, rows, batch="monday", schema=SCHEMA, skip_invalid=True)
    (listed,) = open_sources(version).rejected
    assert listed.to_dict() | {"path": None, "batch": "monday"} == listed.to_dict()
    assert dismiss(version, "monday").dismissed == (listed,)
    assert open_sources(version).all == ()


def test_dismissing_an_unknown_source_changes_nothing(
    version: Version, put: Callable[..., Path]
) -> None:
    good, bad = put("good", 1), put("bad", text=BAD)
    land(version, good, bad)
    number = version.state.number
    with raises(SourceError, "source-not-open", path=str(good), version=NAME):
        dismiss(version, [bad, good])
    with raises(InvalidTypeError, "invalid-type"):
        dismiss(version, [7])  # type: ignore[list-item]
    assert dismiss(version, []).entry is None
    assert (version.state.number, rejected(version)) == (number, ["bad"])
    dismiss(version, [bad])
    with raises(SourceError, "source-not-open"):
        dismiss(version, [bad])


def test_dismissal_leaves_a_later_rejection_open(
    version: Version, put: Callable[..., Path]
) -> None:
    """Somebody else retries the source while it is being dismissed."""
    bad = put("bad", text=BAD)
    land(version, put("good", 1), bad, put("other", text=BAD * 2))
    listed = open_sources(version).all
    land(Version(version.store, NAME), bad, retry_rejected=True)
    report = dismiss(version, listed)
    assert [_stem(one.source) for one in report.dismissed] == ["other"]
    assert rejected(version) == ["bad"]
    assert dismiss(version, listed).entry is None


def test_relative_path_is_found(
    version: Version, put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = put("bad", text=BAD)
    land(version, put("good", 1), bad)
    monkeypatch.chdir(bad.parent)
    assert len(dismiss(version, ["bad.jsonl"]).dismissed) == 1


@pytest.fixture
def history(version: Version, put: Callable[..., Path]) -> Version:
    """A log with all kinds of open, closed and dismissed sources."""
    land(version, put("a", 1), put("bad", text=BAD), put("fixed", text=BAD))
    land(version, put("same", 1), put("twice", 1))
    land(version, put("b", 2))
    version.reject(version.state.snapshot, reason="by hand")
    land(version, put("fixed", 3))
    dismiss(version, [put("bad", text=BAD), put("twice", 1)], reason="known")
    assert rejected(version) == ["b"]
    assert duplicates(version) == ["same"]
    return version


def state_at_checkpoint(version: Version) -> State:
    version.log.write_checkpoint(version.state)
    state = Version(version.store, NAME).state
    assert state.checkpoint == version.state.number
    return state


def test_checkpoint_knows_open_sources(history: Version) -> None:
    replayed = [state for state, _ in history.log.replay()][-1]
    assert facts_of(state_at_checkpoint(history)) == facts_of(replayed)
    assert not verify_log(history.log).problems
    loaded = Version(history.store, NAME)
    assert (rejected(loaded), duplicates(loaded)) == (["b"], ["same"])
    dismiss(loaded, open_sources(loaded).all)
    assert open_sources(Version(history.store, NAME)).all == ()
    loaded.log.write_checkpoint(loaded.state)
    assert not verify_log(history.log).problems


def test_checkpoint_of_an_earlier_release_is_replayed(
    history: Version, caplog: pytest.LogCaptureFixture
) -> None:
    state = history.state
    state.open_sources.put("0" * 64, 1)
    data = write_checkpoint(state).replace(b'"open_sources"', b'"0pen_sources"')
    start = 16 + int.from_bytes(data[8:16], "little")
    header = json.loads(data[16:start])
    header["tables"] = dict(sorted(header["tables"].items()))
    sealed = data[:16] + canonical.encode(header)
    sealed += hashlib.sha256(sealed).digest() + data[start + 32 :]
    history.log.store.replace(history.log.checkpoint_name(state.number), sealed)
    hint = json.dumps({"entry": state.number}).encode()
    history.log.store.replace(f"{history.log.folder}/newest-checkpoint.json", hint)
    loaded = Version(history.store, NAME)
    assert loaded.state.checkpoint == state.number
    assert (rejected(loaded), duplicates(loaded)) == (["b"], ["same"])
    assert not verify_log(history.log).problems
    assert not caplog.records, "it is not damaged"


def test_dismissal_passes_verify_audit_and_trace(history: Version) -> None:
    check_version(history)
    assert verify_version(history).ok
    assert audit(LogIndex(history.store)).ok
    assert trace(LogIndex(history.store), history.latest(), 0) is not None


@pytest.mark.parametrize(
    "payload", [None, {}, ["x"], [{"source": {"batch": "b"}}], [{"source": {}, "entry": 1}]]
)
def test_malformed_dismissal_is_a_corrupt_entry(history: Version, payload: object) -> None:
    class Forged:
        def rebase(self, state: State) -> EntryDraft:
            del state
            return EntryDraft(operation="dismiss", parameters={"dismissed": payload})

    with raises(CorruptLogError, "corrupt-log") as caught:
        history.commit(Forged())
    assert caught.value.kind == "false-entry"


def test_open_sources_read_only_the_entries_that_rejected_them(
    version: Version,
) -> None:
    """A long log with a few open sources costs a few reads, however many entries it has."""
    version.create(SCHEMA)
    bad = [Source(path=f"/in/{n}.jsonl", size=1, sha256=f"{n:064x}") for n in range(6)]
    changes: list[Any] = [append_of(f"shard {n}") for n in range(400)]
    for place, source in zip((5, 50, 100, 150, 200, 250), bad, strict=True):
        problem = SourceProblem(source=source.key, check="schema", reason="x")
        changes.insert(place, RejectSources([source], [problem]))
    changes.insert(300, DismissSources([Dismissal(bad[0], 7)]))
    grown = grow(version, changes)
    counting = FaultyStore(grown.store)
    opened = Version(counting, NAME)
    assert opened.state.checkpoint == 384
    before = counting.counts["read_many.objects"]
    assert [one.source for one in open_sources(opened).rejected] == bad[:0:-1]
    assert counting.counts["read_many.objects"] - before == 5
