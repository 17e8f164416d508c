"""Every record of a snapshot as each reader gives it, in plain nested lists by feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.readers.forms import plain

if TYPE_CHECKING:
    from shardline.api import Snapshot
    from shardline.schema.schema import Schema


def in_parsed(schema: Schema, element: Any) -> dict[tuple[bool, str], Any]:  # noqa: ANN401 - tensors
    """A parsed record, or a batch of them."""
    context, lists = element if isinstance(element, tuple) else (element, {})
    parts = {False: context, True: lists}
    assert sum(map(len, parts.values())) == len(schema.features)
    return {f.key: plain(parts[f.sequence][f.name]) for f in schema.features}


def single_records(snapshot: Snapshot) -> list[dict[tuple[bool, str], Any]]:
    """By to_tf, one by one."""
    return [in_parsed(snapshot.schema, element) for element in snapshot.to_tf()]


def batched_records(snapshot: Snapshot, batch: int) -> list[dict[tuple[bool, str], Any]]:
    """By to_tf, so many at a time."""
    found: list[dict[tuple[bool, str], Any]] = []
    for element in snapshot.to_tf(batch=batch):
        columns = in_parsed(snapshot.schema, element)
        rows = len(next(iter(columns.values())))
        found += [{key: values[row] for key, values in columns.items()} for row in range(rows)]
    return found


def arrow_records(snapshot: Snapshot) -> list[dict[tuple[bool, str], Any]]:
    """By to_arrow."""
    keys = [feature.key for feature in snapshot.schema.features]
    found: list[dict[tuple[bool, str], Any]] = []
    with snapshot.to_arrow() as reader:
        for batch in reader:
            batch.validate(full=True)
            assert batch.schema.equals(reader.schema, check_metadata=True)
            columns = [column.to_pylist() for column in batch.columns]
            found += [
                dict(zip(keys, map(plain, row), strict=True)) for row in zip(*columns, strict=True)
            ]
    return found


def pandas_records(snapshot: Snapshot) -> list[dict[tuple[bool, str], Any]]:
    """By to_pandas."""
    keys = [feature.key for feature in snapshot.schema.features]
    found: list[dict[tuple[bool, str], Any]] = []
    for frame in snapshot.to_pandas():
        columns = [frame.iloc[:, place] for place in range(len(keys))]
        missing = [
            [False] * len(frame) if column.dtype == object else column.isna() for column in columns
        ]
        for row in range(len(frame)):
            cells = (
                None if gone[row] else plain(column.iloc[row])
                for column, gone in zip(columns, map(list, missing), strict=True)
            )
            found.append(dict(zip(keys, cells, strict=True)))
    return found
