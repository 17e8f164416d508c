"""Compare a root after a stress round with what its workers did.

The expected records of every snapshot are computed from the raw entries, read by the independent
reader of the golden data, and from the names of sources. Nothing of the compared code is used for
the expectation.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from shardline.errors import ShardlineError
from shardline.lineage.audit.root_audit import audit
from shardline.lineage.trace import RecordTracer
from shardline.lineage.trace_step import TraceStep
from shardline.operations.verify_version import verify_version
from shardline.provenance.log_index import LogIndex
from shardline.provenance.row_mapping import SourceRow
from shardline.readers.arrow import to_arrow
from shardline.readers.take import take
from tests.golden.reader import read_log
from tests.torture.stress_operations import (
    BASE,
    DATASET,
    PAIRED,
    RENAMED,
    SINGLE,
    WIDE,
    ids_of,
    person_of,
    row_of,
    square_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion

Json = dict[str, Any]
DERIVED = (WIDE, SINGLE, RENAMED, PAIRED)
CLOCK_FINDINGS = {"back-dated-entry", "future-entry"}
"""Findings about times: some workers have wrong clocks."""
TRACED = 5


def journal_lines(folder: Path) -> list[Json]:
    """Return all whole lines of all journals. A killed worker may leave half a line."""
    texts = [path.read_text() for path in sorted(folder.glob("journal-*.jsonl"))]
    return [json.loads(line) for text in texts for line in text.split("\n")[:-1]]


class Truth:
    """The expected ids of every snapshot of every version of a root."""

    def __init__(self, root: Path) -> None:
        self.entries = {name: _entries(root, name) for name in (BASE, *DERIVED)}
        self.expected: dict[str, dict[int, Counter[int]]] = {}
        for name, entries in self.entries.items():
            self.expected[name] = self._replay(entries)

    def _replay(self, entries: list[Json]) -> dict[int, Counter[int]]:
        snapshots: dict[int, Counter[int]] = {0: Counter()}
        for entry in entries:
            number = entry["snapshot"]
            if number in snapshots:
                continue
            before = snapshots[number - 1]
            operation = entry["operation"]
            if operation == "append":
                new = Counter(i for one in entry["sources"] for i in ids_of(one["path"]))
                snapshots[number] = before + new
            elif operation == "reject":
                undone = snapshots[entry["rejects"]]
                earlier = snapshots[entry["rejects"] - 1]
                snapshots[number] = before - (undone - earlier) + (earlier - undone)
            elif operation == "restore":
                snapshots[number] = snapshots[entry["restores"]]
            elif operation == "erase":
                person = f"<{entry['parameters']['request'].removeprefix('request ')}>"
                snapshots[number] = Counter(
                    {i: count for i, count in before.items() if person_of(i) != person}
                )
            elif "inputs" in entry:
                snapshots[number] = self.expected[BASE][entry["inputs"][0]["snapshot"]]
            else:
                assert operation == "rebuild", operation
                snapshots[number] = before
        return snapshots


def problems_of(folder: Path) -> Iterator[str]:
    """Yield everything that is wrong with a root on which no worker runs."""
    root = folder / "root"
    lines = journal_lines(folder)
    yield from (
        f"defect in {one['defect']}: {one['traceback']}" for one in lines if "defect" in one
    )
    truth = Truth(root)
    yield from _lost_commits(lines, truth)
    yield from _wrong_reads(lines, truth)
    catalog = LogIndex(root)
    for name in catalog.list_versions(DATASET):
        yield from _wrong_version(catalog.version(name), truth)
    report = audit(catalog, sources=False, workers=1)
    for finding in report.findings:
        if finding.severity == "error" and finding.kind not in CLOCK_FINDINGS:
            yield f"audit: {finding.kind} {finding.version} {finding.subject}: {finding.detail}"
    yield from _wrong_traces(catalog)


def _lost_commits(lines: list[Json], truth: Truth) -> Iterator[str]:
    """Yield commits reported to a worker that the log does not have."""
    for line in lines:
        if "digest" in line:
            entries = truth.entries[line.get("version", BASE)]
            index = line["entry"] - 1
            if len(entries) <= index or entries[index]["digest"] != line["digest"]:
                yield f"lost commit: {line}"


def _wrong_reads(lines: list[Json], truth: Truth) -> Iterator[str]:
    """Yield reads by workers that differ from the snapshot."""
    for line in lines:
        if "ids" in line:
            expected = truth.expected[line["version"]][line["snapshot"]]
            if Counter(line["ids"]) != expected:
                yield f"wrong read of {line['version']}@{line['snapshot']}"


def _wrong_version(version: StoredVersion, truth: Truth) -> Iterator[str]:
    """Yield faults of the log, and of readable snapshots."""
    if version.name not in truth.expected or not version.state.snapshot:
        return
    try:
        report = verify_version(version, workers=1)
    except ShardlineError as error:
        yield f"{version.name}: verify fails: {error.code} {error}"
        return
    if not report.ok:
        yield f"{version.name}: verify finds faults: {report}"
    state = version.state
    numbers = {state.snapshot, state.published}
    numbers |= {ref.snapshot for ref in (*state.tags.values(), *state.pins.values())}
    for number in sorted(number for number in numbers if number):
        yield from _wrong_snapshot(version.snapshot(number), truth)


def _wrong_snapshot(snapshot: StoredSnapshot, truth: Truth) -> Iterator[str]:
    expected = truth.expected[snapshot.version][snapshot.number]
    try:
        rows = to_arrow(snapshot).read_all().to_pylist()
    except ShardlineError as error:
        if not _erased_since(snapshot, truth):
            yield f"{snapshot}: cannot be read: {error.code} {error}"
        return
    found = Counter(row["id"] for row in rows)
    if found != expected:
        missing, extra = expected - found, found - expected
        yield f"{snapshot}: {missing.total()} records missing, {extra.total()} too many"
    for row in rows:
        wanted = row_of(row["id"])
        if row["person"] != wanted["person"] or row.get("text", row.get("note")) != wanted["text"]:
            yield f"{snapshot}: wrong record {row['id']}"
        if row.get("square", square_of(row["id"])) != square_of(row["id"]):
            yield f"{snapshot}: wrong feature of record {row['id']}"


def _erased_since(snapshot: StoredSnapshot, truth: Truth) -> bool:
    """Return True if an erase deleted shards of an older snapshot, which is unreadable since."""
    entries = truth.entries[snapshot.version]
    return any(
        entry["operation"] == "erase" and entry["number"] > snapshot.entry for entry in entries
    )


def _wrong_traces(catalog: LogIndex) -> Iterator[str]:
    """Yield records that do not trace back to the source row with their id."""
    tracer = RecordTracer(catalog)
    for name in catalog.list_versions(DATASET):
        version = catalog.version(name)
        if not version.exists or version.state.published is None:
            continue
        snapshot = version.published()
        numbers = range(0, snapshot.records, max(1, snapshot.records // TRACED))
        ids = take(snapshot, list(numbers), columns=["id"]).column("id").to_pylist()
        for number, record_id in zip(numbers, ids, strict=True):
            rows = list(_base_rows(tracer.trace_upstream(snapshot, number)))
            if rows != [record_id]:
                yield f"{snapshot}: record {number} has id {record_id}, its trace ends at {rows}"


def _base_rows(step: TraceStep) -> Iterator[int | str]:
    """Yield the ids of the rows of the base at which a trace ends."""
    for cause in step.upstream:
        if isinstance(cause, TraceStep):
            yield from _base_rows(cause)
        elif isinstance(cause, SourceRow):
            if cause.source.path is not None:
                yield ids_of(cause.source.path)[cause.row]
        else:
            yield cause.code


def names_found(root: Path, person: str) -> Iterator[str]:
    """Yield the files of the dataset that contain the name of a person, decompressed if needed."""
    for path in sorted((root / DATASET).rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            if person.encode() in text:
                yield str(path.relative_to(root))


def _entries(root: Path, name: str) -> list[Json]:
    dataset, version = name.split("/")
    log = root / dataset / version / "log"
    if not (log / f"{1:020}.json").exists():
        return []
    reader = read_log(root, dataset, version)
    return [json.loads((log / f"{n:020}.json").read_bytes()) for n in range(1, reader.number + 1)]
