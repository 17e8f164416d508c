"""What loading our modules must not load: the libraries that take seconds each."""

import subprocess
import sys


def loaded_by(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return set(result.stdout.split())


def test_the_engine_loads_neither_tensorflow_nor_dagster_nor_great_expectations() -> None:
    modules = loaded_by("import shardline")
    assert "shardline" in modules
    assert modules.isdisjoint({"tensorflow", "dagster", "great_expectations"})


def test_nor_does_any_public_name_of_the_engine() -> None:
    modules = loaded_by("from shardline import *")
    assert "shardline.operations.verify_files" in modules
    assert modules.isdisjoint({"tensorflow", "dagster", "great_expectations"})


def test_nor_does_the_command_line() -> None:
    modules = loaded_by("import shardline.cli.app")
    assert modules.isdisjoint({"tensorflow", "dagster", "great_expectations"})


def test_the_definitions_load_neither_tensorflow_nor_great_expectations() -> None:
    modules = loaded_by("import dagster_project.definitions")
    assert {"shardline", "dagster"} <= modules
    assert modules.isdisjoint({"tensorflow", "great_expectations"})


def test_append_loads_no_other_operation_on_data() -> None:
    modules = loaded_by("import shardline.operations.append")
    packages = {"shardline.udf", "shardline.readers", "shardline.operations.erasure"}
    assert modules.isdisjoint({*packages, "pyarrow.parquet"})
