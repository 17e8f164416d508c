"""Base of histories and indexes: columns of a checkpoint, and edits that are folded in later."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    import pyarrow as pa

Columns = TypeVar("Columns")
Edits = TypeVar("Edits", bound="list[Any] | dict[Any, Any]")


class EditedColumns(ABC, Generic[Columns, Edits]):
    """Columns with pending edits, so that an entry costs what it changes.

    `load` returns the table of a checkpoint when it is needed.
    """

    max_edits: ClassVar[int]
    """A fork with more edits folds them first, because it copies them."""

    def __init__(self, edits: Edits, load: Callable[[], pa.Table] | None) -> None:
        self._edits = edits
        self._load = load
        self._columns: Columns | None = None

    def fork(self) -> Self:
        """Return a copy that can diverge."""
        if len(self._edits) > self.max_edits:
            self._fold()
        other = copy.copy(self)
        other._edits = self._edits.copy()  # type: ignore[assignment] # noqa: SLF001 - its copy
        return other

    @abstractmethod
    def _read(self, table: pa.Table | None) -> Columns:
        """Convert the table of a checkpoint; None for an empty log."""

    @abstractmethod
    def _apply(self, columns: Columns) -> Columns:
        """Return new columns with all edits."""

    def _get_stored(self) -> Columns:
        """Return the columns without the pending edits."""
        if self._columns is None:
            self._columns = self._read(None if self._load is None else self._load())
        return self._columns

    def _fold(self) -> Columns:
        """Fold the edits in and return the columns."""
        columns = self._get_stored()
        if self._edits:
            columns = self._columns = self._apply(columns)
            self._edits.clear()
        return columns
