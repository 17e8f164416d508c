"""Write the golden datasets of this release: `python -m tests.golden.make FOLDER`.

Golden data is never rewritten: it stands for what people have on their disks. A release that
writes another format adds a folder of its own beside this one, and the tests read all of them.
Clock, ids and host are fixed, so that the same release writes the same bytes again.
"""

from __future__ import annotations

import base64
import hashlib
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import shardline
from shardline.api import Version
from shardline.log.append_change import Append
from shardline.log.changes import AddTombstones, Derive, Replace
from shardline.log.model import Added, Attestation, Base, Checks, CommitInfo, Input, Shard, Source
from shardline.log.retention import find_unreferenced
from shardline.schema.logical_types import Array, Category, Embedding, Image, Text
from shardline.schema.schema import Feature, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shardline.log.state import State

BEGIN = datetime(2025, 3, 1, 12, tzinfo=UTC)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
PETS = Schema(
    (
        Feature("größe", "float", required=False, nan=True, doc="in Metern"),
        Feature("id", "int64"),
        Feature("image", "bytes", meaning=Image("png")),
        Feature("label", "int64", meaning=Category(("cat", "dog", "eel"))),
        Feature("name", "bytes", meaning=Text()),
        Feature("raw", "bytes", meaning=Array("int16", (2, 2))),
        Feature("seen", "bytes", (None,), required=False, meaning=Category(("straße", "home"))),
        Feature("vector", "float", (3,), meaning=Embedding()),
    ),
    doc="pets, and an eel",
)
SCORES = Schema((Feature("score", "float", doc="of v1's records"),))
WALKS = Schema(
    (
        Feature("walker", "bytes", meaning=Text()),
        Feature("place", "float", (2,), sequence=True),
    ),
    "sequence_example",
)


def clock(begin: datetime) -> Iterator[datetime]:
    """An hour and a bit later each time."""
    while True:
        yield begin
        begin += timedelta(hours=1, seconds=1, microseconds=1)


class Story:
    """One version as it comes to be."""

    def __init__(self, root: Path, name: str, begin: datetime = BEGIN) -> None:
        times = clock(begin)
        self.root = root
        self.version = Version(root, name, clock=lambda: next(times))
        self.by()
        (root / self.version.log.dataset / "shards").mkdir(parents=True, exist_ok=True)

    def by(self, run: str = "", code: str = "") -> None:
        """Say who makes the entries from now on."""
        self.version._commit_info = CommitInfo("0.1.0", "golden", run, code)

    def shard(
        self,
        label: str,
        table: Mapping[str, Any],
        source: Source | None = None,
        compression: str = "none",
        base: Base | None = None,
    ) -> Shard:
        """Write a shard. What follows a dot in its label is the attempt."""
        called, dot, attempt = label.partition(".")
        stem = hashlib.sha256(called.encode()).hexdigest()[:32]
        name = f"{self.version.log.version}.{stem}{dot}{attempt}.tfrecord"
        path = self.root / self.version.shard_name(name)
        records = shardline.files.write_examples(path, table, compression=compression)
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        key = None if source is None else source.key
        return Shard(name, records, len(data), digest, compression, key, base)

    def append(
        self, shards: list[Shard], sources: list[Source], *, retry_rejected: bool = False
    ) -> None:
        """Commit new shards."""
        self.version.commit(Append(shards=shards, sources=sources, retry_rejected=retry_rejected))

    def vacuum(self, *more: str) -> None:
        """Announce what nothing needs, and `more`; then delete it."""

        def choose(state: State) -> list[str]:
            return sorted({*find_unreferenced(state, state.time, timedelta(0)), *more})

        entry = self.version.commit(AddTombstones(choose, {"keep_seconds": 0}))
        for name in entry.tombstones if entry else ():
            (self.root / self.version.shard_name(name)).unlink(missing_ok=True)

    def passed(self, *shards: Shard) -> None:
        """Attest that shards passed their checks."""
        names = tuple(shard.name for shard in shards)
        self.version.attest(
            [Attestation(check, passed=True, shards=names) for check in ("integrity", "schema")]
        )


def pets(first: int, count: int) -> dict[str, list[Any]]:
    """Records with the ids from `first` on."""
    ids = range(first, first + count)
    sizes = [None, 0.5, float("nan")]
    return {
        "größe": [sizes[n % 3] for n in ids],
        "id": list(ids),
        "image": [PNG] * count,
        "label": [n % 3 for n in ids],
        "name": [f"pet {n} ✓" for n in ids],
        "raw": [bytes([n, 0, 1, 0, 2, 0, 3, 0]) for n in ids],
        "seen": [[b"home", "straße".encode()][: n % 3] for n in ids],
        "vector": [[n / 4, 0.0, -1.0] for n in ids],
    }


