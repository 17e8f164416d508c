"""Makers of fields on the command line: `module:object`, or `path/to/file.py:object`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import parse_value_assignments
from shardline.cli.output import reserve_stdout
from shardline.hints import Hint
from shardline.text import escape_text, format_list

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from shardline.cli.options import CommandFunction
    from shardline.udf import UDF


_SPELLING = "write `module:object` or `path/to/file.py:object`"
_EXAMPLE = """declare the features of a function like this:

  from shardline import Feature, record_udf

  @record_udf(Feature("length", "int64"), reads=["name"], code="1")
  def length(record):
      return {"length": len(record["name"])}
"""


def load_udfs(options: Iterable[str], option: str = "--udf") -> list[UDF]:
    """The makers of fields that such options name; a usage error says what is wrong with one."""
    return [maker for text in options for maker in _find_udfs(text, option)]


def load_udf(text: str, option: str) -> UDF:
    """The one maker of fields that an option names."""
    makers = _find_udfs(text, option)
    if len(makers) > 1:
        raise UsageError(
            f"{option} {text}: expected a single function, got {len(makers)}",
            code="invalid-udf",
            hint="name an element of the list",
        )
    return makers[0]


def load_filter(text: str) -> UDF | str:
    """Return the function that `--where` names, or its text if that is a predicate."""
    # After its last colon a predicate has the quote that ends a text or a name.
    _, colon, name = text.rpartition(":")
    return load_udf(text, "--where") if colon and name.isidentifier() else text


def _find_udfs(text: str, option: str) -> list[UDF]:
    from shardline.udf.udf_declaration import is_udf

    where, colon, name = text.rpartition(":")
    if not colon or not where or not name:
        raise UsageError(
            f"{option} {text}: expected MODULE:OBJECT", code="invalid-udf", hint=_SPELLING
        )
    reserve_stdout()
    module = _load_module(where, f"{option} {text}")
    try:
        found = getattr(module, name)
    except AttributeError:
        raise UsageError(
            f"{option} {text}: {where} has no {name!r}",
            code="udf-not-found",
            hint=_list_candidates(module),
        ) from None
    listed = list(found) if isinstance(found, list | tuple) else [found]
    if not listed:
        raise UsageError(f"{option} {text}: empty list", code="invalid-udf", hint=_EXAMPLE)
    for one in listed:
        if not is_udf(one):
            inside = "" if one is found else "element: "
            raise UsageError(
                f"{option} {text}: {inside}{_describe_kind(one)} does not declare its features",
                code="invalid-udf",
                hint=_EXAMPLE,
            )
    return listed


def _load_module(where: str, what: str) -> ModuleType:
    # On failures TensorFlow warns on stderr, with values of records. It is set before its import.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    of_file = where.endswith(".py") or "/" in where
    try:
        return _import_file(Path(where)) if of_file else _import_module(where)
    except UsageError as error:
        problem = error.problem
        raise UsageError(
            f"{what}: {error.message}", code=problem.code, hint=problem.hint, path=problem.path
        ) from None
    except (Exception, SystemExit) as error:
        from shardline.udf.udf_result import format_exception

        if isinstance(error, ModuleNotFoundError) and _is_missing_module(error.name, where):
            raise UsageError(
                f"{what}: module {error.name!r} not found",
                code="udf-not-found",
                hint=Hint.of(f"searched {Path.cwd()} and the installed packages; ", _SPELLING),
            ) from None
        raise UsageError(
            f"{what}: importing {where} failed{_format_error_line(error)}: "
            f"{format_exception(error)}",
            code="udf-import-failed",
        ) from error


def _import_module(name: str) -> ModuleType:
    """A module as `python -m` finds it: in the current folder first."""
    here = str(Path.cwd())
    if not {here, ""} & set(sys.path[:1]):
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _import_file(path: Path) -> ModuleType:
    """A module of a file, wherever that lies; what lies beside it can be imported from it."""
    import cloudpickle

    if not path.is_file():
        raise UsageError(
            f"file not found: {path}",
            code="file-not-found",
            hint=f"did you mean {path}.py?"
            if path.with_name(f"{path.name}.py").is_file()
            else None,
            path=path,
        )
    whole = path.resolve()
    # No module that is installed can have this name.
    name = str(whole)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, whole)
    if spec is None or spec.loader is None:
        raise UsageError(
            f"{path} is not a Python file",
            code="invalid-udf",
            hint="rename it to end in `.py`",
            path=path,
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(whole.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    # The processes in which a function may run cannot import it by that name.
    cloudpickle.register_pickle_by_value(module)
    return module


def _is_missing_module(missing: str | None, where: str) -> bool:
    """Whether the module that is missing is the one that was asked for, or holds it."""
    return missing is not None and (where == missing or where.startswith(f"{missing}."))


def _format_error_line(error: BaseException) -> str:
    """In which line of the user's own files something was raised, as far as can be told."""
    if isinstance(error, SyntaxError):
        return ""  # it tells itself
    ours = str(Path(__file__).parents[1])
    others = ("<", ours, *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))
    found, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(others):
            found = f" in line {trace.tb_lineno} of {name}"
        trace = trace.tb_next
    return found


def _list_candidates(module: ModuleType) -> str:
    """List the objects of a module that declare features, or show how to."""
    names = sorted(name for name, value in vars(module).items() if _is_udf(value))
    return f"choose from {', '.join(names)}" if names else _EXAMPLE


