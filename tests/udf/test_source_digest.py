"""A function that changes under the same code version: noticed by its source, and refused."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.errors import ShardlineError, UDFError
from shardline.execution.executor import ThreadExecutor
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.udf.function_digest import source_digest
from tests.errors import raises
from tests.operations.erasures import DyingStore
from tests.operations.extensions import base_of, grown, version_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardline.udf.record_function import RecordUDF

NAME = "functions_under_test"
TEXT = '''
"""A module."""
import math
from shardline import Feature, record_udf

FACTOR = 2
STARTED = object()
CACHE = {}


def helper(number, power=1):
    return FACTOR * number**power


@record_udf(Feature("much", "int64"), reads=["id"], code="1")
def much(record):
    """Say much."""
    CACHE[record["id"]] = math.sqrt(4)
    return {"much": helper(record["id"])}


@record_udf(Feature("keep", "int64"), reads=["id"], code="1")
def keep(record):
    return {"keep": int(helper(record["id"]) >= 0)}
'''
SAME = {
    "comment": ("return {", "# a reason\n    return {"),
    "docstring": ("Say much.", "Say it in other words."),
    "annotation": ("def much(record):", "def much(record: dict) -> dict:"),
    "spacing": ('{"much": helper', '{\n        "much":helper'),
    "runtime value": ("STARTED = object()", "import uuid\nSTARTED = uuid.uuid4().hex"),
    "unused": ("import math", "import math, json\nOTHER = 7\n"),
    "other function": ("int(helper", "bool(helper"),
}
CHANGED = {
    "body": ('helper(record["id"])}', 'helper(record["id"]) + 1}'),
    "helper": ("return FACTOR * number**power", "return FACTOR + number**power"),
    "helper default": ("power=1", "power=2"),
    "constant": ("FACTOR = 2", "FACTOR = 3"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    sys.modules.pop(NAME, None)


def loaded(folder: Path, change: tuple[str, str] = ("", ""), name: str = "much") -> RecordUDF:
    """A function of a module with one change in its text."""
    place = folder / str(len(list(folder.iterdir())))
    place.mkdir()
    path = place / "functions.py"
    text = TEXT.replace(*change) if change[0] else TEXT
    assert not change[0] or text != TEXT
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[NAME] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: RecordUDF = getattr(module, name)
    return function


@pytest.mark.parametrize("change", SAME)
def test_digest_equal_behavior_stays_same(folder: Path, change: str) -> None:
    before = loaded(folder).source_digest()
    assert loaded(folder, SAME[change]).source_digest() == before


@pytest.mark.parametrize("change", CHANGED)
def test_digest_changed_behavior_differs(folder: Path, change: str) -> None:
    before = loaded(folder).source_digest()
    assert loaded(folder, CHANGED[change]).source_digest() != before


def test_digest_after_calls_stays_same(folder: Path) -> None:
    function = loaded(folder)
    before = function.source_digest()
    assert function({"id": 3}) == {"much": 6}
    assert function.source_digest() == before


def make_adder(add: float) -> Any:  # noqa: ANN401 - a function
    def adder(number: float) -> float:
        return number + add

    return adder


def compiled(text: str) -> Any:  # noqa: ANN401 - a function without source text
    names: dict[str, Any] = {"__name__": "nowhere"}
    exec(text, names)  # noqa: S102 - that is the point
    return names["f"]


def test_digest_covers_closures_partials_and_bytecode() -> None:
    assert source_digest(make_adder(1)) == source_digest(make_adder(1))
    assert source_digest(make_adder(1)) != source_digest(make_adder(2))
    assert source_digest(partial(pow, 2)) is None
    assert source_digest(partial(make_adder, 1)) != source_digest(partial(make_adder, 2))
    one, same = compiled("def f(x):\n return x + 1"), compiled("\n\ndef f(x):\n return x + 1")
    assert source_digest(one) == source_digest(same)
    assert source_digest(one) != source_digest(compiled("def f(x):\n return x + 2"))
    assert str(source_digest(one)).startswith("code-")
    assert source_digest(len) is None


def test_extend_changed_function_raises(folder: Path) -> None:
    base, into = base_of(folder, (0, 5)), version_in(folder)
    extend(base, loaded(folder), into)
    grown(base, folder / "landing", (5, 9))
    changed = loaded(folder, CHANGED["helper"])
    with raises(UDFError, "changed-function", version="digits/v2"):
        extend(base, changed, into)
    assert into.state.snapshot == 1
    report = extend(base, loaded(folder, SAME["comment"]), into)
    assert (len(report.written), len(report.reused)) == (1, 1)
    accepted = loaded(folder, ('code="1")\ndef much', 'code="1", check_source=False)\ndef much'))
    grown(base, folder / "landing", (9, 12))
    extend(base, accepted, into)
    again = loaded(folder, ('code="1")\ndef much', 'code="2")\ndef much'))
    assert len(extend(base, again, into).written) == 3


def fails_from(number: int) -> tuple[str, str]:
    """A change: the function fails from this id on."""
    return ("return {", f'assert record["id"] < {number}\n    return {{')


def test_extend_fixed_function_leaves_no_old_results(folder: Path) -> None:
    base, into = base_of(folder, (0, 5), (5, 9)), version_in(folder)
    with pytest.raises(ShardlineError):
        extend(base, loaded(folder, fails_from(5)), into, executor=ThreadExecutor(1))
    fixed = loaded(folder, CHANGED["constant"])
    report = extend(base, fixed, into)
    assert (len(report.written), report.recovered) == (2, 0)
    ids = list(range(9))
    assert into.latest().take(ids)["much"].to_pylist() == [3 * number for number in ids]


def test_extend_stopped_same_function_uses_its_shards(folder: Path) -> None:
    base, into = base_of(folder, (0, 5), (5, 9)), version_in(folder)
    with pytest.raises(DyingStore.Died):
        extend(base, loaded(folder), Version(DyingStore(folder / "root"), into.name))
    assert extend(base, loaded(folder, SAME["comment"]), into).recovered == 2


def test_combine_fixed_function_leaves_no_old_results(folder: Path) -> None:
    base, into = base_of(folder, (0, 3), (3, 5)), version_in(folder, "pairs/v1")
    options: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "l_", "target_bytes": 1}
    failing = loaded(
        folder, ('return {"keep"', 'assert record["id"] < 3\n    return {"keep"'), "keep"
    )
    with pytest.raises(ShardlineError):
        combine(base, base, into, where=failing, executor=ThreadExecutor(1), **options)
    fixed = loaded(folder, (">= 0", "> 0"), "keep")
    report = combine(base, base, into, where=fixed, **options)
    assert report.recovered == 0
    assert into.latest().records == 5 * 4


def test_combine_changed_function_raises(folder: Path) -> None:
    base, into = base_of(folder, (0, 3)), version_in(folder, "pairs/v1")
    options: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "l_"}
    where = loaded(folder, name="keep")
    combine(base, base, into, where=where, **options)
    grown(base, folder / "landing", (3, 5))
    for change in ("helper", "constant"):
        changed = loaded(folder, CHANGED[change], "keep")
        with raises(UDFError, "changed-function", version="pairs/v1"):
            combine(base, base, into, where=changed, **options)
    combine(base, base, into, where=loaded(folder, name="keep"), **options)
    assert into.state.snapshot == 2


def test_extend_unrecorded_function_is_accepted(folder: Path) -> None:
    base, into = base_of(folder, (0, 5)), version_in(folder)
    extend(base, loaded(folder), into)
    entry = into.log.entry(into.latest().entry)
    assert entry.parameters["functions"] == [
        {"function": f"{NAME}:much", "code": "1", "source": loaded(folder).source_digest()}
    ]
    without = into.log.entry_name(entry.number)
    assert into.store.read(without).count(b'"functions"') == 1
