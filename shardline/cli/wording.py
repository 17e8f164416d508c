"""Numbers and names as people read them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 record`, `12,345 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def human_bytes(size: float) -> str:
    """`512 bytes`, `1.5 MB`, in powers of 1024."""
    if size < 1024:
        return f"{size:.0f} bytes"
    for unit in ("KB", "MB", "GB", "TB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} PB"


def escaped(text: str) -> str:
    """A foreign text without anything that a terminal would obey."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()
