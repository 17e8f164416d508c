"""A contact sheet: images of a snapshot side by side, with their labels.

Images are untrusted bytes that may not have been checked. Only common formats are decoded, images
that claim to be too large are not, and an image that cannot be decoded becomes a grey tile.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import InvalidArgumentError

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

MAX_IMAGES = 40
_COLUMNS = 10
_TILE, _GAP, _MARGIN, _HEAD, _CAPTION = 64, 8, 12, 48, 15
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
_PIXELS_OF_ONE = 50_000_000
_PIXELS_OF_ALL = 150_000_000
_QUALITIES = (88, 75, 60, 40, 20)
_WHITE, _INK, _FAINT, _MAT, _GREY = "#ffffff", "#2f3640", "#7b8590", "#eef1f4", "#c3c9d0"


@dataclass(frozen=True, slots=True)
class ContactSheet:
    """A picture, its encoding, and the number of grey tiles."""

    data: bytes
    mime: str
    images: int
    damaged: int


def draw_contact_sheet(
    images: Sequence[tuple[bytes, str]], title: str, note: Callable[[int], str], most_bytes: int
) -> ContactSheet:
    """Draw images with their labels, as JPEG if PNG would exceed `most_bytes`.

    `note` describes a number of images. Raises ValueError if no encoding fits.
    """
    from PIL import Image, ImageDraw  # noqa: PLC0415 - only where something is drawn

    tiles = _create_tiles([data for data, _ in images[:MAX_IMAGES]])
    labels = [label for _, label in images[: len(tiles)]]
    damaged = sum(tile is None for tile in tiles)
    row = _TILE + _GAP + (_CAPTION if any(labels) else 0)
    width = 2 * _MARGIN + _COLUMNS * (_TILE + _GAP) - _GAP
    height = _HEAD + -(-len(tiles) // _COLUMNS) * row + _MARGIN - _GAP
    sheet = Image.new("RGB", (width, height), _WHITE)
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, 10), title, _INK, _load_font("DejaVuSans-Bold.ttf", 12.5))
    grey = f"; {damaged} could not be decoded (grey)" if damaged else ""
    draw.text((_MARGIN, 28), note(len(tiles)) + grey, _FAINT, _load_font("DejaVuSans.ttf", 10.5))
    small = _load_font("DejaVuSans.ttf", 9)
    for place, (tile, label) in enumerate(zip(tiles, labels, strict=True)):
        left = _MARGIN + place % _COLUMNS * (_TILE + _GAP)
        top = _HEAD + place // _COLUMNS * row
        _paste_tile(sheet, draw, tile, left, top)
        shown = _shorten_label(label, small)
        draw.text((left + _TILE / 2, top + _TILE + 2), shown, _FAINT, small, anchor="ma")
    data, mime = _encode_sheet(sheet, most_bytes)
    return ContactSheet(data, mime, len(tiles), damaged)


def _create_tiles(images: Sequence[bytes]) -> "list[Image.Image | None]":
    """Return an image per tile, None for a corrupt image. Stops early if images are too large."""
    tiles: list[Image.Image | None] = []
    left = _PIXELS_OF_ALL
    for data in images:
        tile, pixels = _create_tile(data)
        left -= pixels
        tiles.append(tile)
        if left < 0:
            break
    return tiles


def _create_tile(data: bytes) -> "tuple[Image.Image | None, int]":
    """Return an image in the size of a tile, and the number of decoded pixels."""
    from PIL import Image  # noqa: PLC0415

    pixels = 0
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            claimed = image.width * image.height
            if claimed > _PIXELS_OF_ONE:
                return None, 0
            pixels = claimed
            image.draft("RGB", (2 * _TILE, 2 * _TILE))
            return _resize(_convert_to_rgba(image)), pixels
    except Exception:  # noqa: BLE001 - whatever damage makes the decoder raise, it is one grey tile
        return None, pixels


def _convert_to_rgba(image: "Image.Image") -> "Image.Image":
    from PIL import Image  # noqa: PLC0415

    if image.mode[0] in "IF":  # more than 8 bits per channel: scaled to its maximum
        values = np.nan_to_num(np.asarray(image, np.float64))
        scaled = np.clip(values / max(float(values.max()), 1e-9), 0, 1) * 255
        image = Image.fromarray(scaled.astype(np.uint8))
    return image.convert("RGBA")


def _resize(image: "Image.Image") -> "Image.Image":
    """Enlarge small images by whole pixels, and reduce large images smoothly."""
    from PIL import Image  # noqa: PLC0415

    longest = max(image.size)
    if longest <= _TILE:
        times = _TILE // longest
        return image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)
    size = (max(image.width * _TILE // longest, 1), max(image.height * _TILE // longest, 1))
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3)


def _paste_tile(
    sheet: "Image.Image", draw: "ImageDraw", tile: "Image.Image | None", left: int, top: int
) -> None:
    right, bottom = left + _TILE - 1, top + _TILE - 1
    draw.rectangle((left, top, right, bottom), _GREY if tile is None else _MAT)
    if tile is None:
        draw.line((left, top, right, bottom), _WHITE)
        draw.line((left, bottom, right, top), _WHITE)
    else:
        corner = (left + (_TILE - tile.width) // 2, top + (_TILE - tile.height) // 2)
        sheet.paste(tile, corner, tile)


def _load_font(name: str, size: float) -> "FreeTypeFont":
    import matplotlib as mpl  # noqa: PLC0415 - takes a second to load; it carries the font
    from PIL import ImageFont  # noqa: PLC0415

    return ImageFont.truetype(Path(mpl.get_data_path(), "fonts", "ttf", name), size)


def _shorten_label(label: str, font: "FreeTypeFont") -> str:
    shown = "".join(char if char.isprintable() else "·" for char in label[:_TILE])
    if font.getlength(shown) <= _TILE:
        return shown
    while shown and font.getlength(shown + "…") > _TILE:
        shown = shown[:-1]
    return shown + "…"


def _encode_sheet(sheet: "Image.Image", most_bytes: int) -> tuple[bytes, str]:
    out = io.BytesIO()
    sheet.save(out, "PNG", optimize=True)
    if out.tell() <= most_bytes:
        return out.getvalue(), "image/png"
    for quality in _QUALITIES:
        out = io.BytesIO()
        sheet.save(out, "JPEG", quality=quality, optimize=True)
        if out.tell() <= most_bytes:
            return out.getvalue(), "image/jpeg"
    raise InvalidArgumentError(
        f"the contact sheet exceeds {most_bytes} bytes in every encoding", code="budget-exceeded"
    )
