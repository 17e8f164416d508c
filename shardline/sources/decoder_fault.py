"""Fault messages that a decoder sends to its parent process.

This module imports almost nothing, so that the decoder starts quickly.
"""

from __future__ import annotations

from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

POSITION = Struct("<2q")
"""First row of a batch and bytes of the file read so far; or an offset and a size."""
_NUMBERS = Struct("<3q")
_UNKNOWN = -1


class DecoderFault(Exception):  # noqa: N818 - raised in the decoder, and sent
    """Location and reason of a file that cannot be decoded."""

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        column: str | None = None,
        part: int | None = None,
        row: int | None = None,
        size: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.column = column
        self.part = part
        self.row = row
        self.size = size

    def pack(self) -> list[bytes]:
        """Encode as the parts of a message."""
        numbers = (self.part, self.row, self.size)
        packed = _NUMBERS.pack(*(_UNKNOWN if number is None else number for number in numbers))
        column = [] if self.column is None else [_encode(self.column)]
        return [packed, _encode(self.code), _encode(self.detail), *column]

    @classmethod
    def unpack(cls, parts: Sequence[bytes]) -> DecoderFault:
        """Decode from the parts of a message."""
        packed, code, detail, *column = parts
        part, row, size = (None if number < 0 else number for number in _NUMBERS.unpack(packed))
        return cls(
            _decode(code),
            _decode(detail),
            column=_decode(column[0]) if column else None,
            part=part,
            row=row,
            size=size,
        )


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")
