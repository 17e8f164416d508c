"""Pictures of a preview: small charts as PNG, and a contact sheet of images.

Charts have a white background, for both the light and the dark theme. Each chart is a figure of its
own, so that no state is shared with other users of matplotlib.

Images are untrusted bytes that may not have been checked. Only common formats are decoded, images
that claim to be too large are not, and an image that cannot be decoded becomes a grey tile.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shardline.errors import InvalidArgumentError
from shardline.text import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
    from numpy.typing import NDArray
    from PIL import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

_INCHES = (3.6, 2.3)
_DPI = 100
_COLORS = 96
_WHITE, _INK, _FAINT, _LINE = "#ffffff", "#2f3640", "#7b8590", "#e3e7eb"
_BLUE, _PALE, _RED = "#2f6690", "#9dbad5", "#c8553d"
_FONT = "DejaVu Sans"
_BINS = (8, 40)
_WIDE_RANGE = 50
_MAX_NAME_LENGTH = 22
_TICKS = 7
_SLOTS = 6
"""Minimum number of bars for which a chart has room, so that few bars do not fill it."""


def draw_rows_chart(rows: Sequence[int], rejected: Sequence[bool], last: int) -> bytes:
    """Draw the rows of the last snapshots, up to number `last`."""
    numbers = range(last - len(rows) + 1, last + 1)
    has_rejected = any(rejected)
    figure, axes = _create_figure(
        "Rows by snapshot",
        f"{rows[-1]:,} in snapshot {last}" + ("; rejected hatched in red" if has_rejected else ""),
    )
    fills = [_PALE] * (len(rows) - 1) + [_BLUE]
    bars = axes.bar(numbers, rows, width=0.8, color=fills, linewidth=0)
    for bar, is_rejected in zip(bars, rejected, strict=True):
        if is_rejected:
            bar.set(facecolor=_WHITE, edgecolor=_RED, hatch="/////", linewidth=0.8)
    axes.set_xlim(numbers[0] - 0.7, max(last, numbers[0] + _SLOTS - 1) + 0.7)
    axes.set_xticks(numbers[:: -(-len(numbers) // _TICKS)])
    _format_y_axis(axes)
    return _encode_png(figure)


def draw_sizes_chart(sizes: "NDArray[np.int64]", note: str) -> bytes:
    """Draw a histogram of record sizes, with a logarithmic axis for a wide range."""
    figure, axes = _create_figure("Record sizes", note)
    low, high = max(int(sizes.min()), 1), int(sizes.max())
    bins = int(np.clip(2 * np.cbrt(len(sizes)), *_BINS))
    edges: NDArray[np.floating[Any]]
    if high > _WIDE_RANGE * low:
        edges = np.geomspace(low, high, bins + 1)
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
        axes.set_xticks(_list_powers(low, high))
    else:
        width = -(-(high - low + 1) // bins)
        edges = np.arange(low, high + width + 1, width) - 0.5
        axes.set_xlim(edges[0], max(edges[-1], edges[0] + _SLOTS * width))
        axes.xaxis.set_major_locator(_create_tick_locator())
    counts, _ = np.histogram(np.maximum(sizes, 1), edges)
    axes.stairs(counts, edges, fill=True, color=_BLUE, linewidth=0)
    axes.xaxis.set_major_formatter(lambda value, _: _format_bytes(value))
    _format_y_axis(axes)
    return _encode_png(figure)


def draw_shares_chart(name: str, shares: Sequence[tuple[str, float]], note: str) -> bytes:
    """Draw the share of the rows that each value of a feature has."""
    figure, axes = _create_figure(f"Shares of {_shorten_name(name)}", note)
    positions = range(len(shares))
    axes.barh(positions, [share for _, share in shares], height=0.72, color=_BLUE, linewidth=0)
    size = 7.5 if len(shares) <= 10 else 6.5
    largest = max(share for _, share in shares) or 1.0
    for position, (_, share) in zip(positions, shares, strict=True):
        axes.text(
            share + largest * 0.015, position, f"{share:.1%}", va="center", size=size, color=_FAINT,
            family=_FONT,
        )  # fmt: skip
    axes.set_xlim(0, largest * 1.16)
    axes.set_ylim(max(len(shares), _SLOTS) - 0.5, -0.5)
    axes.set_xticks([])
    axes.set_yticks(positions, [_shorten_name(label) for label, _ in shares])
    for label in axes.get_yticklabels():
        # A label is data: a dollar sign must not start a formula.
        label.set(parse_math=False, size=size, color=_INK, family=_FONT)
    axes.spines["bottom"].set_visible(False)
    return _encode_png(figure)


def _create_figure(title: str, note: str) -> "tuple[Figure, Axes]":
    """Return a figure with a title and a note, and plain axes."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - takes a second to load

    figure = Figure(figsize=_INCHES, dpi=_DPI, facecolor=_WHITE, layout="constrained")
    layout: Any = figure.get_layout_engine()
    layout.set(rect=(0.015, 0.02, 0.965, 0.79), w_pad=0.02, h_pad=0.02)
    style: dict[str, Any] = {"family": _FONT, "va": "top", "parse_math": False}
    figure.text(0.03, 0.965, title, size=9, weight="bold", color=_INK, **style)
    figure.text(0.03, 0.875, note, size=7.5, color=_FAINT, **style)
    axes = figure.add_subplot(facecolor=_WHITE)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_LINE)
    axes.tick_params(length=0, labelsize=7.5, labelcolor=_FAINT, labelfontfamily=_FONT)
    return figure, axes


