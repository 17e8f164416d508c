"""Erase under torture: each version is before or done, and the next run completes it."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.log.model import RECEIPT
from shardline.operations.append import append
from shardline.operations.erase import erase
from shardline.schema.schema import Feature, Schema
from shardline.sidecars.receipt import parse_receipt
from tests.torture.calls import RENAMING, SYNCING
from tests.torture.derive_commands import BASE, DERIVED
from tests.torture.sweep import (
    Case,
    assert_error_names,
    assert_failed_sync_is_final,
    assert_success_is_synced,
    torture,
)
from tests.torture.test_derive import COMMANDS, EXTENDED, NUMBERS, held, prepare_overlays

if TYPE_CHECKING:
    from pathlib import Path

    from tests.torture.sweep import Outcome

pytestmark = pytest.mark.sweep(keep=6, of="torture")

ERASED = 4
LEFT = [number for number in NUMBERS if number != ERASED]
AFTER = {"double": [2 * number for number in LEFT], "x": LEFT}


def states(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of both versions."""
    return held(folder, BASE), held(folder, DERIVED)


def shards(folder: Path) -> set[str]:
    """Return the written shards that have receipts."""
    receipts = (folder / "root/digits/shards").glob("*.receipt")
    return {path.name.removesuffix(".receipt") for path in receipts}


def judge(folder: Path, outcome: Outcome) -> None:
    """Assert that the base is first, and that the next run reuses finished shards and completes."""
    before, done = ({"x": NUMBERS}, EXTENDED), ({"x": LEFT}, AFTER)
    found = states(folder)
    assert found in (before, (done[0], before[1]), done), f"neither as before nor done: {found}"
    if outcome.exit_code == 0 or outcome.point.after_the_last_call:
        assert found == done, "it was said to be done and is not"
    assert_error_names(outcome, folder)
    assert_success_is_synced(outcome)
    assert_failed_sync_is_final(outcome.calls)
    made = shards(folder)
    subprocess.run(outcome.case.command(folder), check=True)
    assert states(folder) == done
    versions = [Version(folder / "root", name) for name in (BASE, DERIVED)]
    listed = {name for one in versions for name in one.state.shard_history.names().to_pylist()}
    assert made <= listed, "a shard that was finished was written again"


def test_records_are_gone_from_a_version_or_not_and_the_next_run_ends_it(tmp_path: Path) -> None:
    case = Case(
        name="erase_records",
        command=lambda folder: [sys.executable, str(COMMANDS), "erase_records", str(folder)],
        judge=judge,
        prepare=prepare_overlays,
    )
    torture(case, tmp_path, sampled=1)


REFUSED = [{"x": 7, "y": "bad"}, {"x": 8, "y": "bad"}]


def prepare_refused(folder: Path) -> None:
    """Write a version with two quarantined rows, and a receipt that quotes their reasons."""
    source = folder / "a.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in [{"x": 1, "y": 0.5}, *REFUSED]))
    schema = Schema((Feature("x", "int64"), Feature("y", "float")))
    append(Version(folder / "root", BASE), source, schema=schema, max_quarantined=0.9)
    source.unlink()


def struck(folder: Path) -> tuple[list[int], bool]:
    """Return the rows of a quarantine file, and whether the receipt still quotes reasons."""
    (path,) = (folder / "root/digits/quarantine").glob("*.jsonl")
    rows = [json.loads(json.loads(line)["content"])["x"] for line in path.open()]
    name = f"digits/shards/{path.stem}.tfrecord{RECEIPT}"
    receipt = parse_receipt((folder / "root" / name).read_bytes())
    assert receipt is not None, "the receipt is torn"
    assert (receipt.refused, receipt.quarantine) == (((1, 2),), f"digits/quarantine/{path.name}")
    return rows, bool(receipt.reasons)


def judge_struck(folder: Path, outcome: Outcome) -> None:
    """Assert whole old or new files, the receipt first, so that the next run finds both."""
    found = struck(folder)
    assert found in (([7, 8], True), ([7, 8], False), ([8], False))
    if outcome.exit_code == 0 or outcome.point.after_the_last_call:
        assert found == ([8], False)
    assert_error_names(outcome, folder)
    assert_success_is_synced(outcome)
    assert_failed_sync_is_final(outcome.calls)
    if not outcome.injected:
        assert_replaced_durably(outcome, 2)
    left = [8]
    if sha256(outcome.point.label.encode()).digest()[0] % 2:
        erase(folder / "root", BASE.split("/")[0], key="x", values=[8])
        left = []
        assert 8 not in struck(folder)[0]
    assert outcome.again().returncode == 0
    assert struck(folder) == (left, False)


def assert_replaced_durably(outcome: Outcome, files: int) -> None:
    """Assert a sync of the temporary file before the rename, and of its folder after."""
    renames = [at for at, call in enumerate(outcome.calls) if call.name in RENAMING]
    assert len(renames) == files
    for at in renames:
        old, new = outcome.calls[at].paths[-2:]
        synced = [call.paths[0] for call in outcome.calls[:at] if call.name in SYNCING]
        assert old in synced
        behind = [call.paths[0] for call in outcome.calls[at:] if call.name in SYNCING]
        assert new.rpartition("/")[0] in behind


def test_strike_out_is_old_or_new_after_every_fault(tmp_path: Path) -> None:
    case = Case(
        name="strike_out",
        command=lambda folder: [sys.executable, str(COMMANDS), "strike_out", str(folder)],
        judge=judge_struck,
        prepare=prepare_refused,
    )
    torture(case, tmp_path, sampled=1)
