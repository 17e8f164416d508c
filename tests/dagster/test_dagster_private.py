"""The private names of Dagster: all in one module, each there, and each as we need it."""

import ast
import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from starlette.applications import Starlette

from shardline.dagster.instance_records import CheckState, get_check_results, list_blocking_checks
from shardline.dagster.private import (
    make_web_app,
    open_workspace,
    optimize_for_webserver,
    run_code_servers,
)

ROOT = Path(__file__).parents[2]
PACKAGES = ("assets", "checks", "dagster_project", "shardline", "tests", "benchmarks")
LOCATION = """
import dagster as dg

@dg.asset
def number() -> None: ...

defs = dg.Definitions(assets=[number])
"""


PRIVATE = re.compile(
    r"^\s*(?:from|import)\s+(?:dagster(?:\.\w+)*\._|"
    r"dagster_(?:webserver|graphql|shared|pipes)\b)",
    re.MULTILINE,
)


def test_private_names_are_in_one_module() -> None:
    private = ROOT / "shardline" / "dagster" / "private.py"
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert [path for path in paths if PRIVATE.search(path.read_text())] == [private]


def test_no_private_attribute_is_used() -> None:
    """The integration reads private attributes of its own objects only, and of named tuples.

    Great Expectations, whose private names are in expectations/engine.py, does not count.
    """
    ours = {"self", "cls"}
    found = []
    folder = ROOT / "shardline" / "dagster"
    for path in set(folder.rglob("*.py")) - {folder / "expectations" / "engine.py"}:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                if owner not in ours and node.attr != "_replace":
                    found.append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
    assert found == []


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    """An instance on disk: an instance in memory has no code servers."""
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("home"))) as instance:
        yield instance


def workspace_file(folder: Path, load_from: list[Any]) -> Path:
    path = folder / "workspace.yaml"
    path.write_text(json.dumps({"load_from": load_from}))
    return path


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    yield


async def get(app: Starlette, path: str) -> tuple[int, bytes]:
    """The status and the body of the answer to a GET."""
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:  # noqa: ANN401 - as ASGI has it
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


def test_code_server_serves_location_to_web_app(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    (tmp_path / "location.py").write_text(LOCATION)
    file = {"python_file": {"relative_path": "location.py", "location_name": "here"}}
    with run_code_servers(instance, workspace_file(tmp_path, [file]), "warning") as specs:
        (spec,) = specs
        assert spec["grpc_server"]["location_name"] == "here"
        served = tmp_path / "served"
        served.mkdir()
        with open_workspace(
            instance, workspace_file(served, list(specs)), read_only=True
        ) as context:
            request = context.create_request_context()
            assert request.read_only
            assert [code_location.name for code_location in request.code_locations] == ["here"]
            assert not request.code_location_errors()
            app = make_web_app(context, 2000, lifespan)
            status, body = asyncio.run(get(app, "/server_info"))
    assert status == 200
    assert json.loads(body)["dagster_version"] == dg.__version__


def test_workspace_may_be_written(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    with open_workspace(instance, workspace_file(tmp_path, []), read_only=False) as context:
        assert not context.create_request_context().read_only


def test_optimized_instance_still_works(instance: dg.DagsterInstance) -> None:
    optimize_for_webserver(instance)
    assert instance.get_run_by_id("none") is None


@dg.asset
def counted() -> None: ...


@dg.asset_check(asset=counted, blocking=True)
def even(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed="odd" not in context.run.tags)


def test_check_counts_for_latest_materialization_only(instance: dg.DagsterInstance) -> None:
    """AssetCheckExecutionRecord, its resolved status and LoadingContext, as Dagster uses them."""
    defs = dg.Definitions(assets=[counted], asset_checks=[even])
    (check,) = list_blocking_checks(defs.get_repository_def(), counted.key)

    def state() -> CheckState:
        return get_check_results(instance, [check])[check].state

    def run(*definitions: Any, **tags: str) -> str:  # noqa: ANN401 - assets and checks
        done = dg.materialize(definitions, instance=instance, tags=tags, raise_on_error=False)
        return done.run_id

    assert state() is CheckState.MISSING
    run_id = run(counted, even)
    assert state() is CheckState.PASSED
    assert get_check_results(instance, [check])[check].time > 0
    assert get_check_results(instance, [check])[check].run_id == run_id
    run(counted)
    assert state() is CheckState.MISSING
    assert get_check_results(instance, [check])[check].run_id == ""
    run(counted, even, odd="yes")
    assert state() is CheckState.FAILED
