"""Deferred imports: load a library without the slow libraries that it imports but seldom uses."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


class _DeferredModule(ModuleType):
    """A placeholder that imports its module when an attribute is first used."""

    def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401 - attributes have any type
        _remove(self)
        return getattr(importlib.import_module(self.__name__), attribute)


@contextmanager
def deferred_imports(*names: str) -> Iterator[None]:
    """Defer imports of the named modules inside the block until their first use.

    Modules that are loaded already, or not installed, are left alone. Imports after the block load
    the real modules.
    """
    placeholders = []
    for name in names:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is not None:
            placeholder = _DeferredModule(name)
            placeholder.__spec__ = spec
            sys.modules[name] = placeholder
            placeholders.append(placeholder)
    try:
        yield
    finally:
        for placeholder in placeholders:
            _remove(placeholder)


def _remove(placeholder: ModuleType) -> None:
    if sys.modules.get(placeholder.__name__) is placeholder:
        del sys.modules[placeholder.__name__]
