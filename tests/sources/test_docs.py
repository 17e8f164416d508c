"""The table of bad values in the docs is the one that the tests are made of."""

from __future__ import annotations

from pathlib import Path

from tests.sources.bad_values import CASES

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "append.md"
HEAD = "| what | shown for | the message |\n|---|---|---|"
WORDS = {
    "csv": "CSV",
    "folder": "a folder",
    "jsonl": "JSON lines",
    "parquet": "Parquet",
    "rows": "dicts",
    "tfrecord": "TFRecord",
}


def table() -> str:
    """The table: for each kind of bad value one message, and the sources it is shown for."""
    found: dict[str, tuple[list[str], str]] = {}
    for case in CASES:
        sources, _ = found.setdefault(case.what, ([], case.message))
        if WORDS[case.source] not in sources:
            sources.append(WORDS[case.source])
    lines = [
        f"| {what} | {', '.join(sources)} | `{message}` |"
        for what, (sources, message) in found.items()
    ]
    return "\n".join(lines)


def test_the_docs_list_every_kind_of_bad_value_with_its_message() -> None:
    page = PAGE.read_text()
    _, _, behind = page.partition("<!-- bad values: tests/sources/bad_values.py -->")
    found, _, _ = behind.partition("<!-- end of bad values -->")
    assert found.strip() == f"{HEAD}\n{table()}"
