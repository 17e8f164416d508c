"""Snapshots in pandas: the same dtypes in every frame, and no number rounded on the way."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from shardline.errors import CorruptFileError, SchemaMismatchError
from shardline.schema.schema import Array, Category, Feature, Schema, Text
from tests.errors import raises
from tests.kernel.frames import framed
from tests.readers.snapshots import NUMBERS, numbers, overwrite, published
from tests.tfrecord.samples import ROOT, example_of, flipped, sequence_of

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.api import Snapshot

LARGE = 2**53 + 1
SCHEMA = Schema(
    (
        Feature("id", "int64"),
        Feature("count", "int64", required=False),
        Feature("score", "float", required=False),
        Feature("text", "bytes", required=False, meaning=Text()),
        Feature("class", "bytes", meaning=Category(("cat", "dog"))),
        Feature("blob", "bytes", meaning=Array("int16", (2,))),
        Feature("grid", "int64", (2, 3), required=False),
        Feature("tags", "bytes", (None,), meaning=Text()),
        Feature("boxes", "float", (None, 2)),
    )
)
FULL = {
    "id": LARGE,
    "count": LARGE,
    "score": 0.5,
    "text": "größe".encode(),
    "class": b"dog",
    "blob": b"\1\0\2\0",
    "grid": [1, 2, 3, 4, 5, LARGE],
    "tags": [b"x", b"y"],
    "boxes": [1.0, 2.0, 3.0, 4.0],
}
BARE = {name: FULL[name] for name in ("id", "class", "blob", "tags", "boxes")}


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """A shard in which nothing is missing, and one in which all is that may be."""
    shards = [[example_of(**FULL)] * 3, [example_of(**BARE)] * 2]
    return published(tmp_path_factory.mktemp("pandas"), SCHEMA, *shards)


def test_every_frame_has_the_same_dtypes(snapshot: Snapshot) -> None:
    frames = list(snapshot.to_pandas())
    assert [len(frame) for frame in frames] == [3, 2]
    for frame in frames:
        assert frame.dtypes.astype(str).to_dict() == {
            "id": "int64",
            "count": "Int64",
            "score": "float32",
            "text": "str",
            "class": "str",
            "blob": "object",
            "grid": "object",
            "tags": "object",
            "boxes": "object",
        }


def test_the_values_are_those_written_and_shaped(snapshot: Snapshot) -> None:
    full, bare = (frame.iloc[0] for frame in snapshot.to_pandas())
    assert (full["id"], full["count"], full["score"]) == (LARGE, LARGE, 0.5)
    assert (full["text"], full["class"], full["blob"]) == ("größe", "dog", b"\1\0\2\0")
    np.testing.assert_array_equal(full["grid"], [[1, 2, 3], [4, 5, LARGE]])
    assert full["grid"].dtype == np.int64
    assert full["tags"].tolist() == ["x", "y"]
    np.testing.assert_array_equal(full["boxes"], np.array([[1, 2], [3, 4]], np.float32))
    full["boxes"][0, 0] = 7  # a cell may be written to
    assert bare["count"] is pd.NA
    assert pd.isna(bare["score"])
    assert pd.isna(bare["text"])
    assert bare["grid"] is None


def test_the_index_goes_on_from_frame_to_frame(tmp_path: Path) -> None:
    snapshot = published(tmp_path, NUMBERS, numbers(0, 500), numbers(500, 700))
    frames = list(snapshot.to_pandas(["x"], batch_bytes=1000, workers=2))
    assert len(frames) > 10
    whole = pd.concat(frames)
    assert list(whole.columns) == ["x"]
    assert (whole["x"] == whole.index).all()
    assert len(whole) == 700


def test_steps_of_any_length_are_a_list_of_arrays(tmp_path: Path) -> None:
    schema = Schema(
        (
            Feature("a", "int64"),
            Feature("a", "int64", (None,), sequence=True),
            Feature("b", "float", (2,), sequence=True),
        ),
        "sequence_example",
    )
    record = sequence_of({"a": 1}, a=[[1, 2], [3]], b=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    (frame,) = published(tmp_path, schema, [record]).to_pandas()
    assert list(frame.columns) == ["a", "a", "b"]
    number, steps, pairs = frame.iloc[0].tolist()
    assert number == 1
    assert [step.tolist() for step in steps] == [[1, 2], [3]]
    assert pairs.shape == (3, 2)


def test_what_is_wrong_is_told_as_for_arrow(tmp_path: Path, snapshot: Snapshot) -> None:
    with raises(SchemaMismatchError, "unknown-feature", feature="y"):
        snapshot.to_pandas(["y"])
    damaged = published(tmp_path, NUMBERS, numbers(0, 50))
    path = overwrite(damaged, 0, flipped(framed(*numbers(0, 50)), 8 * 14))
    with pytest.raises(CorruptFileError) as caught:
        list(damaged.to_pandas())
    assert (caught.value.path, caught.value.record) == (path, 0)


@pytest.mark.parametrize(
    ("package", "call"), [("pandas", "to_pandas()"), ("tensorflow", "to_tf()")]
)
def test_a_package_that_is_not_installed_is_named(
    snapshot: Snapshot, package: str, call: str
) -> None:
    program = f"""
import sys
class Uninstalled:
    def find_spec(self, name, *_):
        if name.split(".")[0] == {package!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Uninstalled())
from shardline.api import Version
try:
    Version(sys.argv[1], "digits/v1").published().{call}
except ImportError as error:
    print(type(error).__name__, error.code, error.hint)
"""
    result = subprocess.run(
        [sys.executable, "-c", program, snapshot.store.uri],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    kind, code, hint = result.stdout.split(maxsplit=2)
    assert (kind, code) == ("PackageMissingError", "package-missing")
    assert f"pip install {package}" in hint
