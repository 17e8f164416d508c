"""Imports deferred to first use, so that `import shardline` costs next to nothing."""

from __future__ import annotations

import importlib
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def load(module: str, name: str) -> Any:  # noqa: ANN401 - any public name
    """Import a module and return one of its names."""
    return getattr(importlib.import_module(module), name)


class LazyMethod:
    """Method that is a function of another module, imported on first use.

    The instance is the first argument of the function. Signature and docstring are those of the
    function, so that they exist once.
    """

    def __init__(self, module: str, function: str) -> None:
        self._module = module
        self._function = function

    def __get__(self, instance: object | None, owner: type | None = None) -> Callable[..., Any]:
        function: Callable[..., Any] = load(self._module, self._function)
        return function if instance is None else MethodType(function, instance)
