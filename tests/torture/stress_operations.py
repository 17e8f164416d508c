"""A worker of the stress test: random operations on a shared root, with a journal of the outcomes.

A worker goes on until it is killed or the file `stop` exists in its folder. Its clock differs from
the real time by some days.

A journal line is written before and after each operation, so that a worker that is killed leaves
what it began. An error of Shardline is an outcome; any other exception is a defect.
"""

from __future__ import annotations

import json
import random
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardline.api import Version
from shardline.errors import ShardlineError
from shardline.execution.executor import ThreadExecutor
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.erase import erase
from shardline.operations.export import export
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.rebuild import rebuild
from shardline.operations.vacuum import vacuum
from shardline.schema.logical_types import Text
from shardline.schema.schema import Feature, Schema
from shardline.udf import record_udf

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.log.entry import Entry

Outcome = dict[str, Any]

DATASET = "rows"
BASE, WIDE, SINGLE, RENAMED, PAIRED = (
    f"{DATASET}/{version}" for version in ("v1", "wide", "single", "renamed", "paired")
)
LABELS = "labels/v1"
PERSONS = 40
SCHEMA = Schema(
    (
        Feature("id", "int64"),
        Feature("person", "bytes", meaning=Text()),
        Feature("text", "bytes", meaning=Text()),
    )
)
LABEL_SCHEMA = Schema((Feature("person", "bytes", meaning=Text()), Feature("group", "int64")))
RETENTION = timedelta(hours=1)


def person_of(record_id: int) -> str:
    """Return the person that a record is about. No name is part of another name."""
    return f"<person {record_id * 7 % PERSONS:03d}>"


def row_of(record_id: int) -> Outcome:
    """Return the row with an id: everything follows from the id."""
    text = f"{person_of(record_id)} says {record_id * record_id}"
    return {"id": record_id, "person": person_of(record_id), "text": text}


def ids_of(source: str) -> range:
    """Return the ids of a source from its name, `rows-FIRST-COUNT`."""
    _, first, count = Path(source).stem.split("-")
    return range(int(first), int(first) + int(count))


def square_of(record_id: int) -> int:
    """Return the value of the computed feature."""
    return record_id**2 % 1_000_003


@record_udf(Feature("square", "int64"), reads=["id"], code="1", processes=False)
def square(record: Outcome) -> Outcome:
    """Compute the feature of the extended version."""
    return {"square": square_of(record["id"])}


