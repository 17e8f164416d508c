"""Short columns of cells, converted together, give what each of them gives alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shardline.kernel.columns import to_arrow
from shardline.schema.schema import Feature, Text
from shardline.sources import open_source
from shardline.sources.csv_cells import CellColumns, CellTally, fit_cells, fit_columns
from shardline.sources.csv_source import CsvRows, split_plain_cells
from tests.sources.reading import take
from tests.tfrecord.samples import made

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.schema.schema import Schema

CELLS = st.sampled_from(
    [
        "", " ", "0", "1", "-7", " 5 ", "007", "-0", "+3", "16777217", "9223372036854775807",
        "9223372036854775808", "999999999999999999", "0.5", "+.5", "1.", "-1e5", "1e400", "1e39",
        "nan", "-inf", "NaN", "16777217.0", "9007199254740993.0", "1e16", "0x1f", "1_0", "x", "é",
        "18446744073709551616", "1e", "--1", "nan(1)", "infinite",
    ]
)  # fmt: skip
BLOCK = st.integers(1, 4).flatmap(
    lambda rows: st.lists(st.lists(CELLS, min_size=rows, max_size=rows), min_size=2, max_size=6)
)


def told(columns: list[list[list[str]]]) -> list[Feature | str]:
    """Return the features that columns suggest, each given block by block by itself."""
    features: list[Feature | str] = []
    for blocks in columns:
        tally = CellTally(["a"])
        for cells in blocks:
            tally.add([pa.array(cells, pa.string())])
        features.append(kind(tally)[0])
    return features


def kind(tally: CellTally) -> list[Feature | str]:
    """Return the feature of each column, or "empty"."""
    found: list[Feature | str] = []
    for seen in tally.seen:
        one = CellTally(["a"], tally.rows, tally.allow_rounding, [seen])
        found.append(one.schema("").features[0] if seen.filled else "empty")
    return found


@given(first=BLOCK, data=st.data())
def test_columns_together_suggest_what_each_does(
    first: list[list[str]], data: st.DataObject
) -> None:
    second = [data.draw(st.lists(CELLS, min_size=2, max_size=2)) for _ in first]
    tally = CellTally(["a"] * len(first))
    for block in (first, second):
        tally.add([pa.array(cells, pa.string()) for cells in block])
    assert kind(tally) == told([[a, b] for a, b in zip(first, second, strict=True)])


@given(block=BLOCK, kinds=st.data())
def test_columns_together_fit_as_each_does(block: list[list[str]], kinds: st.DataObject) -> None:
    features = [
        Feature(str(at), kinds.draw(st.sampled_from(["int64", "float", "bytes"])))
        for at in range(len(block))
    ]
    places = kinds.draw(st.permutations(range(len(block))))
    columns = [pa.array(cells, pa.string()) for cells in block]
    fitted = fit_columns(features, places, CellColumns.join(columns))
    alone = [fit_cells(f, columns[at]) for f, at in zip(features, places, strict=True)]
    assert fitted.bad == [(f, one.bad) for f, one in zip(features, alone, strict=True) if one.bad]
    for buffers, one in zip(fitted.buffers, alone, strict=True):
        array = to_arrow(buffers)
        assert repr(array.to_pylist()) == repr(one.array.to_pylist())
        assert array.type == one.array.type


TEXT = st.text(st.sampled_from('ab,é\n\r" \0'), max_size=30)


@given(text=TEXT, names=st.integers(1, 3))
def test_plain_cells_are_those_that_arrow_reads(text: str, names: int) -> None:
    rows = CsvRows(tuple("abc"[:names]), text.encode(), 0, 1, 0)
    reasons: dict[int, tuple[str | None, str]] = {}
    columns = [column.to_pylist() for column in rows.columns(reasons)]
    found: dict[int, tuple[str | None, str]] = {}
    cells = rows.cells(found)
    assert (cells is None) == (not len(rows.filled))
    if cells is not None:
        assert [cells.column(at).to_pylist() for at in range(names)] == columns
        assert found == reasons


def test_only_plain_cells_are_split() -> None:
    split = split_plain_cells("1,é\r\n,4".encode(), 2, 2)
    assert split is not None
    assert split.to_pylist() == ["1", "", "é", "4"]
    for data in (b"1,2\n3", b"1\n2,3,4\n", b'"1",2\n3,4\n', b"1\r,2\n3,4\n", b"\xff,2\n3,4\n"):
        assert split_plain_cells(data, 2, 2) is None


def test_wide_csv_gives_every_column(tmp_path: Path) -> None:
    count = 600
    names = [f"c{at}" for at in range(count)]
    rows = [[str(at) if at % 3 else f"t{row}" for at in range(count)] for row in range(3)]
    lines = [",".join(line) for line in [names, *rows]]
    source = open_source(made(tmp_path / "a.csv", "\n".join(lines).encode()))
    schema: Schema = source.infer()
    by_name = {feature.name: feature for feature in schema.features}
    assert by_name["c0"] == Feature("c0", "bytes", meaning=Text())
    assert by_name["c1"] == Feature("c1", "int64")
    assert len(by_name) == count
    taken = take(source, schema)
    assert (taken.rows, taken.refused) == ([0, 1, 2], [])
