"""Snapshots for the tests of checks: real records, appended as any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import shardline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shardline.api import Snapshot, Version
    from shardline.schema.schema import Schema

NAME = "digits/v1"

DIGITS = shardline.Schema(
    (
        shardline.Feature("label", "int64", meaning=shardline.Category(tuple("0123456789"))),
        shardline.Feature("weight", "float"),
        shardline.Feature("writer", "bytes", meaning=shardline.Text()),
        shardline.Feature("age", "int64", required=False),
        shardline.Feature("pixels", "float", (4,)),
        shardline.Feature("strokes", "int64", (None,)),
        shardline.Feature("scan", "bytes"),
    )
)


def digit(number: int, **other: object) -> dict[str, Any]:
    """A row of the schema DIGITS."""
    row = {
        "label": number % 10,
        "weight": 1.0 + number % 7 / 10,
        "writer": ("ada", "ben", "cleo", "dan")[number % 4],
        "age": None if number % 5 == 0 else 20 + number % 30,
        "pixels": [0.0, 0.25, 0.5, number % 4 / 4],
        "strokes": list(range(number % 6)),
        "scan": b"x" * (10 + number % 20),
    }
    return {**row, **other}


def digits(first: int, last: int, **other: object) -> list[dict[str, Any]]:
    """Rows of the schema DIGITS."""
    return [digit(number, **other) for number in range(first, last)]


def append_rows(
    root: Path | str,
    *batches: Sequence[dict[str, Any]],
    schema: Schema = DIGITS,
    **options: Any,  # noqa: ANN401 - those of append
) -> Version:
    """A version to which these batches of rows were appended, one after the other."""
    version = shardline.Version(root, NAME)
    for batch in batches:
        number = version.state.snapshot
        version.append([list(batch)], schema=schema, batch=f"batch {number}", **options)
    return version


def snapshot_of(
    root: Path | str,
    *batches: Sequence[dict[str, Any]],
    schema: Schema = DIGITS,
    **options: Any,  # noqa: ANN401 - those of append
) -> Snapshot:
    """The newest snapshot of such a version."""
    return append_rows(root, *batches, schema=schema, **options).latest()
