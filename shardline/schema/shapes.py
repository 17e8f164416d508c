"""Shapes of values, and when values of one shape can be read in another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, TypeAlias

from shardline.arguments import list_items
from shardline.codec import Converter
from shardline.errors import SchemaMismatchError
from shardline.hints import Hint
from shardline.kernel.types import LARGEST_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable

Shape: TypeAlias = tuple[int | None, ...]
"""`()` is one value, `(28, 28)` is fixed, `(None, 3)` is any number of triples.

Only the first dimension may be None.
"""
StoredShape: TypeAlias = Annotated[Shape, Converter(list, list, lambda sizes, _: tuple(sizes))]
"""Shape in JSON. The class that has it validates it with `validate_shape`."""


def validate_shape(
    subject: str, shape: Iterable[int | None], *, feature: str | None = None
) -> Shape:
    """Return the shape of `subject` as a tuple. Raises SchemaMismatchError if it is invalid."""
    list_items(shape, f"the shape of {subject}")
    dimensions = tuple(shape)
    for index, size in enumerate(dimensions):
        if size is None and index == 0:
            continue
        if type(size) is not int or size < 1:
            raise SchemaMismatchError(
                f"{subject}: invalid shape {dimensions}",
                code="invalid-shape",
                hint=Hint.of("use whole numbers from 1 on, and None only for the first dimension"),
                feature=feature,
            )
    if unit(dimensions) > LARGEST_OFFSET:
        raise SchemaMismatchError(
            f"{subject}: shape {dimensions} has more values than a record can contain",
            code="invalid-shape",
            feature=feature,
        )
    return dimensions


def is_fixed(shape: Shape) -> bool:
    """Return True if the number of values is fixed."""
    return not shape or shape[0] is not None


def unit(shape: Shape) -> int:
    """Return the number of values, or the number they must be a multiple of."""
    return math.prod(size for size in shape if size is not None)


def holds(shape: Shape, count: int) -> bool:
    """Return True if `count` values have the shape."""
    return count == unit(shape) if is_fixed(shape) else count % unit(shape) == 0


def format_shape(shape: Shape) -> str:
    """Return the shape in short: `[]`, `[8]`, `[?, 3]`."""
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


def fits(new: Shape, old: Shape) -> bool:
    """Return True if all values of shape `new` can be read in shape `old`.

    `old` must accept their number, and the shapes must not split them differently. [4, 2, 3] read
    as [8, 3] or [24] only loses a split, but [2, 3] read as [3, 2] is other data.
    """
    if is_fixed(old):
        included = is_fixed(new) and unit(new) == unit(old)
    else:
        included = unit(new) % unit(old) == 0
    cuts_new, cuts_old = _cuts(new), _cuts(old)
    return included and (cuts_new <= cuts_old or cuts_old <= cuts_new)


def _cuts(shape: Shape) -> set[int]:
    """Return the row lengths of all dimensions, except one value and all values."""
    sizes = {unit(shape[index:]) for index in range(1, len(shape))}
    return sizes - ({1, unit(shape)} if is_fixed(shape) else {1})
