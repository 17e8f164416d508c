"""How to read a snapshot, told so that it works when it is pasted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardline.dagster.versions.metadata_values import format_read_code
from tests.dagster.landings import code_blocks
from tests.readers.overlays import tagged

if TYPE_CHECKING:
    from pathlib import Path


def test_of_overlays_our_own_code_is_told_and_why_there_is_no_other(tmp_path: Path) -> None:
    text = format_read_code(tagged(tmp_path))
    (ours,) = code_blocks(text)
    names: dict[str, Any] = {}
    exec(ours, names)  # noqa: S102 - that is what the reader would do
    assert [int(one["x"]) for one in names["dataset"]] == list(range(9))
    assert "digits/v3@1" in text.partition("TensorFlow alone cannot read it: ")[2]
    assert "shardline rebuild digits/v3" in text
