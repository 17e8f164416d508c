"""`--udf module:object` and `--udf path/to/file.py:object`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import tensorflow as tf

from tests.cli.command import shardline
from tests.cli.datasets import FITTING, squeezed
from tests.cli.makers import write_makers
from tests.kernel.frames import framed
from tests.tfrecord.samples import made, read_by_tensorflow

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _same_path_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


NO_MAKERS = {
    "no colon": ("makers.py", "invalid-udf", "`module:object`"),
    "no object": ("makers.py:", "invalid-udf", "`module:object`"),
    "a missing module": ("nowhere_at_all:x", "udf-not-found", "'nowhere_at_all'"),
    "a missing package": ("nowhere_at_all.inside:x", "udf-not-found", "'nowhere_at_all'"),
    "a missing file": ("nowhere.py:x", "file-not-found", "nowhere.py"),
    "a file without its end": ("./makers:x", "file-not-found", "makers.py?"),
    "another name": (
        "makers.py:trible",
        "udf-not-found",
        "both, double, first, half, inverse, leaves, x",
    ),
    "a module without any": ("json:x", "udf-not-found", "@record_udf(Feature("),
    "a plain function": ("makers.py:plain", "invalid-udf", "@record_udf(Feature("),
    "a class": ("makers.py:Feature", "invalid-udf", "class Feature"),
    "a module": ("makers.py:pc", "invalid-udf", "a module"),
    "an empty list": ("makers.py:nothing", "invalid-udf", "empty list"),
    "a list of others": ("makers.py:mixed", "invalid-udf", "an int"),
    "a module that raises": (
        "raises.py:x",
        "udf-import-failed",
        "line 2 of {folder}/raises.py: ZeroDivisionError",
    ),
    "a module that lacks another": ("./lacks.py:x", "udf-import-failed", "'nowhere_at_all'"),
    "a module that is no Python": ("text.py:x", "udf-import-failed", "SyntaxError"),
    "a module that ends": (
        "ends.py:x",
        "udf-import-failed",
        "line 1 of {folder}/ends.py: SystemExit: 3",
    ),
    "a declaration that is wrong": (
        "declares.py:x",
        "udf-import-failed",
        "line 2 of {folder}/declares.py: UDFError: ",
    ),
    "a file of another sort": ("w/makers.txt:x", "invalid-udf", "`.py`"),
}


@pytest.mark.parametrize("what", NO_MAKERS)
def test_what_names_no_maker_of_fields_is_told_with_code_2(tmp_path: Path, what: str) -> None:
    made(tmp_path / "a", framed(*FITTING))
    write_makers(tmp_path)
    (tmp_path / "w").mkdir()
    write_makers(tmp_path / "w", "makers.txt")
    made(tmp_path / "raises.py", b"\n1 / 0\n")
    made(tmp_path / "lacks.py", b"import nowhere_at_all\n")
    made(tmp_path / "text.py", b"this is a text\n")
    made(tmp_path / "ends.py", b"raise SystemExit(3)\n")
    made(
        tmp_path / "declares.py",
        b"from shardline import record_udf\n@record_udf()\ndef x(record):\n    return {}\n",
    )
    argument, code, words = NO_MAKERS[what]
    result = shardline("extend", "a", "--output", "o", "--udf", argument, "--json", cwd=tmp_path)
    assert result.problem == (2, code)
    assert words.format(folder=tmp_path.resolve()) in squeezed(result.err)
    assert f"error: --udf {argument}" in result.err
    assert not (tmp_path / "o").exists()


def test_a_file_of_makers_may_import_what_lies_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    made(folder / "beside_the_makers.py", b"def name():\n    return 'here'\n")
    made(
        folder / "json.py",
        b"from shardline import Feature, record_udf\n"
        b"from beside_the_makers import name\n"
        b"@record_udf(Feature('at', 'bytes'), code='1', processes=True)\n"
        b"def at(record):\n"
        b"    return {'at': name()}\n",
    )
    made(tmp_path / "a", framed(*FITTING))
    result = shardline("extend", "a", "--output", "o", "--udf", "code/json.py:at", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    payload = read_by_tensorflow(tmp_path / "o")[0]
    feature = tf.train.Example.FromString(payload).features.feature["at"]
    assert list(feature.bytes_list.value) == [b"here"]
