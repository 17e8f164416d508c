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
from shardline.udf.key_join import TableJoin
from shardline.udf.udf_declaration import UDF, FunctionUDF

Udfs: TypeAlias = UDF | Iterable[UDF]
LateUdfs: TypeAlias = Callable[[], Udfs]

_HOW = Hint.of("declare its features with record_udf, batch_udf, tensor_udf, table_join")


@dataclass(frozen=True, slots=True)
class DeclaredUdfs:
    """Makers of fields, or a function without arguments that gives them."""

    given: tuple[UDF, ...] | LateUdfs

    @classmethod
    def of(cls, fields: Udfs | LateUdfs) -> "DeclaredUdfs":
        """Those that were declared; ValueError if they are none."""
        if not callable(fields) or _is_udf(fields):
            return cls(_list_udfs(fields))
        try:
            inspect.signature(fields).bind()
        except TypeError:
            name = getattr(fields, "__name__", type(fields).__name__)
            raise InvalidArgumentError(
                f"function {name!r} declares no features", code="undeclared-udf", hint=_HOW
            ) from None
        return cls(fields)

    @property
    def functions(self) -> tuple[FunctionUDF, ...]:
        """Those that tell what they make before anything is read."""
        given = () if callable(self.given) else self.given
        return tuple(one for one in given if isinstance(one, FunctionUDF))

    @property
    def declared(self) -> tuple[UDF, ...] | None:
        """All makers, None if the features of one are not known before a run."""
        given = () if callable(self.given) else self.given
        known = tuple(
            one
            for one in given
            if isinstance(one, FunctionUDF)
            or (isinstance(one, TableJoin) and one.declared is not None)
        )
        return None if callable(self.given) or len(known) < len(given) else known

    def validate(self, schema: Schema) -> None:
        """Raise ValueError if records of this schema lack what a maker reads."""
        for one in () if callable(self.given) else self.given:
            if isinstance(one, FunctionUDF | TableJoin):
                one.validate(schema)

    def settled(self) -> tuple[UDF, ...]:
        """All of them, with what lies outside of this process read, once."""
        found = self.given() if callable(self.given) else self.given
        return tuple(one.settled() for one in _list_udfs(found))


def _list_udfs(fields: object) -> tuple[UDF, ...]:
    """One or several makers, as several."""
    found = tuple(fields) if isinstance(fields, Iterable) else (fields,)
    for one in found:
        if not _is_udf(one):
            raise InvalidArgumentError(
                f"invalid fields of type {type(one).__name__}", code="undeclared-udf", hint=_HOW
            )
    return found


def _is_udf(one: object) -> bool:
    """Whether it is a maker; those of functions can be called as well."""
    return hasattr(one, "settled") and hasattr(one, "bind")
