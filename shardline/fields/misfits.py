"""What a function gave for several records together, where that is not what was declared.

Which of the records it lies at cannot be told, so all of them are named.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from shardline.errors import FieldsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.hints import Hint


class BatchMisfit(FieldsError):  # noqa: N818 - operations tell it with the file
    """Why no fields can be made of some records. They are counted from the start of the batch."""

    def __init__(
        self,
        first: int,
        last: int,
        detail: str,
        *,
        code: str | None = None,
        hint: Hint | None = None,
        feature: str | None = None,
    ) -> None:
        which = f"record {first}" if first == last else f"records {first} to {last}"
        super().__init__(f"{which}: {detail}", code=code, hint=hint, record=first, feature=feature)
        self.first = first
        self.last = last
        self.detail = detail

    def moved(self, by: int) -> BatchMisfit:
        """The same in a batch that has so many records before them."""
        return BatchMisfit(
            self.first + by,
            self.last + by,
            self.detail,
            code=self.code,
            hint=self.hint,
            feature=self.feature,
        )


@contextmanager
def of_piece(first: int) -> Iterator[None]:
    """While a piece of a batch is done that begins with the record `first` of it."""
    try:
        yield
    except BatchMisfit as error:
        raise error.moved(first) from error.__cause__
