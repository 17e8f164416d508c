"""Errors: their codes, hints and fields, which also reach another process."""

from __future__ import annotations

import ast
import errno
import importlib
import json
import pickle
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardline.dagster.expectations.suite import SuiteError
from shardline.error_codes import CODES
from shardline.errors import (
    LOCATION,
    BudgetError,
    ChangedSourceError,
    ColumnError,
    CorruptFileError,
    CorruptLogError,
    CorruptShardError,
    ExampleError,
    FileExistsAlreadyError,
    InvalidArgumentError,
    InvalidRecordsError,
    MixedPayloadsError,
    NotTFRecordError,
    ObjectNotFoundError,
    SchemaMismatchError,
    ShardlineError,
    StorageError,
    TombstonedShardError,
    UnknownFormatError,
)
from shardline.hints import Command, Hint, Option
from shardline.schema.comparison import SchemaDiff
from shardline.sources.source_mismatch import SourceSchemaError
from shardline.tfrecord.compression import CompressionError
from shardline.udf.udf_result import BatchMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PACKAGES = ("shardline", "assets", "checks", "dagster_project")
ERROR_CLASS = re.compile(r"^class (\w+)\([^)]*Error\b", re.MULTILINE)
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
HINT = Hint.of("do ", Command.of("repair", "digits/v1"), ",", Option("mode", "rewrite"))

SPECIAL: dict[type[ShardlineError], ShardlineError] = {
    ChangedSourceError: ChangedSourceError("a.csv: changed since it landed", 3),
    InvalidRecordsError: InvalidRecordsError("2 rows do not fit", ("line 1",), 2, 10),
    BatchMismatchError: BatchMismatchError(0, 4, "too few rows"),
    BudgetError: BudgetError("too much", 3, 4),
    ColumnError: ColumnError(3, "label", "holds bytes values, not int64"),
    CompressionError: CompressionError(5, "truncated"),
    TombstonedShardError: TombstonedShardError("was vacuumed", ("v1.tfrecord",)),
    CorruptFileError: CorruptFileError("a.tfrecord", "data-crc", 3, 70, "does not match"),
    CorruptLogError: CorruptLogError("digits/v1", 7, "it is missing", "missing-entry"),
    CorruptShardError: CorruptShardError("digits/v1", "a.tfrecord: corrupt"),
    NotTFRecordError: NotTFRecordError("a.csv", "csv"),
    ExampleError: ExampleError(1, 2, "label", "twice"),
    MixedPayloadsError: MixedPayloadsError("a.tfrecord", "example", "b.tfrecord", "opaque"),
    SourceSchemaError: SourceSchemaError("a.csv", {"label": "holds text"}, SchemaDiff()),
    SuiteError: SuiteError("no expectations", path=Path("digits_v1.json")),
    UnknownFormatError: UnknownFormatError("newer", 7),
}
"""A sample of each class with a constructor of its own."""


def trees(*packages: str) -> Iterator[tuple[Path, ast.Module]]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT), _tree(path)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def error_classes() -> list[type[ShardlineError]]:
    """Find our error classes, in whichever module of the engine they are."""
    found = set()
    for path in sorted((ROOT / "shardline").rglob("*.py")):
        names = ERROR_CLASS.findall(path.read_text())
        if names:
            parts = path.relative_to(ROOT).with_suffix("").parts
            module = importlib.import_module(".".join(parts))
            found |= {getattr(module, name) for name in names if hasattr(module, name)}
    return sorted(
        (kind for kind in found if issubclass(kind, ShardlineError)), key=lambda kind: kind.__name__
    )


CLASSES = error_classes()


def sample(kind: type[ShardlineError]) -> ShardlineError:
    """Build an error with a code, a hint and all fields."""
    if kind in SPECIAL:
        error = SPECIAL[kind]
        assert type(error) is kind
        error = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own, just made
    else:
        error = kind.__new__(kind, "what is wrong")
        ShardlineError.__init__(error, "what is wrong")
    error.code = "stale-plan"
    error.set_hint(HINT)
    where = ("a/b.tfrecord", 3, 70, "label", "digits/v1", 5)
    for name, value in zip(LOCATION, where, strict=True):
        setattr(error, name, value)
    return error


