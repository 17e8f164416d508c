"""`--fields module:object` and `--fields path/to/file.py:object`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import tensorflow as tf

from tests.cli.command import inside
from tests.cli.datasets import FITTING, squeezed
from tests.cli.makers import write_makers
from tests.files.samples import made, read_by_tensorflow
from tests.kernel.frames import framed

if TYPE_CHECKING:
    from pathlib import Path

DECLARED = (
    "which does not say which fields it makes; a maker of fields is declared like this: "
    'from shardline import Feature, record_fields @record_fields(Feature("length", "int64")'
)


@pytest.fixture(autouse=True)
def _same_path_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


NO_MAKERS = {
    "no colon": ("makers.py", "write module:object, or path/to/file.py:object"),
    "no object": ("makers.py:", "write module:object"),
    "a missing module": ("nowhere_at_all:x", "no module 'nowhere_at_all' in the folder "),
    "a missing package": ("nowhere_at_all.inside:x", "no module 'nowhere_at_all' in the folder "),
    "a missing file": ("nowhere.py:x", "no such file: nowhere.py"),
    "a file without its end": ("./makers:x", "no such file: makers; is makers.py meant?"),
    "another name": (
        "makers.py:trible",
        "has no 'trible'; its makers of fields are both, double, first, half, inverse, leaves, x",
    ),
    "a module without any": ("json:x", "json has no 'x', and no maker of fields at all; a maker"),
    "a plain function": ("makers.py:plain", f"is a plain function, {DECLARED}"),
    "a class": ("makers.py:Feature", "is the class Feature, which does not say"),
    "a module": ("makers.py:pc", "is a module, which does not say"),
    "an empty list": ("makers.py:nothing", "is an empty list"),
    "a list of others": ("makers.py:mixed", "has a value in it that is an int"),
    "a module that raises": (
        "raises.py:x",
        "importing raises.py failed in line 2 of {folder}/raises.py: ZeroDivisionError: division",
    ),
    "a module that lacks another": (
        "./lacks.py:x", "ModuleNotFoundError: No module named 'nowhere_at_all'",
    ),
    "a module that is no Python": ("text.py:x", "importing text.py failed: SyntaxError: "),
    "a module that ends": ("ends.py:x", "in line 1 of {folder}/ends.py: SystemExit: 3"),
    "a declaration that is wrong": (
        "declares.py:x",
        "failed in line 2 of {folder}/declares.py: FieldsError: function 'x' declares no field",
    ),
    "a file of another sort": ("w/makers.txt:x", "is no Python file: its name must end in .py"),
}  # fmt: skip


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
        b"from shardline import record_fields\n@record_fields()\ndef x(record):\n    return {}\n",
    )
    argument, words = NO_MAKERS[what]
    result = inside("extend", "a", "--output", "o", "--fields", argument, cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert words.format(folder=tmp_path.resolve()) in squeezed(result.err)
    assert f"Error: --fields {argument}" in result.err
    assert not (tmp_path / "o").exists()


def test_a_file_of_makers_may_import_what_lies_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    made(folder / "beside_the_makers.py", b"def name():\n    return 'here'\n")
    made(
        folder / "json.py",
        b"from shardline import Feature, record_fields\n"
        b"from beside_the_makers import name\n"
        b"@record_fields(Feature('at', 'bytes'), code='1', processes=True)\n"
        b"def at(record):\n"
        b"    return {'at': name()}\n",
    )
    made(tmp_path / "a", framed(*FITTING))
    result = inside("extend", "a", "--output", "o", "--fields", "code/json.py:at", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    payload = read_by_tensorflow(tmp_path / "o")[0]
    feature = tf.train.Example.FromString(payload).features.feature["at"]
    assert list(feature.bytes_list.value) == [b"here"]
