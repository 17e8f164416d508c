"""An audit of what real runs made: the logs and Dagster's own record agree."""

import shutil
from pathlib import Path

import dagster as dg

from shardline.dagster.instance_records import InstanceRecords
from shardline.lineage.audit.root_audit import audit
from shardline.provenance.log_index import LogIndex
from tests.dagster.platforms import GROWING, REBUILT, Platform


def test_what_runs_made_agrees_with_what_dagster_recorded(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("monday", range(5))
    assert notes.run(instance).success
    notes.land("tuesday", range(5, 9))
    assert notes.run(instance, GROWING).success
    assert notes.run(instance, REBUILT).success
    root = notes.folder / "root"
    report = audit(LogIndex(root), recorded=InstanceRecords(instance))
    assert (report.findings, report.versions) == ((), ("notes/single", "notes/v1"))
    _cut_off(root / "notes/single/log", notes.version("notes/single").latest().entry)
    (found,) = audit(LogIndex(root), recorded=InstanceRecords(instance)).findings
    assert (found.kind, found.subject) == ("event-without-snapshot", "snapshot 2")
    shutil.rmtree(root / "notes/single")
    (gone,) = audit(LogIndex(root), recorded=InstanceRecords(instance)).findings
    assert (gone.kind, gone.version) == ("event-without-snapshot", "notes/single")


def _cut_off(log: Path, first: int) -> None:
    for path in log.glob("*.json"):
        if path.stem.isdigit() and int(path.stem) >= first:
            path.unlink()
