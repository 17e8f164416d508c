"""A store that notes what is read from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.storage.faulty import FaultyStore

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence

    from shardline.storage import Store


class RecordingStore(FaultyStore):
    """Passes requests on, and adds the name of each object that is read to a list."""

    def __init__(self, inner: Store, names: builtins.list[str]) -> None:
        super().__init__(inner)
        self._names = names

    def read(self, name: str) -> bytes:
        self._names.append(name)
        return super().read(name)

    def read_many(self, names: Sequence[str]) -> builtins.list[bytes | None]:
        self._names.extend(names)
        return super().read_many(names)

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        self._names.append(name)
        return super().read_ranges(name, ranges)
