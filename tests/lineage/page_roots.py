"""A root with a history that has something of everything, by log entries alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.api import Version
from shardline.log.changes import Derive
from shardline.log.model import Added, Attestation, Checks, Input
from shardline.schema.schema import Feature, Schema
from tests.log.versions import Clock, append, attest_shards, shard_results, write_shard

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shardline.canonical_json import Json

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"
BASE = Schema((Feature("image", "bytes"), Feature("label", "int64"), Feature("note", "bytes")))
EXTENDED = Schema(
    (Feature("bright", "float"), Feature("digit", "float"), Feature("image", "bytes"))
)


@dataclass(frozen=True)
class Histories:
    """A root, and the clock by which it was made."""

    root: Path
    clock: Clock

    def version(self, name: str, schema: Schema, checks: Checks = Checks()) -> Version:
        """A new version, made by a run with a hostile name."""
        made = Version(self.root, name, run=HOSTILE, code="c0ffee", clock=self.clock)
        made.create(schema, checks)
        return made

    def derived(
        self,
        name: str,
        schema: Schema,
        operation: str,
        bases: Sequence[Version],
        parameters: Json,
    ) -> Version:
        """A version with one published snapshot that is made of the newest of others."""
        version = self.version(name, schema)
        self.clock.move(minutes=7)
        label = f"{name} made"
        added = [Added(write_shard(version, label))]
        inputs = tuple(map(input_of, bases))
        version.commit(
            Derive(
                head=0,
                removed=[],
                added=added,
                operation=operation,
                parameters=parameters,
                inputs=inputs,
            )
        )
        attest_shards(version, label)
        return version


def input_of(base: Version) -> Input:
    """The newest snapshot of a version, as one that is made of it tells."""
    newest = base.latest()
    digest = base.log.entry(newest.entry).digest
    return Input(base.log.dataset, base.log.version, newest.number, digest)


def write_histories(root: Path) -> Histories:
    """`digits/v1` grew, with one batch rejected; `digits/v2` and `pairs/v1` are made of it.

    Its snapshots are: 1 good, 2 with a failed check, 3 the rejection, 4 good, 5 waiting.
    """
    histories = Histories(root, Clock())
    base = histories.version("digits/v1", BASE, Checks(("integrity", "schema"), ("counts",)))
    for label, passed in (("first", True), ("bad", False), ("third", True)):
        histories.clock.move(hours=5)
        append(base, label)
        content = base.latest().content
        attest_shards(base, label, checks=["schema"])
        counts = Attestation("counts", passed=True, content=content)
        if passed:
            base.attest([*shard_results([label], checks=["integrity"]), counts])
        else:
            names = shard_results([label])[0].shards
            failure = Attestation("integrity", False, names, detail=f"record 7: {HOSTILE}")  # noqa: FBT003
            base.reject(base.latest().number, [failure])
            colour = Attestation("colour", False, content=content, detail="too dark")  # noqa: FBT003
            base.attest([colour])
    base.tag("gold", 1)
    extend = {
        "mode": "rewrite",
        "drop": ["note", "label"],
        "fields": [
            {"by": "function 'seen'", "features": ["bright"], "reads": ["image"], "identity": None},
            {"by": "table t.csv", "features": ["digit"], "reads": ["label"], "identity": None},
        ],
    }
    histories.derived("digits/v2", EXTENDED, "extend", [base], extend)
    rule = {"on_collision": "prefix", "left_prefix": "a_", "right_prefix": "b_"}
    pairs = Schema(tuple(Feature(f"{side}_image", "bytes") for side in "ab"))
    histories.derived("pairs/v1", pairs, "combine", [base, base], {"rule": rule})
    histories.clock.move(hours=1)
    append(base, "waits for its checks")
    return histories
