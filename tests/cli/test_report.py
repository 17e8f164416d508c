"""`shardline report`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cli.datasets import entry_file, on
from tests.lineage.page_roots import write_histories

if TYPE_CHECKING:
    from pathlib import Path


def test_the_page_is_written_and_told(tmp_path: Path) -> None:
    root, page = write_histories(tmp_path / "root").root, tmp_path / "page.html"
    result = on(root, "report", "-o", page)
    assert (result.code, result.err) == (0, "")
    assert all(words in result.out for words in (str(page), "3 versions", "7 snapshots"))
    assert "Not audited" in page.read_text()


def test_a_name_chooses_and_json_tells_machines(tmp_path: Path) -> None:
    root = write_histories(tmp_path / "root").root
    result = on(root, "report", "digits/v2", "--json", cwd=tmp_path)
    size = (tmp_path / "report.html").stat().st_size
    told = {"ok": True, "root": str(root), "page": "report.html", "size": size, "damaged": []}
    counts = {"datasets": 1, "versions": 2, "snapshots": 6, "published": 4, "listed": 6}
    assert result.json.items() >= {**told, **counts}.items()
    again = on(root, "report", "digits", "-o", tmp_path / "report.html")
    assert "3 versions" in again.out


def test_only_an_earlier_page_is_replaced(tmp_path: Path) -> None:
    root, other = write_histories(tmp_path / "root").root, tmp_path / "notes.html"
    other.write_text("mine")
    result = on(root, "report", "-o", other, "--json")
    assert result.problem == (2, "file-exists")
    assert other.read_text() == "mine"
    assert on(root, "report", "-o", tmp_path).code == 2


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    root = write_histories(tmp_path / "root").root
    result = on(root, "report", "digits/v3", "-o", tmp_path / "page.html", "--json")
    assert result.problem == (2, "version-not-found")
    assert "digits/v1, digits/v2" in result.error["hint"]["text"]
    assert not (tmp_path / "page.html").exists()


def test_a_damaged_log_is_on_the_page_and_is_a_problem(tmp_path: Path) -> None:
    root, page = write_histories(tmp_path / "root").root, tmp_path / "page.html"
    entry_file(root, 3).write_text("nonsense")
    result = on(root, "report", "-o", page)
    assert result.code == 1
    assert "entry 3" in result.out
    assert "shardline verify digits/v1" in result.out
    assert "entry 3" in page.read_text()