def _is_udf(value: Any) -> bool:  # noqa: ANN401 - whatever stands in a module
    from shardline.udf.udf_declaration import is_udf

    if isinstance(value, list | tuple) and value:
        return all(map(is_udf, value))
    return is_udf(value)


def _describe_kind(value: object) -> str:
    """A thing by its kind."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if callable(value):
        return "a plain function"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


_JOIN_OPTIONS = {
    "key": "--key",
    "table_key": "--table-key",
    "columns": "--columns",
    "on_missing": "--on-missing",
    "defaults": "--default",
    "on_duplicate": "--on-duplicate",
}


def udf_option(command: CommandFunction) -> CommandFunction:
    """--udf."""
    return click.option(
        "udfs",
        "--udf",
        multiple=True,
        metavar="MODULE:OBJECT",
        help="Function, or list of functions, that computes new features: in a module "
        "or in path/to/file.py. Repeatable.",
    )(command)


def join_options(command: CommandFunction) -> CommandFunction:
    """--join and what belongs to it."""
    for option in (
        click.option(
            "--on-duplicate",
            type=click.Choice(["fail", "first", "last"]),
            help="Row to use for a duplicate key in TABLE.  [default: fail]",
        ),
        click.option(
            "defaults",
            "--default",
            multiple=True,
            metavar="NAME=VALUE",
            help="Value of a feature for records whose key is not in TABLE, one per "
            "feature. Repeatable.",
        ),
        click.option(
            "--on-missing",
            type=click.Choice(["fail", "absent"]),
            help="For a key that is not in TABLE: fail, or leave the features absent. Not "
            "with --default.  [default: fail]",
        ),
        click.option(
            "--columns", metavar="A,B", help="Columns to take.  [default: all but the key]"
        ),
        click.option(
            "--table-key",
            metavar="COLUMN",
            help="Key column of TABLE.  [default: the name of the key]",
        ),
        click.option(
            "--key", metavar="FEATURE", help="Feature whose value selects the row of TABLE."
        ),
        click.option(
            "tables",
            "--join",
            multiple=True,
            metavar="TABLE",
            help="Add features from a CSV, JSON lines, Parquet or Arrow file: a path or a URI.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class UdfOptions:
    """What was asked for."""

    udfs: tuple[str, ...]
    tables: tuple[str, ...]
    key: str | None
    table_key: str | None
    columns: str | None
    on_missing: str | None
    defaults: tuple[str, ...]
    on_duplicate: str | None

    def load(self) -> list[UDF]:
        """The makers of fields, those of functions first; a usage error if there are none."""
        if not self.udfs and not self.tables:
            raise UsageError(
                "no features to add",
                code="missing-option",
                hint="pass `--udf MODULE:OBJECT`, or `--join TABLE --key FEATURE`",
            )
        joins = [self._join()] if self.tables else []
        if not self.tables:
            for name, option in _JOIN_OPTIONS.items():
                if getattr(self, name):
                    raise UsageError(
                        f"{option} requires --join",
                        code="missing-option",
                        hint="add `--join TABLE`",
                    )
        return [*load_udfs(self.udfs), *joins]

    def _join(self) -> UDF:
        from shardline.udf import table_join

        if len(self.tables) > 1:
            raise UsageError(
                f"--join: expected a single table, got {len(self.tables)}",
                code="invalid-option-value",
                hint=Hint.of(
                    "declare others as `table_join('table.csv', key='id')` in a Python file, ",
                    "and pass them with `--udf`",
                ),
            )
        (table,) = self.tables
        if self.key is None:
            raise UsageError(
                f"--join {table}: missing key", code="missing-option", hint="add `--key FEATURE`"
            )
        if "://" not in table and not Path(table).is_file():
            raise UsageError(f"--join {table}: file not found", code="file-not-found", path=table)
        if self.defaults and self.on_missing:
            raise UsageError(
                f"--default and --on-missing {self.on_missing} exclude each other",
                code="conflicting-options",
                hint=f"`--default` is for records whose key is not in {table}",
            )
        chosen: dict[str, Any] = {"on_missing": "default"} if self.defaults else {}
        chosen |= {"on_missing": self.on_missing} if self.on_missing else {}
        chosen |= {"on_duplicate": self.on_duplicate} if self.on_duplicate else {}
        return table_join(
            table,
            self.key,
            features=None if self.columns is None else self._named_columns(self.columns),
            table_key=self.table_key,
            defaults=parse_value_assignments(self.defaults, "--default"),
            **chosen,
        )

    def _named_columns(self, columns: str) -> list[str]:
        names = [name.strip() for name in columns.split(",")]
        if not all(names) or len(set(names)) < len(names):
            raise UsageError(
                f"invalid --columns {columns!r}: expected distinct names",
                code="invalid-option-value",
                hint="write them like `--columns a,b`",
            )
        return names


def print_unversioned_udfs(udfs: Iterable[UDF]) -> None:
    """Name the functions without a code version, whose results are never used again."""
    names = [udf.label for udf in udfs if udf.identity() is None]
    if names:
        click.echo(
            f"  {escape_text(format_list(names))} {'has' if len(names) == 1 else 'have'} "
            "no code version, "
            'so all is computed anew each time: declare one, as in code="1"'
        )
