"""Local paths that users give."""

from __future__ import annotations

import os
from pathlib import Path


def real_path(path: Path | str) -> Path:
    """Return a path without symbolic links. Unlike `Path.resolve`, never fails at a loop."""
    return Path(os.path.realpath(path))
