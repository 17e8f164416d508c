"""The code location as Dagster sees it: it loads, runs, and stops at a damaged file."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from assets import DemoFolder, loose_files
from assets.loose_files import FILES, RECORDS_PER_FILE
from checks import integrity
from dagster_project.definitions import defs


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def folder(tmp_path: Path) -> DemoFolder:
    return DemoFolder(path=str(tmp_path))


def materialize(
    folder: DemoFolder, instance: dg.DagsterInstance, selection: dg.AssetSelection | None = None
) -> dg.ExecuteInProcessResult:
    return dg.materialize(
        [loose_files, integrity],
        instance=instance,
        resources={"demo_folder": folder},
        selection=selection,
        raise_on_error=False,
    )


def only_check(result: dg.ExecuteInProcessResult) -> dg.AssetCheckEvaluation:
    (evaluation,) = result.get_asset_check_evaluations()
    return evaluation


def test_the_definitions_load() -> None:
    dg.Definitions.validate_loadable(defs)


def test_the_demo_job_holds_the_asset_and_its_check() -> None:
    steps = {node.name for node in defs.resolve_job_def("demo").nodes}
    assert steps == {"loose_files", "loose_files_integrity"}


def test_a_materialization_writes_the_files_and_passes_its_check(
    folder: DemoFolder, instance: dg.DagsterInstance
) -> None:
    result = materialize(folder, instance)
    assert result.success
    assert all(path.is_file() for path in folder.loose_files)
    evaluation = only_check(result)
    assert evaluation.passed
    assert evaluation.blocking
    assert evaluation.metadata["files"].value == len(FILES)
    assert evaluation.metadata["records"].value == len(FILES) * RECORDS_PER_FILE
    assert evaluation.metadata["faults"].value == 0


def test_a_materialization_tells_how_much_it_wrote(
    folder: DemoFolder, instance: dg.DagsterInstance
) -> None:
    (event,) = materialize(folder, instance).asset_materializations_for_node("loose_files")
    assert event.metadata["dagster/row_count"].value == len(FILES) * RECORDS_PER_FILE
    written = sum(path.stat().st_size for path in folder.loose_files)
    assert event.metadata["bytes"].value == written


def test_the_same_content_has_the_same_data_version(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    versions = set()
    for name in ("one", "two"):
        result = materialize(DemoFolder(path=str(tmp_path / name)), instance)
        (event,) = result.asset_materializations_for_node("loose_files")
        versions.add((event.tags or {})["dagster/data_version"])
    assert len(versions) == 1


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_fails_the_check(
    name: str, folder: DemoFolder, instance: dg.DagsterInstance
) -> None:
    assert materialize(folder, instance).success
    (path,) = (path for path in folder.loose_files if path.name == name)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    result = materialize(folder, instance, dg.AssetSelection.checks(integrity))

    assert not result.success
    evaluation = only_check(result)
    assert not evaluation.passed
    assert evaluation.metadata["faults"].value == 1
    assert f"1 of {len(FILES)} files" in (evaluation.description or "")


def test_a_missing_file_fails_the_check_with_a_result(
    folder: DemoFolder, instance: dg.DagsterInstance
) -> None:
    assert materialize(folder, instance).success
    missing = folder.loose_files[-1]
    missing.unlink()

    result = materialize(folder, instance, dg.AssetSelection.checks(integrity))

    assert not result.success
    evaluation = only_check(result)
    assert not evaluation.passed
    assert missing.name in (evaluation.description or "")
