"""What the data does not tell of itself: under which terms it may be used, and where it is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class About:
    """What the owner of a dataset says of it, for a card or a Croissant file; all may be empty."""

    license: str = ""
    url: str = ""
    creator: str = ""
    citation: str = ""


NOTHING_SAID = About()
