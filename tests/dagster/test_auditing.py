"""The audit as an asset: a page of the history, and a check that turns red on a finding."""

from pathlib import Path

import dagster as dg
import pytest

from shardline.dagster.automation.audit import AUDIT, AUDIT_CHECK
from tests.dagster.platforms import QUIET, Platform, make_platform, table_rows


@pytest.fixture
def notes(tmp_path: Path, instance: dg.DagsterInstance) -> Platform:
    notes = make_platform(tmp_path)
    notes.land("a", range(5))
    assert notes.run(instance).success
    return notes


def audited(
    notes: Platform, instance: dg.DagsterInstance, *, read_shards: bool = True
) -> tuple[dg.ExecuteInProcessResult, dg.AssetCheckEvaluation]:
    """Run the job as its schedule does, and give what its check said."""
    config = {"ops": {AUDIT: {"config": {"read_shards": read_shards}}}}
    result = notes.defs.resolve_job_def("audit").execute_in_process(
        instance=instance, run_config={**QUIET, **config}, raise_on_error=False
    )
    (told,) = result.get_asset_check_evaluations()
    assert told.check_name == AUDIT_CHECK
    return result, told


def test_an_untouched_history_is_green_and_has_a_page(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    result, told = audited(notes, instance)
    assert result.success
    assert told.passed, told.metadata
    (event,) = result.asset_materializations_for_node(AUDIT)
    assert event.metadata["shardline/report"].value == "/reports/audit.html"
    assert (
        event.metadata["shardline/errors"].value == event.metadata["shardline/warnings"].value == 0
    )
    page = Path(str(event.metadata["shardline/file"].value)).read_text()
    assert "notes/v1" in page
    assert "notes/single" in page


def test_a_byte_that_was_changed_turns_the_check_red_with_the_place_and_what_to_do(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    (path,) = (Path(file) for file in notes.version().latest().files())
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    _, quick = audited(notes, instance, read_shards=False)
    assert quick.passed, "only reading the shard tells"
    _, told = audited(notes, instance)
    assert not told.passed
    assert told.severity is dg.AssetCheckSeverity.ERROR
    (row,) = [
        row
        for row in table_rows(told.metadata["shardline/findings"])
        if row["version"] == "notes/v1"
    ]
    assert path.name in row["subject"]
    assert row["hint"]


def test_an_entry_that_was_taken_away_turns_it_red(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    log = notes.version("notes/single").log
    last = notes.version("notes/single").state.number
    path = log.store.local_path(log.entry_name(last - 1))
    assert path is not None
    path.unlink()
    _, told = audited(notes, instance, read_shards=False)
    assert not told.passed
