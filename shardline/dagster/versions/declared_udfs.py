"""The makers of fields in a declaration, which may be had only when it runs.

So a table need not be there, nor TensorFlow be loaded, when the code location loads.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from shardline.errors import InvalidArgumentError
from shardline.hints import Hint
from shardline.schema.schema import Schema
from shardline.udf.table_join import JoinedFields
from shardline.udf.udf_declaration import Fields, FunctionFields

Makers: TypeAlias = Fields | Iterable[Fields]
LateMakers: TypeAlias = Callable[[], Makers]

_HOW = Hint.of(
    "declare its features with record_fields, batch_fields, tensor_fields, joined_fields"
)


@dataclass(frozen=True, slots=True)
class DeclaredMakers:
    """Makers of fields, or a function without arguments that gives them."""

    given: tuple[Fields, ...] | LateMakers

    @classmethod
    def of(cls, fields: Makers | LateMakers) -> "DeclaredMakers":
        """Those that were declared; ValueError if they are none."""
        if not callable(fields) or _is_maker(fields):
            return cls(_listed(fields))
        try:
            inspect.signature(fields).bind()
        except TypeError:
            name = getattr(fields, "__name__", type(fields).__name__)
            raise InvalidArgumentError(
                f"function {name!r} declares no features", code="undeclared-udf", hint=_HOW
            ) from None
        return cls(fields)

    @property
    def functions(self) -> tuple[FunctionFields, ...]:
        """Those that tell what they make before anything is read."""
        given = () if callable(self.given) else self.given
        return tuple(one for one in given if isinstance(one, FunctionFields))

    @property
    def declared(self) -> tuple[Fields, ...] | None:
        """All makers, None if the features of one are not known before a run."""
        given = () if callable(self.given) else self.given
        known = tuple(
            one
            for one in given
            if isinstance(one, FunctionFields)
            or (isinstance(one, JoinedFields) and one.declared is not None)
        )
        return None if callable(self.given) or len(known) < len(given) else known

    def validate(self, schema: Schema) -> None:
        """Raise ValueError if records of this schema lack what a maker reads."""
        for one in () if callable(self.given) else self.given:
            if isinstance(one, FunctionFields | JoinedFields):
                one.validate(schema)

    def settled(self) -> tuple[Fields, ...]:
        """All of them, with what lies outside of this process read, once."""
        found = self.given() if callable(self.given) else self.given
        return tuple(one.settled() for one in _listed(found))


def _listed(fields: object) -> tuple[Fields, ...]:
    """One or several makers, as several."""
    found = tuple(fields) if isinstance(fields, Iterable) else (fields,)
    for one in found:
        if not _is_maker(one):
            raise InvalidArgumentError(
                f"invalid fields of type {type(one).__name__}", code="undeclared-udf", hint=_HOW
            )
    return found


def _is_maker(one: object) -> bool:
    """Whether it is a maker; those of functions can be called as well."""
    return hasattr(one, "settled") and hasattr(one, "bind")
