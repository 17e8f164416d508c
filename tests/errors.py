"""Assert on structured errors: the code and where the problem is, not the sentence."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest

from shardline.errors import ShardlineError

if TYPE_CHECKING:
    from collections.abc import Iterator

Problem = TypeVar("Problem", bound=ShardlineError)


@contextmanager
def raises(
    kind: type[Problem], code: str, **fields: object
) -> Iterator[pytest.ExceptionInfo[Problem]]:
    """Expect an error of this class with this code and these fields, e.g. `record=3`."""
    with pytest.raises(kind) as caught:
        yield caught
    expected = {"code": code, **fields}
    assert {name: getattr(caught.value, name) for name in expected} == expected
