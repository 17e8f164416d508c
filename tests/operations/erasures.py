"""Datasets to erase from: records that carry a marker, and a search for it in every file."""

from __future__ import annotations

import gzip
import zlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.erase import erase
from shardline.operations.vacuum import vacuum
from shardline.storage import open_store
from tests.operations.extensions import SCHEMA, by_protobuf
from tests.operations.landings import json_lines
from tests.storage.faulty import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from shardline.api import Snapshot
    from shardline.operations.erase import EraseReport

DATASET = "digits"


class InterruptedStore(FaultyStore):
    """Lets someone else act once, just before an object of this name is created."""

    def __init__(self, root: Path, name: str, act: Callable[[], object]) -> None:
        super().__init__(open_store(root))
        self.left = [(name, act)]

    def create(self, name: str, data: bytes) -> None:
        if self.left and self.left[0][0] == name:
            self.left.pop()[1]()
        super().create(name, data)


class DyingStore(FaultyStore):
    """Dies just before an entry is committed: what was written stays."""

    class Died(BaseException):
        """The end of the process."""

    def __init__(self, root: Path) -> None:
        super().__init__(open_store(root))

    def create(self, name: str, data: bytes) -> None:
        if "/log/" in name:
            raise self.Died
        super().create(name, data)


def marker(number: int) -> str:
    """What stands in the record of an id and nowhere else."""
    return f"marker-{number:04}-zq"


def marked(first: int, last: int) -> list[dict[str, object]]:
    """Rows whose names are markers."""
    return [{"id": number, "name": marker(number)} for number in range(first, last)]


def landed(tmp_path: Path, *spans: tuple[int, int], **options: Any) -> Version:  # noqa: ANN401 - of append
    """A published version with a shard for each span of ids; the sources are gone."""
    version = Version(tmp_path / "root", "digits/v1")
    sources = [
        json_lines(tmp_path / f"{first}-{last}.jsonl", marked(first, last)) for first, last in spans
    ]
    append(version, sources, schema=SCHEMA, **options)
    for source in sources:
        source.unlink()
    assert check_version(version).ok
    return version


def opened(version: Version) -> Version:
    """The same version as it stands now."""
    return Version(version.store, version.name)


def erased(tmp_path: Path, *numbers: int, **options: Any) -> EraseReport:  # noqa: ANN401 - of erase
    """Erase the records of some ids, and check what is left."""
    report = erase(tmp_path / "root", DATASET, key="id", values=numbers, **options)
    for one in report.versions:
        if one.snapshot is not None:
            assert check_version(Version(tmp_path / "root", one.plan.version)).ok
    return report


def emptied(tmp_path: Path, dataset: str = DATASET) -> None:
    """Let vacuum delete all that it can."""
    vacuum(tmp_path / "root", dataset, retention=timedelta(0), dry_run=False)


def files_with(root: Path, text: str) -> list[str]:
    """The files below a root that hold a text, as they are or unpacked."""
    wanted = text.encode()
    return sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and any(wanted in data for data in _readings(path.read_bytes()))
    )


def _readings(data: bytes) -> Iterable[bytes]:
    yield data
    if data[:2] == b"\x1f\x8b":
        yield gzip.decompress(data)
    elif data[:1] == b"\x78":
        yield zlib.decompress(data)


def records(snapshot: Snapshot) -> list[tuple[tuple[str, object], ...]]:
    """Every record as TensorFlow hands it out and protobuf reads it."""
    return [tuple(record.items()) for record in by_protobuf(snapshot)]
