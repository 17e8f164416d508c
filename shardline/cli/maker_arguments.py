"""Makers of fields on the command line: `module:object`, or `path/to/file.py:object`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.json_told import keep_stdout

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from shardline.fields import Fields

_HOW = "write module:object, or path/to/file.py:object"
_ONE = """a maker of fields is declared like this:

  from shardline import Feature, record_fields

  @record_fields(Feature("length", "int64"), reads=["name"], code="1")
  def length(record):
      return {"length": len(record["name"])}
"""


def load_makers(options: Iterable[str], option: str = "--fields") -> list[Fields]:
    """The makers of fields that such options name; a usage error says what is wrong with one."""
    return [maker for text in options for maker in _makers(text, option)]


def load_maker(text: str, option: str) -> Fields:
    """The one maker of fields that an option names."""
    makers = _makers(text, option)
    if len(makers) > 1:
        raise click.UsageError(f"{option} {text} is a list of {len(makers)}: name one of them")
    return makers[0]


def _makers(text: str, option: str) -> list[Fields]:
    from shardline.fields.bound import is_maker

    where, colon, name = text.rpartition(":")
    if not colon or not where or not name:
        raise click.UsageError(f"{option} {text}: {_HOW}")
    keep_stdout()
    module = _loaded(where, f"{option} {text}")
    try:
        found = getattr(module, name)
    except AttributeError:
        raise click.UsageError(f"{option} {text}: {where} has no {name!r}{_has(module)}") from None
    listed = list(found) if isinstance(found, list | tuple) else [found]
    if not listed:
        raise click.UsageError(f"{option} {text} is an empty list; {_ONE}")
    for one in listed:
        if not is_maker(one):
            inside = "" if one is found else "has a value in it that "
            raise click.UsageError(
                f"{option} {text} {inside}is {_what(one)}, which does not say which fields it "
                f"makes; {_ONE}"
            )
    return listed


def _loaded(where: str, what: str) -> ModuleType:
    # On failures TensorFlow warns on stderr, with values of records. It is set before its import.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    of_file = where.endswith(".py") or "/" in where
    try:
        return _from_file(Path(where)) if of_file else _from_path(where)
    except click.UsageError as error:
        raise click.UsageError(f"{what}: {error.message}") from None
    except (Exception, SystemExit) as error:
        from shardline.fields.made import in_words

        if isinstance(error, ModuleNotFoundError) and _is_of(error.name, where):
            raise click.UsageError(
                f"{what}: no module {error.name!r} in the folder {Path.cwd()}, and none is "
                f"installed; {_HOW}"
            ) from None
        raise click.UsageError(
            f"{what}: importing {where} failed{_line(error)}: {in_words(error)}"
        ) from error


def _from_path(name: str) -> ModuleType:
    """A module as `python -m` finds it: in the current folder first."""
    here = str(Path.cwd())
    if not {here, ""} & set(sys.path[:1]):
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    """A module of a file, wherever that lies; what lies beside it can be imported from it."""
    import cloudpickle

    if not path.is_file():
        hint = f"; is {path}.py meant?" if path.with_name(f"{path.name}.py").is_file() else ""
        raise click.UsageError(f"no such file: {path}{hint}")
    whole = path.resolve()
    # No module that is installed can have this name.
    name = str(whole)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, whole)
    if spec is None or spec.loader is None:
        raise click.UsageError(f"{path} is no Python file: its name must end in .py")
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


def _is_of(missing: str | None, where: str) -> bool:
    """Whether the module that is missing is the one that was asked for, or holds it."""
    return missing is not None and (where == missing or where.startswith(f"{missing}."))


def _line(error: BaseException) -> str:
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


def _has(module: ModuleType) -> str:
    """What of a module could be meant."""
    names = sorted(name for name, value in vars(module).items() if _offers(value))
    if names:
        return f"; its makers of fields are {', '.join(names)}"
    return f", and no maker of fields at all; {_ONE}"


def _offers(value: Any) -> bool:  # noqa: ANN401 - whatever stands in a module
    from shardline.fields.bound import is_maker

    if isinstance(value, list | tuple) and value:
        return all(map(is_maker, value))
    return is_maker(value)


def _what(value: object) -> str:
    """A thing by its kind."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if callable(value):
        return "a plain function"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
