"""Digest of a function's source, to detect a change without a new `code` version.

The digest covers the syntax of the function and of everything it uses from its own module:
helper functions, classes and literals. Comments, docstrings, annotations, decorators and
positions do not count. Imported code, files and models are not covered: the declared code
version remains the authority.
"""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import inspect
import json
import sys
import textwrap
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_IGNORED = frozenset({"annotation", "returns", "decorator_list", "type_comment", "type_params"})
_LITERALS = (bool, int, float, complex, str, bytes, type(None), type(...))
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_MOST_PARTS = 1000


def source_digest(function: Callable[..., Any]) -> str | None:
    """Return a digest such as `ast:1f3c…`, or None for a function not written in Python.

    The word before the colon is the method: digests of different methods are not comparable.
    Without source text, the digest covers the bytecode, which depends on the Python release.
    """
    walk = _FunctionWalk()
    if not walk.add(function):
        return None
    method = "ast" if walk.of_source else f"code-{sys.version_info.major}.{sys.version_info.minor}"
    text = json.dumps(walk.parts, sort_keys=True, default=repr)
    return f"{method}:{hashlib.sha256(text.encode()).hexdigest()}"


class _FunctionWalk:
    """Traversal of a function and its uses within its module, each once, in order of use."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.of_source = True
        self._seen: set[int] = set()
        self._assigned: set[str] = set()

    def add(self, value: object) -> bool:
        """Add a callable; return False if it is not written in Python."""
        value = _unwrap_function(value)
        if id(value) in self._seen or len(self.parts) > _MOST_PARTS:
            return True
        self._seen.add(id(value))
        if isinstance(value, functools.partial):
            self._add_values((value.args, tuple(sorted(value.keywords.items()))))
            return self.add(value.func)
        if isinstance(value, MethodType):
            return self.add(value.__func__)
        if isinstance(value, type):
            return self._add_class(value)
        if isinstance(value, FunctionType):
            self._add_function(value)
            return True
        return callable(value) and self.add(type(value))

    def _add_function(self, function: FunctionType) -> None:
        node = _find_function_node(function)
        if node is None:
            self.of_source = False
            self.parts.append(_list_code_parts(function.__code__))
            self._add_values((function.__defaults__, function.__kwdefaults__))
        else:
            self.parts.append(_encode_syntax(node))
        codes = list(_iter_codes(function.__code__))
        self._assigned |= {name for code in codes for name in _assigned(code)}
        for cell in function.__closure__ or ():
            try:
                self._add_used(cell.cell_contents, function.__module__)
            except ValueError:  # Not filled yet: the function refers to itself.
                continue
        literals = _get_module_literals(function.__module__)
        for name in dict.fromkeys(name for code in codes for name in code.co_names):
            if name in literals and name not in self._assigned:
                self.parts.append([name, literals[name]])
            elif name in function.__globals__:
                self._add_definition(function.__globals__[name], function.__module__)

    def _add_class(self, kind: type) -> bool:
        node = _parse_source(kind)
        if not isinstance(node, ast.ClassDef):
            return False
        self.parts.append(_encode_syntax(node))
        return True

    def _add_used(self, value: object, module: str) -> None:
        if not self._add_values(value):
            self._add_definition(value, module)

    def _add_definition(self, value: object, module: str) -> None:
        """Add a function or class of the same module; other modules have their own releases."""
        value = _unwrap_function(value)
        if isinstance(value, FunctionType | type) and value.__module__ == module:
            self.add(value)

    def _add_values(self, value: object) -> bool:
        if not _is_literal(value):
            return False
        self.parts.append(repr(value))
        return True


def _unwrap_function(value: object) -> object:
    """Return the function of a UDF object, else the value itself."""
    from shardline.udf.udf_declaration import FunctionUDF  # noqa: PLC0415 - it builds on us

    while isinstance(value, FunctionUDF):
        value = value.function
    return inspect.unwrap(value) if isinstance(value, FunctionType) else value


def _find_function_node(function: FunctionType) -> ast.AST | None:
    """Return the syntax tree of a function; None without source, or if ambiguous."""
    node = _parse_source(function)
    if node is None or function.__name__ != "<lambda>":
        # After an edit of the file, the lines may belong to another function.
        is_it = getattr(node, "name", None) == function.__code__.co_name
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        return node if is_it and is_function else None
    lambdas = [child for child in ast.walk(node) if isinstance(child, ast.Lambda)]
    return lambdas[0] if len(lambdas) == 1 else None


def _parse_source(value: FunctionType | type) -> ast.AST | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    named = value.__name__ != "<lambda>"
    return tree.body[0] if named and len(tree.body) == 1 else None if named else tree


def _encode_syntax(node: object) -> Any:  # noqa: ANN401 - nested lists of text
    """Return syntax as JSON, without parts that do not affect results."""
    if isinstance(node, list):
        return [_encode_syntax(child) for child in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, _DEFINITIONS):
            value = _drop_docstring(value)  # noqa: PLW2901 - shorter
        if name in _IGNORED or value is None or value == []:
            continue
        parts.append([name, _encode_syntax(value)])
    return [type(node).__name__, parts]


def _drop_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return body[1:] if is_text and isinstance(first.value.value, str) else body  # type: ignore[union-attr] # checked above


def _list_code_parts(code: CodeType) -> list[Any]:
    consts = [
        _list_code_parts(constant) if isinstance(constant, CodeType) else repr(constant)
        for constant in code.co_consts
    ]
    return [code.co_code.hex(), list(code.co_names), list(code.co_varnames), consts]


def _iter_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _iter_codes(constant)


def _assigned(code: CodeType) -> Iterator[str]:
    """Yield the globals that code assigns, because they change at run time."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in {"STORE_GLOBAL", "DELETE_GLOBAL"}:
            yield str(instruction.argval)


def _get_module_literals(name: str) -> dict[str, Any]:
    """Return the syntax of the literals that a module assigns once at top level."""
    module = sys.modules.get(name)
    return {} if module is None else _parse_literals(module)


@functools.lru_cache(maxsize=64)
def _parse_literals(module: ModuleType) -> dict[str, Any]:
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    literals: dict[str, Any] = {}
    twice = set()
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        for target in targets:
            if isinstance(target, ast.Name):
                twice |= {target.id} & set(literals)
                literals[target.id] = value
    return {
        name: _encode_syntax(value)
        for name, value in literals.items()
        if name not in twice and value is not None and _is_literal_syntax(value)
    }


def _is_literal_syntax(node: ast.AST) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _is_literal(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_literal, value))
    return isinstance(value, _LITERALS)
