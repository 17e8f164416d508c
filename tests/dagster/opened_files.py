"""Which files of a folder this process opens, as its audit events tell."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Opened:
    """How often a folder was listed, and which files below it were opened."""

    folder: Path
    listed: int = 0
    files: list[str] = field(default_factory=list)


class OpenedFiles:
    """An audit hook. It cannot be removed, so a session has a single one, which is mostly idle."""

    def __init__(self) -> None:
        self._opened: Opened | None = None
        sys.addaudithook(self._hear)

    @contextmanager
    def below(self, folder: Path) -> Iterator[Opened]:
        """Note what is opened below a folder."""
        self._opened = Opened(folder.resolve())
        try:
            yield self._opened
        finally:
            self._opened = None

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        opened = self._opened
        if opened is None or event not in {"open", "os.scandir", "os.listdir"}:
            return
        path = arguments[0]
        if not isinstance(path, str | bytes):
            return
        name = os.fsdecode(path)
        if event == "open" and name.startswith(f"{opened.folder}/"):
            opened.files.append(name)
        elif event != "open" and name.startswith(str(opened.folder)):
            opened.listed += 1
