"""The sources of the demo: scikit-learn's handwritten digits as PNG images, in three batches.

Two batches are folders of files and the third is a Parquet file, all with the same features. Files
have a hidden name until they are complete, and are never written again.
"""

import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from assets.digits import LANDING

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

FOLDERS, FILES = LANDING / "folders", LANDING / "files"
_DARKEST, _WHITE = 16, 255


@dataclass(frozen=True, slots=True)
class Digit:
    """A handwritten digit: its number in the collection, its label and its pixels."""

    number: int
    label: str
    pixels: "NDArray[np.uint8]"

    @property
    def path(self) -> str:
        """Path in a batch, in a folder named by the label."""
        return f"{self.label}/{self.number:04}.png"

    def png(self) -> bytes:
        """Return the image as a PNG file."""
        return _encode_png(self.pixels.tobytes(), self.pixels.shape)


@dataclass(frozen=True, slots=True)
class Batch:
    """The digits from number `first` up to `end`, and the folder or file in which they land."""

    path: Path
    first: int
    end: int

    @property
    def description(self) -> str:
        """Description of the batch."""
        kind = "a Parquet file with" if self.path.suffix == ".parquet" else "a folder of"
        return f"{kind} {self.end - self.first:,} PNG images"

    def digits(self) -> list[Digit]:
        """Return its digits. Numbers after the last digit repeat the digits, shifted by a pixel."""
        known = all_digits()
        chosen = list(known[self.first : self.end])
        for number in range(max(self.first, len(known)), self.end):
            turn, index = divmod(number, len(known))
            pixels = _shift(index, turn % len(_SHIFTS))
            chosen.append(Digit(number, known[index].label, pixels))
        return chosen

    def land(self) -> bool:
        """Write the batch. Returns False if it exists."""
        if self.path.exists():
            return False
        digits = self.digits()
        if self.path.suffix == ".parquet":
            write_parquet(self.path, as_table(digits))
        else:
            write_folder(self.path, digits)
        return True


BATCHES = (
    Batch(FOLDERS / "batch-1", 0, 600),
    Batch(FILES / "batch-2.parquet", 600, 1200),
    Batch(FOLDERS / "batch-3", 1200, 1797),
)
DIGITS = BATCHES[-1].end
_SHIFTS = tuple((down, right) for down in (0, -1, 1) for right in (0, -1, 1))
_CACHED_IMAGES = 32 * 1024  # more than all digits in all shifts


def extra_batch(rows: int) -> Batch:
    """Return a batch of more rows: the digits again, most of them shifted by a pixel."""
    return Batch(FILES / f"extra-{rows}.parquet", DIGITS, DIGITS + rows)


@cache
def _shift(index: int, shift: int) -> "NDArray[np.uint8]":
    return np.roll(all_digits()[index].pixels, _SHIFTS[shift], axis=(0, 1))


@lru_cache(maxsize=_CACHED_IMAGES)
def _encode_png(pixels: bytes, shape: tuple[int, ...]) -> bytes:
    from PIL import Image  # noqa: PLC0415 - only where something lands

    file = io.BytesIO()
    Image.fromarray(np.frombuffer(pixels, np.uint8).reshape(shape)).save(file, "png")
    return file.getvalue()


@cache
def all_digits() -> tuple[Digit, ...]:
    """Return the digits in the order of the collection, which is part of scikit-learn."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - takes seconds to load

    collection = load_digits()
    shades = (collection.images * _WHITE / _DARKEST).astype(np.uint8)
    return tuple(
        Digit(number, str(label), pixels)
        for number, (label, pixels) in enumerate(zip(collection.target, shades, strict=True))
    )


def write_folder(path: Path, digits: Sequence[Digit]) -> None:
    """Write a folder of PNG files atomically."""
    hidden = _get_hidden_path(path)
    shutil.rmtree(hidden, ignore_errors=True)  # left by an earlier run
    for digit in digits:
        file = hidden / digit.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(digit.png())
    hidden.rename(path)


def as_table(digits: Sequence[Digit]) -> "pa.Table":
    """Return the digits as the columns that a folder of them has."""
    import pyarrow as pa  # noqa: PLC0415 - only where something lands

    return pa.table(
        {
            "path": [digit.path for digit in digits],
            "label": [digit.label for digit in digits],
            "image": pa.array([digit.png() for digit in digits], pa.binary()),
        }
    )


def write_parquet(path: Path, table: "pa.Table") -> None:
    """Write a Parquet file atomically."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - only where something lands

    hidden = _get_hidden_path(path)
    hidden.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, hidden)
    hidden.rename(path)


def write_file(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    hidden = _get_hidden_path(path)
    hidden.parent.mkdir(parents=True, exist_ok=True)
    hidden.write_bytes(content)
    hidden.rename(path)


def _get_hidden_path(path: Path) -> Path:
    """Return the hidden name of an incomplete file, which no scan finds."""
    return path.with_name(f".{path.name}")