def test_all_error_classes_are_found() -> None:
    assert len(CLASSES) >= 40
    assert set(SPECIAL) <= set(CLASSES)
    assert {ShardlineError, InvalidArgumentError, StorageError, CompressionError} <= {
        base for kind in CLASSES for base in kind.__mro__
    }


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_after_it_was_sent(kind: type[ShardlineError]) -> None:
    error = sample(kind)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own, just made
    assert (type(again), str(again), again.args) == (kind, str(error), error.args)
    assert again.__dict__ == error.__dict__
    assert again.to_dict() == error.to_dict()
    assert (again.code, again.hint, again.path) == ("stale-plan", HINT, "a/b.tfrecord")


@pytest.mark.parametrize(
    "kind",
    [kind for kind in CLASSES if issubclass(kind, OSError)],
    ids=lambda kind: kind.__name__,
)
def test_an_error_with_errno_and_file_name_is_the_same_after_it_was_sent(
    kind: type[ShardlineError],
) -> None:
    error = kind(
        errno.EEXIST, "exists", "/a/b", code="storage-full", hint=HINT, path="/a/b", snapshot=3
    )
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own, just made
    assert (type(again), str(again), again.message) == (kind, str(error), "/a/b: exists")
    assert (again.errno, again.filename) == (errno.EEXIST, "/a/b")
    assert (again.code, again.hint, again.path, again.snapshot) == (
        "storage-full", HINT, "/a/b", 3,
    )  # fmt: skip


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_has_a_listed_code(kind: type[ShardlineError]) -> None:
    assert kind.code in CODES


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_to_dict_has_code_message_hint_fields_and_details(kind: type[ShardlineError]) -> None:
    error = sample(kind)
    told = json.loads(json.dumps(error.to_dict()))
    assert set(told) == {"code", "message", "hint", *LOCATION, *kind._DETAILS}
    assert (told["code"], told["message"]) == ("stale-plan", error.message)
    assert told["hint"] == HINT.to_dict()
    assert {name: told[name] for name in LOCATION} == {
        name: getattr(error, name) for name in LOCATION
    }


def test_an_error_without_hint_and_fields_has_none() -> None:
    told = SchemaMismatchError("another schema").to_dict()
    assert told == {
        "code": "schema-mismatch",
        "message": "another schema",
        "hint": None,
        **dict.fromkeys(LOCATION),
    }


def test_message_of_an_os_error_names_the_file_without_errno() -> None:
    error = FileExistsAlreadyError(errno.EEXIST, "exists already", "/a/b")
    assert error.message == "/a/b: exists already"
    assert ObjectNotFoundError("/a/b: not found").message == "/a/b: not found"


def test_hint_is_no_part_of_the_message_and_a_note_of_the_traceback() -> None:
    error = StorageError("disk full", hint=Hint.of("free space"))
    assert (str(error), error.message) == ("disk full", "disk full")
    assert error.describe().endswith("free space")
    assert error.__notes__ == ["hint: free space"]
    error.set_hint(Hint.of("get disks"))
    assert error.__notes__ == ["hint: get disks"]
    assert StorageError("disk full").describe() == "disk full"


@pytest.mark.parametrize(
    ("kind", "code", "options"),
    [
        ("example", "invalid-example", None),
        ("oversized", "record-too-large", [Option("max_record")]),
        ("data-crc", "corrupt-file", []),
    ],
)
def test_a_corrupt_file_has_code_and_hint_of_its_fault(
    kind: str, code: str, options: list[Option] | None
) -> None:
    error = CorruptFileError("a", kind, 1, 2, "detail")  # type: ignore[arg-type]
    assert error.code == code
    if options is None:
        assert error.hint is None
        return
    assert error.hint is not None
    assert [part for part in error.hint.parts if isinstance(part, Option)] == options
    assert error.hint.commands == (() if options else (Command.of("salvage", "a", "-o", "OUT"),))