class Worker:
    """Random operations on the versions of a root, each written to the journal."""

    def __init__(self, folder: Path, number: int, seed: str, days: float) -> None:
        self.folder, self.number, self.days = folder, number, days
        self.random = random.Random(f"{seed} {number}")
        self.journal = (folder / f"journal-{seed}-{number}.jsonl").open("a", buffering=1)
        self.executor = ThreadExecutor(1, pause=0)
        self.steps = 0
        self.operations: list[tuple[int, Callable[[], Outcome]]] = [
            (30, self.append),
            (12, self.check),
            (8, self.rebuild),
            (6, self.rebuild_into),
            (10, self.extend),
            (5, self.migrate),
            (5, self.combine),
            (5, self.reject),
            (4, self.restore),
            (6, self.tag),
            (4, self.erase),
            (6, self.vacuum),
            (4, self.export),
            (15, self.read),
        ]

    def clock(self) -> datetime:
        """Return the time of this worker's clock."""
        return datetime.now(UTC) + timedelta(days=self.days)

    def version(self, name: str) -> Version:
        """Open a version with this worker's clock."""
        return Version(self.folder / "root", name, clock=self.clock)

    def run(self) -> None:
        """Run operations until the worker has to stop."""
        weights = [weight for weight, _ in self.operations]
        while not (self.folder / "stop").exists():
            (_, operation) = self.random.choices(self.operations, weights)[0]
            self.steps += 1
            self.write({"begin": operation.__name__})
            try:
                self.write({"done": operation.__name__, **operation()})
            except ShardlineError as error:
                self.write({"failed": operation.__name__, "code": error.code})
            except Exception:  # noqa: BLE001 - every other exception is a defect to report
                self.write({"defect": operation.__name__, "traceback": traceback.format_exc()})

    def write(self, line: Outcome) -> None:
        """Write a line of the journal."""
        self.journal.write(json.dumps({"step": self.steps, **line}) + "\n")

    def append(self) -> Outcome:
        """Append one to three sources: new ones, or ones that some worker appended before."""
        landing = self.folder / "landing"
        if self.random.random() < 0.2 and (known := sorted(landing.glob("rows-*.jsonl"))):
            sources: list[Path] = self.random.sample(known, min(2, len(known)))
        else:
            sources = [self._new_source(landing) for _ in range(self.random.randint(1, 3))]
        report = append(
            self.version(BASE), sources, schema=SCHEMA, target_bytes=2_000, executor=self.executor
        )
        if self.random.random() < 0.7:
            check_version(self.version(BASE), workers=1)
        return {"sources": [path.name for path in sources], **_entry(report.entry)}

    def _new_source(self, landing: Path) -> Path:
        first = self.random.randrange(10**6) * 100_000 + self.number * 1_000 + self.steps % 10 * 100
        count = self.random.randint(1, 60)
        path = landing / f"rows-{first}-{count}.jsonl"
        partial = path.with_suffix(f".{self.number}.partial")
        with partial.open("w") as file:
            file.writelines(json.dumps(row_of(number)) + "\n" for number in ids_of(path.name))
        partial.rename(path)
        return path

    def check(self) -> Outcome:
        """Check the latest snapshot of some version."""
        name = self.random.choice([BASE, BASE, WIDE, SINGLE, RENAMED, PAIRED])
        check_version(self.version(name), workers=1)
        return {"version": name}

    def rebuild(self) -> Outcome:
        """Merge the shards of the base."""
        report = rebuild(self.version(BASE), target_bytes=20_000, executor=self.executor)
        return _entry(report.entry)

    def rebuild_into(self) -> Outcome:
        """Rebuild the base into another version."""
        into = self.version(SINGLE)
        report = rebuild(self.version(BASE), into=into, compression="gzip", executor=self.executor)
        return {"version": SINGLE, **_entry(report.entry)}

    def extend(self) -> Outcome:
        """Extend the base by a feature, as overlays."""
        report = extend(self.version(BASE), square, self.version(WIDE), executor=self.executor)
        return {"version": WIDE, **_entry(report.entry)}

    def migrate(self) -> Outcome:
        """Rename a feature of the base."""
        steps = MigrationSpec(rename={"text": "note"})
        report = migrate(self.version(BASE), steps, self.version(RENAMED), executor=self.executor)
        return {"version": RENAMED, **_entry(report.entry)}

    def combine(self) -> Outcome:
        """Pair the base with the labels of persons."""
        report = combine(
            self.version(BASE),
            self.version(LABELS),
            self.version(PAIRED),
            on="person",
            executor=self.executor,
        )
        return {"version": PAIRED, **_entry(report.entry)}

    def reject(self) -> Outcome:
        """Reject the latest snapshot of the base."""
        version = self.version(BASE)
        return _entry(version.reject(version.latest().number, reason="stress"))

    def restore(self) -> Outcome:
        """Restore an older snapshot of the base."""
        version = self.version(BASE)
        latest = version.latest().number
        return _entry(version.restore(self.random.randint(max(1, latest - 5), latest)))

    def tag(self) -> Outcome:
        """Set or remove a tag on a recent snapshot."""
        version = self.version(self.random.choice([BASE, WIDE, PAIRED]))
        latest = version.latest().number
        number = self.random.choice([None, self.random.randint(max(1, latest - 3), latest)])
        tag = self.random.choice(["best", "model", "paper"])
        return {"version": version.name, **_entry(version.tag(tag, number))}

    def erase(self) -> Outcome:
        """Erase one person. The request names the person for the comparison afterwards."""
        person = person_of(self.random.randrange(PERSONS))
        self.write({"person": person})
        report = erase(
            self.folder / "root",
            DATASET,
            key="person",
            values=[person],
            request=f"request {person.strip('<>')}",
            executor=self.executor,
        )
        return {"person": person, "versions": [one.entry.number for one in report.versions]}

    def vacuum(self) -> Outcome:
        """Delete what nothing has needed for the retention time, by this worker's clock."""
        report = vacuum(
            self.folder / "root", DATASET, retention=RETENTION, dry_run=False, clock=self.clock
        )
        return {"deleted": len(report.files)}

    def export(self) -> Outcome:
        """Write the base to a file of this worker."""
        report = export(
            self.version(BASE),
            self.folder / f"export-{self.number}.tfrecord",
            executor=self.executor,
        )
        return {"snapshot": report.exported.snapshot}

    def read(self) -> Outcome:
        """Read the published snapshot of some version."""
        version = self.version(self.random.choice([BASE, WIDE, SINGLE, RENAMED, PAIRED]))
        snapshot = version.published()
        ids = snapshot.to_arrow(columns=["id"]).read_all()["id"].to_pylist()
        return {"version": version.name, "snapshot": snapshot.number, "ids": ids}


def _entry(entry: Entry | None) -> Outcome:
    return {} if entry is None else {"entry": entry.number, "digest": entry.digest}


def run_worker(folder: Path, number: int, seed: str, days: float) -> None:
    """Run a worker in this process."""
    Worker(folder, number, seed, days).run()
