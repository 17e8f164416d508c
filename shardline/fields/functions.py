"""What all functions that make fields have in common: what they declare, and who they are."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from pathlib import PurePath
from threading import local
from typing import TYPE_CHECKING, Any, ClassVar

import cloudpickle

from shardline.errors import FieldsError
from shardline.fields.declared import (
    checked_code,
    checked_features,
    checked_reads,
    found_features,
)
from shardline.fields.source_digest import source_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shardline.fields.bound import Bound
    from shardline.log.facts import Json
    from shardline.log.schema import Feature, Schema


@dataclass(frozen=True, slots=True)
class FunctionFields(ABC):
    """A function and the fields that it makes. It can still be called as it was written.

    One that is not `deterministic` may make others of the same record another time: an audit does
    not ask it again. With `check_source` off, a version may be continued with a changed function.
    """

    function: Callable[[Any], Any]
    features: tuple[Feature, ...]
    reads: tuple[str, ...] | None
    code: str | None
    deterministic: bool = True
    check_source: bool = True

    maker: ClassVar[str]
    """Which kind of function this is."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not callable(self.function):
            raise FieldsError(
                f"invalid UDF: expected a function, got {type(self.function).__name__}",
                code="invalid-udf",
            )
        object.__setattr__(self, "features", checked_features(self.shown, self.features))
        if self.reads is not None:
            object.__setattr__(self, "reads", checked_reads(self.shown, self.reads))
        checked_code(self.shown, self.code)

    def __reduce__(self) -> tuple[Any, ...]:
        # The function's name stands for this object now, so that only cloudpickle can send it.
        function, *declared = (getattr(self, one.name) for one in fields(self))
        sending = _SENDING.__dict__.setdefault("fields", set[int]())
        if id(self) in sending:  # the function refers to itself
            return type(self), (function, *declared)
        sending.add(id(self))
        try:
            return _again, (type(self), cloudpickle.dumps(function), *declared)
        finally:
            sending.discard(id(self))

    def __call__(self, given: Any) -> Any:  # noqa: ANN401 - the function's own
        """What the function makes."""
        return self.function(given)

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def shown(self) -> str:
        """The function as messages call it."""
        return f"function {self.name!r}"

    def identity(self) -> Json | None:
        """All that its results depend on besides the records; None without a code version.

        A hash of its source would miss imported code and files of models, so that a code version
        has to be declared; `source_digest` only notices changes that it was not changed for.
        """
        if self.code is None:
            return None
        return {
            "maker": self.maker,
            "function": f"{_module_of(self.function)}:{self.name}",
            "features": told_features(self.features),
            "reads": None if self.reads is None else list(self.reads),
            "code": self.code,
        }

    def source_digest(self) -> str | None:
        """Return a digest of the function's source; None if it has none."""
        return source_digest(self.function)

    def settled(self) -> FunctionFields:
        """The same: a function is what it is."""
        return self

    @abstractmethod
    def bind(self, schema: Schema) -> Bound:
        """The function for records of this schema."""

    def validate(self, schema: Schema) -> None:
        """Raise SchemaMismatchError if records of this schema lack what it reads."""
        self._found(schema)

    def _found(self, schema: Schema) -> list[Feature]:
        return found_features(self.shown, self.reads, schema)


def _module_of(function: Callable[[Any], Any]) -> str:
    """The module of a function, whether it was loaded by its name or, as commands may, by its path.

    So what was computed is found again in another folder, or under the other name.
    """
    name = str(getattr(function, "__module__", ""))
    return PurePath(name).stem if "/" in name else name


_SENDING = local()


def _again(
    kind: type[FunctionFields],
    function: bytes,
    *declared: Any,  # noqa: ANN401 - the fields of the class
) -> FunctionFields:
    return kind(pickle.loads(function), *declared)  # noqa: S301 - part of what is being loaded


def told_features(features: Iterable[Feature]) -> list[Json]:
    """The features as an identity tells them: docs make no difference."""
    return [replace(feature, doc="").to_json() for feature in features]