def test_a_hint_renders_commands_and_options_in_backticks() -> None:
    assert str(HINT) == "do " + "`shardline repair digits/v1`" + ",`mode='rewrite'`"
    written = HINT.render(lambda command: " ".join(command.to_argv("/r")), lambda _: "--mode")
    assert written == "do " + "`shardline repair digits/v1" + " --root /r`" + ",`--mode`"
    assert HINT.commands == (Command.of("repair", "digits/v1"),)
    assert HINT.to_dict() == {
        "text": str(HINT),
        "commands": [["shardline", "repair", "digits/v1"]],
    }


def test_a_command_is_quoted_for_the_shell() -> None:
    assert str(Command.of("a;b")) == "shardline 'a;b'"
    assert Hint.run("verify", "x").parts == ("run ", Command.of("verify", "x"))


def test_an_option_is_written_as_a_keyword_argument() -> None:
    options = [Option("workers", 2), Option("deep", value=True), Option("root")]
    assert [str(option) for option in options] == ["workers=2", "deep=True", "root"]


def test_hints_are_joined_and_nested() -> None:
    one, two = Hint.run("a"), Hint.of("b")
    assert Hint.join(" or ", [one, two]).parts == ("run ", Command.of("a"), " or ", "b")
    assert Hint.of(one, "", two).parts == ("run ", Command.of("a"), "b")
    assert not Hint.join(", ", [])
    assert one


def codes_of(expression: ast.expr | None) -> Iterator[str]:
    """Yield the codes that an expression may be, as far as they are literals."""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        yield expression.value
    elif isinstance(expression, ast.IfExp):
        yield from codes_of(expression.body)
        yield from codes_of(expression.orelse)


def used_codes(tree: ast.Module) -> Iterator[str]:
    """Yield each code that is given as `code=`, a parameter's default or a class attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not ast.unparse(node.func).endswith(
            ("_udf", "SkippedSource")  # these have codes of their own
        ):
            pairs: list[tuple[str | None, ast.expr | None]]
            pairs = [(keyword.arg, keyword.value) for keyword in node.keywords]
        elif isinstance(node, ast.arguments):
            names = [argument.arg for argument in node.kwonlyargs]
            pairs = list(zip(names, node.kw_defaults, strict=True))
        elif isinstance(node, ast.ClassDef) and "Error" in ast.unparse(node).partition(":")[0]:
            pairs = [attribute(statement) for statement in node.body]
        else:
            continue
        for name, value in pairs:
            if name == "code":
                yield from codes_of(value)


def attribute(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    """Return name and value of a class attribute; None for other statements."""
    if isinstance(statement, ast.Assign):
        return ast.unparse(statement.targets[0]), statement.value
    if isinstance(statement, ast.AnnAssign):
        return ast.unparse(statement.target), statement.value
    return None, None


@pytest.mark.xdist_group("syntax trees")  # one worker parses all modules
def test_every_code_that_is_used_is_listed() -> None:
    unknown = {
        (str(path), code)
        for path, tree in trees(*PACKAGES)
        for code in used_codes(tree)
        if code not in CODES and code
    }
    assert unknown == set()


@pytest.mark.xdist_group("syntax trees")  # one worker parses all modules
def test_every_listed_code_is_used() -> None:
    texts = {
        node.value
        for path, tree in trees(*PACKAGES)
        if path.name != "error_codes.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert set(CODES) - texts == set()


def test_codes_are_sorted_kebab_case_with_a_sentence_each() -> None:
    assert list(CODES) == sorted(CODES)
    assert [code for code in CODES if not CODE.fullmatch(code)] == []
    assert [code for code, meaning in CODES.items() if not meaning.endswith(".")] == []


def test_used_codes_finds_every_way_to_give_a_code() -> None:
    source = """
class AError(B):
    code: str = "a"
class BError(B):
    code = "b"
def f(*, code: str = "c"): ...
raise X("x", code="d" if y else "e")
@record_udf(code="1")
def g(): ...
"""
    assert sorted(used_codes(ast.parse(source))) == ["a", "b", "c", "d", "e"]
