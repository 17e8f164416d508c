"""Shapes: how many values stand together, and when one shape's values fit another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from shardline.arguments import list_items
from shardline.errors import SchemaMismatchError
from shardline.hints import Hint
from shardline.kernel.types import LARGEST_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable

Shape: TypeAlias = tuple[int | None, ...]
"""`()` one value, `(28, 28)` fixed, `(None, 3)` any number of triples. Only the first dimension
may be None."""


def checked(what: str, shape: Iterable[int | None], *, feature: str | None = None) -> Shape:
    """The shape of `what`, refused if no values can have it."""
    list_items(shape, f"the shape of {what}")
    dimensions = tuple(shape)
    for place, size in enumerate(dimensions):
        if size is None and place == 0:
            continue
        if type(size) is not int or size < 1:
            raise SchemaMismatchError(
                f"{what}: invalid shape {dimensions}",
                code="invalid-shape",
                hint=Hint.of("use whole numbers from 1 on, and None only for the first dimension"),
                feature=feature,
            )
    if unit(dimensions) > LARGEST_OFFSET:
        raise SchemaMismatchError(
            f"{what}: shape {dimensions} has more values than a record can contain",
            code="invalid-shape",
            feature=feature,
        )
    return dimensions


def is_fixed(shape: Shape) -> bool:
    """Whether the number of values is always the same."""
    return not shape or shape[0] is not None


def unit(shape: Shape) -> int:
    """The number of values; where any number may stand, what it must be a multiple of."""
    return math.prod(size for size in shape if size is not None)


def holds(shape: Shape, count: int) -> bool:
    """Whether so many values have the shape."""
    return count == unit(shape) if is_fixed(shape) else count % unit(shape) == 0


def shown(shape: Shape) -> str:
    """The shape in short: `[]`, `[8]`, `[?, 3]`."""
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


def fits(new: Shape, old: Shape) -> bool:
    """Whether all values of the shape `new` can be read in the shape `old`.

    Their number must be one that `old` takes, and the two must not cut them at odds: [4, 2, 3]
    read as [8, 3] or [24] only loses a cut, [2, 3] read as [3, 2] is another thing.
    """
    if is_fixed(old):
        included = is_fixed(new) and unit(new) == unit(old)
    else:
        included = unit(new) % unit(old) == 0
    cuts_new, cuts_old = _cuts(new), _cuts(old)
    return included and (cuts_new <= cuts_old or cuts_old <= cuts_new)


def _cuts(shape: Shape) -> set[int]:
    """After how many values a row of some dimension ends, other than after one or after all."""
    sizes = {unit(shape[place:]) for place in range(1, len(shape))}
    return sizes - ({1, unit(shape)} if is_fixed(shape) else {1})
