"""With the real daemon: what lands is appended once and followed, over restarts and reloads."""

from pathlib import Path

import dagster as dg
import pytest

from shardline.operations.append import append
from tests.dagster.platforms import GROWING, Platform, make_platform, reported
from tests.dagster.web_page import WebPage, wait_until, web_page

pytestmark = [pytest.mark.sweep, pytest.mark.xdist_group("daemon")]

DEFINITIONS = """\
from pathlib import Path

from tests.dagster.platforms import make_platform

defs = make_platform(Path(__file__).parent).defs
"""
RELOAD = """\
mutation { reloadRepositoryLocation(repositoryLocationName: "small") { __typename } }
"""


def published(notes: Platform, version: str) -> int:
    """How many records are published, 0 if nothing is."""
    opened = notes.version(version)
    return opened.published().records if opened.exists and opened.state.published else 0


def wait_for(notes: Platform, records: int) -> None:
    wait_until(lambda: published(notes, "notes/single") == records, f"{records} records went on")


def reload(page: WebPage) -> None:
    told = page.data(RELOAD)["reloadRepositoryLocation"]
    assert told["__typename"] == "WorkspaceLocationEntry"


@pytest.mark.slow
def test_daemon_follows_files_over_restart(tmp_path: Path) -> None:
    notes = make_platform(tmp_path)
    notes.land("a", range(5))
    with web_page(tmp_path, definitions=DEFINITIONS) as page:
        wait_for(notes, 5)
        notes.land_damaged()
        reload(page)
        notes.land("b", range(5, 9))
        wait_for(notes, 9)
    notes.land("c", range(9, 12))
    with web_page(tmp_path, definitions=DEFINITIONS):
        wait_for(notes, 12)
        path = tmp_path / "d.jsonl"
        path.write_text('{"id": 12, "name": "note 12"}\n{"id": 13, "name": "note 13"}\n')
        append(notes.version(), path)  # outside Dagster: the reconciler has to find it
        wait_for(notes, 14)
    with dg.DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        told = reported(instance, GROWING)
    landed = {1: 5, 2: 9, 3: 12, 4: 14}
    assert [notes.version().snapshot(n).records for n in sorted(landed)] == list(landed.values())
    assert notes.version().state.snapshot == 4
    assert sorted(set(told)) == [1, 2, 3, 4]
