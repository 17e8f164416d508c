"""The audit: findings against Dagster's records, the asset, its check and its page."""

import shutil
from pathlib import Path

import dagster as dg
import pytest

from shardline.dagster.automation.audit import AUDIT, AUDIT_CHECK
from shardline.dagster.instance_records import InstanceRecords
from shardline.lineage.audit.root_audit import audit
from shardline.provenance.log_index import LogIndex
from tests.dagster.platforms import GROWING, QUIET, REBUILT, Platform, make_platform, table_rows


@pytest.fixture
def history(tmp_path: Path, instance: dg.DagsterInstance) -> Platform:
    notes = make_platform(tmp_path)
    notes.land("a", range(5))
    assert notes.run(instance).success
    return notes


def audited(
    notes: Platform, instance: dg.DagsterInstance, *, read_shards: bool = True
) -> tuple[dg.ExecuteInProcessResult, dg.AssetCheckEvaluation]:
    """Run the job as its schedule does. Returns the run and the result of the check."""
    config = {"ops": {AUDIT: {"config": {"read_shards": read_shards}}}}
    result = notes.defs.resolve_job_def("audit").execute_in_process(
        instance=instance, run_config={**QUIET, **config}, raise_on_error=False
    )
    (evaluation,) = result.get_asset_check_evaluations()
    assert evaluation.check_name == AUDIT_CHECK
    return result, evaluation


def test_untouched_history_passes_with_page(
    history: Platform, instance: dg.DagsterInstance
) -> None:
    result, evaluation = audited(history, instance)
    assert result.success
    assert evaluation.passed, evaluation.metadata
    (event,) = result.asset_materializations_for_node(AUDIT)
    assert event.metadata["shardline/report"].value == "/reports/audit.html"
    assert (
        event.metadata["shardline/errors"].value == event.metadata["shardline/warnings"].value == 0
    )
    page = Path(str(event.metadata["shardline/file"].value)).read_text()
    assert "notes/v1" in page
    assert "notes/single" in page


def test_changed_byte_fails_with_position_and_hint(
    history: Platform, instance: dg.DagsterInstance
) -> None:
    (path,) = (Path(file) for file in history.version().latest().files())
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    _, quick = audited(history, instance, read_shards=False)
    assert quick.passed, "only reading the shard tells"
    _, evaluation = audited(history, instance)
    assert not evaluation.passed
    assert evaluation.severity is dg.AssetCheckSeverity.ERROR
    (row,) = [
        row
        for row in table_rows(evaluation.metadata["shardline/findings"])
        if row["version"] == "notes/v1"
    ]
    assert path.name in row["subject"]
    assert row["hint"]


def test_removed_entry_fails(history: Platform, instance: dg.DagsterInstance) -> None:
    log = history.version("notes/single").log
    last = history.version("notes/single").state.number
    path = log.store.local_path(log.entry_name(last - 1))
    assert path is not None
    path.unlink()
    _, evaluation = audited(history, instance, read_shards=False)
    assert not evaluation.passed


def test_audit_agrees_with_dagster_records(notes: Platform, instance: dg.DagsterInstance) -> None:
    notes.land("monday", range(5))
    assert notes.run(instance).success
    notes.land("tuesday", range(5, 9))
    assert notes.run(instance, GROWING).success
    assert notes.run(instance, REBUILT).success
    root = notes.folder / "root"
    report = audit(LogIndex(root), recorded=InstanceRecords(instance))
    assert (report.findings, report.versions) == ((), ("notes/single", "notes/v1"))
    _cut_off(root / "notes/single/log", notes.version("notes/single").latest().entry)
    (finding,) = audit(LogIndex(root), recorded=InstanceRecords(instance)).findings
    assert (finding.kind, finding.subject) == ("event-without-snapshot", "snapshot 2")
    shutil.rmtree(root / "notes/single")
    (finding,) = audit(LogIndex(root), recorded=InstanceRecords(instance)).findings
    assert (finding.kind, finding.version) == ("event-without-snapshot", "notes/single")


def _cut_off(log: Path, first: int) -> None:
    for path in log.glob("*.json"):
        if path.stem.isdigit() and int(path.stem) >= first:
            path.unlink()
