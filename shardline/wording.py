"""Numbers with their nouns, as people read them."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 record`, `12,345 records`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
