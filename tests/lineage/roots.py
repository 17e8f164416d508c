"""A root with a long and varied history, made once by the operations themselves."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from shardline import canonical_json as canonical
from shardline.api import Version
from shardline.lineage.audit.root_audit import audit
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.rebuild import rebuild
from shardline.operations.vacuum import vacuum
from shardline.provenance.log_index import LogIndex
from shardline.schema.schema import Feature
from shardline.udf import record_udf
from tests.operations.extensions import SCHEMA, double
from tests.operations.landings import json_lines, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from shardline.lineage.audit.audit_report import Finding

BASE, WIDE, WHOLE = "digits/v1", "digits/v2", "digits/whole"
RENAMED, SINGLE, PAIRS, PLANNED = "digits/v3", "digits/single", "pairs/v1", "pairs/plan"


@record_udf(Feature("half", "int64"), reads=["id"], code="1", deterministic=False)
def half(record: dict[str, Any]) -> dict[str, Any]:
    """Half of the id; said to be something else each time."""
    return {"half": record["id"] // 2}


@dataclass(frozen=True)
class Root:
    """Where the datasets lie, and the files that they came from."""

    folder: Path
    landing: Path

    def version(self, name: str = BASE) -> Version:
        """A version as it stands."""
        return Version(self.folder, name)

    def entry_file(self, number: int, name: str = BASE) -> Path:
        """Where an entry lies."""
        return self.folder / name / "log" / f"{number:020}.json"

    def shard_file(self, place: int = 0, name: str = BASE) -> Path:
        """Where a shard of the newest snapshot lies."""
        shard = self.version(name).latest().shards[place]
        return self.folder / self.version(name).shard_name(shard)

    def findings(self, *names: str, **options: Any) -> list[Finding]:  # noqa: ANN401 - as they come
        """What an audit finds."""
        found = audit(LogIndex(self.folder), names or None, **options).findings
        return list(found)

    def kinds(self, *names: str, **options: Any) -> set[tuple[str, str]]:  # noqa: ANN401 - as above
        """The kinds of what an audit finds, and in which versions."""
        return {(one.kind, one.version) for one in self.findings(*names, **options)}

    def copied(self, to: Path) -> Root:
        """The same datasets in another place; the sources stay where they are."""
        shutil.copytree(self.folder, to)
        return Root(to, self.landing)

    def state(self) -> dict[str, tuple[int, str]]:
        """Everything that lies in the root, with times and contents."""
        return {
            str(path.relative_to(self.folder)): (path.stat().st_mtime_ns, _content(path))
            for path in sorted(self.folder.rglob("*"))
        }


def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"


def make_root(folder: Path) -> Root:
    """Appends with refused rows, a rejection, a restore, and all that can be made of a version."""
    root = Root(folder / "root", folder / "landing")
    root.landing.mkdir(parents=True)
    base = root.version()
    _land(root, base, "a", rows(0, 20))
    _land(root, base, "b", [*rows(20, 38), {"id": "none"}, *rows(39, 40)])
    _land(root, base, "wrong", rows(100, 103), check=False)
    base.reject(base.latest().number, reason="not wanted")
    _land(root, base, "c", rows(40, 60))
    base.restore(base.latest().number - 1)
    base.restore(base.latest().number - 1)
    append(base, rows(60, 64), batch="four", schema=SCHEMA)
    assert check_version(base).ok
    for name in (WIDE, WHOLE, RENAMED, SINGLE, PAIRS, PLANNED):
        _derive(root, name)
    _land(root, base, "d", rows(70, 90))
    for name in (WIDE, WHOLE, RENAMED, SINGLE, PAIRS, PLANNED):
        _derive(root, name)
    rebuild(base, target_bytes=900)
    assert check_version(base).ok
    base.tag("good", base.latest().number)
    for name in (WHOLE, RENAMED, SINGLE):
        _derive(root, name)
    vacuum(root.folder, "digits", retention=timedelta(), dry_run=False)
    return root


def _land(
    root: Root, base: Version, label: str, content: Iterable[object], *, check: bool = True
) -> None:
    source = json_lines(root.landing / f"{label}.jsonl", content)
    append(base, source, schema=SCHEMA, max_quarantined=0.1, target_bytes=500)
    assert not check or check_version(base).ok


def _derive(root: Root, name: str) -> None:
    base, into = root.version(), root.version(name)
    steps = MigrationSpec(rename={"id": "number"}, cast={"id": "float"})
    doing: dict[str, Callable[[], object]] = {
        WIDE: lambda: extend(base, double, into),
        WHOLE: lambda: extend(base, [double, half], into, mode="rewrite", drop=["name"]),
        RENAMED: lambda: migrate(base, steps, into, compression="gzip"),
        SINGLE: lambda: rebuild(base, into=into),
        PAIRS: lambda: combine(
            base, root.version(SINGLE), into, on="id", on_collision="keep-left", target_bytes=2000
        ),
        PLANNED: lambda: combine(
            base,
            base,
            into,
            unordered=True,
            mode="virtual",
            on_collision="prefix",
            right_prefix="b_",
        ),
    }
    doing[name]()
    assert check_version(into).ok


def forge(path: Path, change: Callable[[dict[str, Any]], object]) -> str:
    """Change an entry and seal it again, as who knows the format would; gives its digest."""
    told = json.loads(path.read_bytes())
    del told["digest"]
    change(told)
    told["digest"] = canonical.sha256(told)
    path.write_bytes(canonical.encode(told) + b"\n")
    return str(told["digest"])


def rechain(folder: Path, first: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Change an entry, and chain all that come behind it anew."""
    digest = None
    for path in sorted(folder.glob("*.json")):
        if path.stem.isdigit() and int(path.stem) >= first:
            before = digest

            def chained(told: dict[str, Any], before: str | None = before) -> None:
                if before is not None:
                    told["previous"] = before
                else:
                    change(told)

            digest = forge(path, chained)