def _format_y_axis(axes: "Axes") -> None:
    axes.yaxis.set_major_locator(_create_tick_locator())
    axes.yaxis.set_major_formatter(lambda value, _: _format_number(value))
    axes.grid(axis="y", color=_LINE, linewidth=0.7)
    axes.set_axisbelow(True)


def _create_tick_locator() -> "MaxNLocator":
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - with the rest of matplotlib

    return MaxNLocator(4, integer=True)


def _list_powers(low: int, high: int) -> list[int]:
    """Return a handful of round sizes in a range: every power of two, of four, or of more."""
    exponents = range(low.bit_length() - 1, high.bit_length())
    return [1 << exponent for exponent in exponents[:: -(-len(exponents) // _TICKS)]]


def _format_number(value: float) -> str:
    """Return `950`, `12,500` or `1.5 M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e5, "K")):
        if value >= size:
            return f"{value / (1e3 if unit == 'K' else size):.3g} {unit}"
    return f"{value:,.0f}"


def _format_bytes(value: float) -> str:
    return format_bytes(value).replace(".0 ", " ").replace("bytes", "B")


def _shorten_name(text: str) -> str:
    """Return a name without unprintable characters, shortened in the middle."""
    printable = "".join(char if char.isprintable() else "·" for char in text)
    if len(printable) <= _MAX_NAME_LENGTH:
        return printable
    return f"{printable[: _MAX_NAME_LENGTH - 8]}…{printable[-7:]}"


def _encode_png(figure: "Figure") -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from PIL import Image  # noqa: PLC0415

    canvas: Any = FigureCanvasAgg(figure)  # its methods are not annotated
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    out = io.BytesIO()
    image.quantize(_COLORS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


MAX_IMAGES = 40
_COLUMNS = 10
_TILE, _GAP, _MARGIN, _HEAD, _CAPTION = 64, 8, 12, 48, 15
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
_PIXELS_OF_ONE = 50_000_000
_PIXELS_OF_ALL = 150_000_000
_QUALITIES = (88, 75, 60, 40, 20)
_MAT, _GREY = "#eef1f4", "#c3c9d0"


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
    for position, (tile, label) in enumerate(zip(tiles, labels, strict=True)):
        left = _MARGIN + position % _COLUMNS * (_TILE + _GAP)
        top = _HEAD + position // _COLUMNS * row
        _paste_tile(sheet, draw, tile, left, top)
        caption = _shorten_label(label, small)
        draw.text((left + _TILE / 2, top + _TILE + 2), caption, _FAINT, small, anchor="ma")
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
    except Exception:  # noqa: BLE001 - a corrupt image can raise any error
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
    printable = "".join(char if char.isprintable() else "·" for char in label[:_TILE])
    if font.getlength(printable) <= _TILE:
        return printable
    while printable and font.getlength(printable + "…") > _TILE:
        printable = printable[:-1]
    return printable + "…"


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