def landed(number: int) -> Source:
    """A file that arrived."""
    digest = hashlib.sha256(b"%d" % number).hexdigest()
    return Source(path=f"landing/pets-{number}.jsonl", size=100 + number, sha256=digest)


def tell_of_pets(root: Path) -> Shard:
    """All kinds of entries, with a checkpoint in the middle; gives a shard to lay others beside."""
    story, monday, tuesday = Story(root, "pets/v1"), Source(batch="monday"), Source(batch="tuesday")
    version = story.version
    version.create(PETS)
    a = story.shard("a", pets(0, 3), landed(0))
    story.append([a], [landed(0)])
    story.passed(a)
    story.by("run-7", "3f2a91c")
    b = story.shard("b", pets(3, 3), landed(1), "gzip")
    c = story.shard("c", pets(6, 3), landed(2), "zlib")
    story.append([b, c], [landed(1), landed(2)])
    story.passed(b, c)
    story.by()
    version.tag("first", 1)
    d = story.shard("d", pets(9, 1), monday)
    story.append([d], [monday])
    story.passed(d)
    e = story.shard("e", pets(10, 2), tuesday)
    story.append([e], [tuesday])
    story.passed(e)
    third = version.snapshot(3)
    few = Attestation("volume", passed=False, content=third.content, detail="one record: too few")
    version.reject(3, [few], reason="a check failed")
    whole = story.shard("b and c", pets(3, 6))
    version.commit(Replace(removed=[b.name, c.name], added=[whole], parameters={"shards": 1}))
    f = story.shard("f", pets(12, 2), landed(3), "gzip")
    story.append([f], [landed(3), landed(4)])
    story.passed(whole)
    version.attest([Attestation("integrity", passed=False, shards=(f.name,), detail="lost")])
    story.passed(f)
    version.pin("training-12", 6, "the model in use")
    version.require(Checks(("integrity", "schema"), ("drift",)))
    g = story.shard("g", pets(14, 1), landed(5))
    story.append([g], [landed(5)])
    story.passed(g)
    version.attest([Attestation("drift", passed=True, content=version.latest().content)])
    version.log.write_checkpoint(version.state)
    version.restore(5)
    version.attest([Attestation("drift", passed=True, content=version.latest().content)])
    version.tag("first", None)
    version.tag("best", 2)
    version.tag("best", 6)
    version.restore(3)
    version.restore(9)
    version.reject(5, reason="not wanted")
    again = story.shard("d.1", pets(9, 1), monday)
    story.append([again], [monday], retry_rejected=True)
    story.passed(again)
    version.attest([Attestation("drift", passed=False, content=version.latest().content)])
    story.vacuum()
    return a


def tell_of_scores(root: Path, base: Shard) -> None:
    """A version that lies beside another, and whose log begins with a vacuum."""
    pets_v1 = Version(root, "pets/v1")
    origin = pets_v1.log.entry(pets_v1.snapshot(1).entry)
    story = Story(root, "pets/v2", BEGIN + timedelta(days=9))
    story.vacuum(f"v2.{'0' * 32}.tfrecord")
    story.version.create(SCORES, Checks((), ()))
    overlay = story.shard(
        "scores of a", {"score": [0.25, 0.5, 0.75]}, base=Base(base.name, base.sha256)
    )
    story.version.commit(
        Derive(
            head=0,
            removed=[],
            added=[Added(overlay)],
            operation="extend",
            parameters={"fields": ["score"]},
            inputs=(Input("pets", "v1", 1, origin.digest),),
        )
    )


def tell_of_walks(root: Path) -> None:
    """SequenceExamples, and a snapshot that no check has looked at."""
    story = Story(root, "walks/v1")
    story.version.create(WALKS)
    table = {"walker": ["ann", "bo"], "place": [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]]}
    story.append([story.shard("walks", table, landed(0))], [landed(0)])


def main(root: Path) -> None:
    """Write everything below a folder that is not there yet."""
    root.mkdir()
    ids = random.Random(1)
    with patch("shardline.log.log.secrets.token_hex", lambda size: ids.randbytes(size).hex()):
        a = tell_of_pets(root)
        tell_of_scores(root, a)
        tell_of_walks(root)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
