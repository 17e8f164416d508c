"""OpenLineage events: the whole history, in facets as their published schemas want them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from shardline.errors import InvalidNameError, PackageMissingError, UnavailableError
from shardline.lineage.exports.openlineage import iter_events, send_events, write_events
from shardline.provenance.log_index import LogIndex
from tests.errors import raises
from tests.lineage.endpoints import server
from tests.lineage.exported_roots import PERSON, make_history
from tests.lineage.openlineage_schemas import misfits, published_misfits

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_history(tmp_path_factory.mktemp("history"))


@pytest.fixture(scope="module")
def told(root: Path) -> list[dict[str, Any]]:
    """What a file of all events holds."""
    path = root.parent / "events.jsonl"
    sent = write_events(iter_events(LogIndex(root), namespace="test"), path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sent.events == len(lines) == 2 * sent.entries
    return lines


def done(told: list[dict[str, Any]], job: str) -> list[dict[str, Any]]:
    return [one for one in told if one["job"]["name"] == job and one["eventType"] == "COMPLETE"]


def test_events_fit_client_classes(
    told: list[dict[str, Any]],
) -> None:
    assert [problem for event in told for problem in misfits(event)] == []


def test_events_validate_against_published_schemas(
    told: list[dict[str, Any]],
) -> None:
    assert [problem for event in told for problem in published_misfits(event)] == []


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("run", "runId"), 7),
        (("eventType",), "DONE"),
        (("outputs", 0, "name"), None),
        (("outputs", 0, "facets", "schema", "fields", 0, "name"), 1),
        (("outputs", 0, "facets", "version", "datasetVersion"), ["1"]),
        (("outputs", 0, "outputFacets", "outputStatistics", "rowCount"), "5"),
    ],
)
def test_invalid_event_is_detected(
    told: list[dict[str, Any]], where: tuple[str | int, ...], value: object
) -> None:
    event: Any = json.loads(json.dumps(done(told, "numbers/v1.append")[0]))
    holder = event
    for step in where[:-1]:
        holder = holder[step]
    holder[where[-1]] = value
    assert list(misfits(event))


def test_entries_are_runs_with_start_and_end(root: Path, told: list[dict[str, Any]]) -> None:
    catalog = LogIndex(root)
    operations = {"append", "rebuild", "extend", "migrate", "combine", "attest"}
    operations |= {"reject", "restore", "consume"}
    entries = [one for name in catalog.list_versions() for one in catalog.entries(name)]
    wanted = sorted(one.digest for one in entries if one.operation in operations)
    by_run: dict[str, list[dict[str, Any]]] = {}
    for event in told:
        by_run.setdefault(event["run"]["runId"], []).append(event)
    for run, pair in by_run.items():
        assert [event["eventType"] for event in pair] == ["START", "COMPLETE"]
        assert UUID(run).version == 5
    found = [pair[0]["run"]["facets"]["shardline_entry"]["digest"] for pair in by_run.values()]
    assert sorted(found) == wanted
    times = [event["eventTime"] for event in told]
    assert times == sorted(times)


def test_append_event_has_sources_and_totals(root: Path, told: list[dict[str, Any]]) -> None:
    first = done(told, "numbers/v1.append")[0]
    catalog = LogIndex(root)
    entry = catalog.get_snapshot_entry("numbers/v1", 1)
    (source,) = first["inputs"]
    (output,) = first["outputs"]
    assert (source["namespace"], source["name"]) == ("file", entry.sources[0].path)
    assert source["facets"]["version"]["datasetVersion"] == entry.sources[0].sha256
    assert source["inputFacets"]["inputStatistics"]["size"] == entry.sources[0].size
    assert (output["namespace"], output["name"]) == ("test", "numbers/v1")
    assert output["facets"]["version"]["datasetVersion"] == entry.content
    assert output["facets"]["shardline_snapshot"]["snapshot"] == 1
    statistics = output["outputFacets"]["outputStatistics"]
    written = entry.added[0].shard
    assert (statistics["rowCount"], statistics["size"]) == (5, written.bytes)
    assert statistics["fileCount"] == 1
    ours = first["run"]["facets"]["shardline_entry"]
    assert (ours["run"], ours["code"], ours["entry"]) == ("run-1", "code-7", entry.number)
    fields = output["facets"]["schema"]["fields"]
    assert [one["name"] for one in fields] == ["id", "name", "parity", "place", "vector"]
    assert fields[0]["description"] == "Counts up."


def test_column_lineage_follows_extensions_renames_joins(
    told: list[dict[str, Any]],
) -> None:
    def of(job: str) -> dict[str, Any]:
        (output,) = done(told, job)[0]["outputs"]
        columns: dict[str, Any] = output["facets"]["columnLineage"]
        return columns

    def fields(job: str, column: str) -> list[tuple[str, str, str]]:
        return [
            (one["name"], one["field"], one["transformations"][0]["subtype"])
            for one in of(job)["fields"][column]["inputFields"]
        ]

    assert fields("numbers/wide.extend", "double") == [("numbers/v1", "id", "TRANSFORMATION")]
    assert fields("numbers/wide.extend", "id") == [("numbers/v1", "id", "IDENTITY")]
    assert fields("numbers/v2.migrate", "title") == [("numbers/v1", "name", "IDENTITY")]
    assert "vector" not in of("numbers/v2.migrate")["fields"]
    assert fields("pairs/v1.combine", "b_title") == [("numbers/v2", "title", "IDENTITY")]
    joined = [(one["name"], one["field"]) for one in of("pairs/v1.combine")["dataset"]]
    assert joined == [("numbers/wide", "id"), ("numbers/v2", "id")]
    inputs = {one["name"] for one in done(told, "pairs/v1.combine")[0]["inputs"]}
    assert inputs == {"numbers/wide", "numbers/v2"}
    (itself,) = done(told, "pairs/twice.combine")
    assert [one["name"] for one in itself["inputs"]] == ["numbers/v2"]


def test_checks_are_assertions_on_their_snapshot(
    told: list[dict[str, Any]],
) -> None:
    (checked,) = done(told, "numbers/v1.attest")[0]["inputs"]
    assertions = checked["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert {(one["assertion"], one["success"]) for one in assertions} == {
        ("integrity", True),
        ("schema", True),
    }
    (rejected,) = done(told, "numbers/v1.reject")
    (about,) = rejected["inputs"]
    assert about["inputFacets"]["dataQualityAssertions"]["assertions"][0]["success"] is False
    assert about["facets"]["shardline_snapshot"]["snapshot"] == 5
    assert rejected["outputs"][0]["facets"]["shardline_snapshot"]["snapshot"] == 6


def test_in_place_changes_and_consumers_read_snapshots(
    told: list[dict[str, Any]],
) -> None:
    (rebuilt,) = done(told, "numbers/v1.rebuild")
    assert rebuilt["inputs"][0]["facets"]["shardline_snapshot"]["snapshot"] == 2
    (restored,) = done(told, "numbers/v1.restore")
    assert restored["inputs"][0]["facets"]["shardline_snapshot"]["snapshot"] == 2
    (consumed,) = done(told, "number-net")
    assert consumed["inputs"][0]["facets"]["shardline_snapshot"]["snapshot"] == 2
    assert consumed["outputs"] == []
    ours = consumed["run"]["facets"]["shardline_entry"]
    assert (ours["run"], ours["commit"]) == ("run-42", "1f3c9d2")


def test_events_contain_no_record_values(told: list[dict[str, Any]]) -> None:
    text = json.dumps(told, ensure_ascii=False)
    assert "numbers/v1" in text
    assert PERSON not in text


def test_resent_events_have_the_same_runs(root: Path, told: list[dict[str, Any]]) -> None:
    with server() as (url, posted):
        for _ in range(2):
            send_events(iter_events(LogIndex(root), namespace="test"), url, api_key="key-1")
    assert [event for _, _, event in posted] == told + told
    assert {(path, key) for path, key, _ in posted} == {("/api/v1/lineage", "Bearer key-1")}


def test_unreachable_endpoint_raises(root: Path) -> None:
    only = ["numbers/v2"]
    with server(status=400) as (url, posted):
        where = f"{url}/elsewhere"
        with raises(UnavailableError, "request-rejected", path=where) as refused:
            send_events(iter_events(LogIndex(root), only), where)
    assert [path for path, _, _ in posted] == ["/elsewhere"]
    assert "status 400" in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize("status", [500, 503])
def test_failing_endpoint_reports_status_and_sent_events(
    root: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urllib3.util.retry.time.sleep", lambda _: None)
    with server(status=status, first=5) as (url, posted):
        where = f"{url}/api/v1/lineage"
        with raises(UnavailableError, "request-rejected", path=where) as told:
            send_events(iter_events(LogIndex(root)), url)
    assert f"status {status}" in str(told.value)
    assert "5 events" in str(told.value)
    assert len(posted) > 6
    assert len({json.dumps(event) for _, _, event in posted[5:]}) == 1


@pytest.mark.parametrize(
    "url", ["marquez", "ftp://marquez", "https://me:secret@marquez", "http://"]
)
def test_invalid_endpoint_hides_password(root: Path, url: str) -> None:
    with raises(InvalidNameError, "invalid-location") as refused:
        send_events(iter_events(LogIndex(root)), url)
    assert "secret" not in refused.value.describe()


def test_missing_package_raises(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with raises(PackageMissingError, "package-missing") as caught:
        next(iter_events(LogIndex(root)))
    assert "'shardline[lineage]'" in str(caught.value.hint)
