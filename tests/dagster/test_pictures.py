"""The pictures of a snapshot: which there are, what is on them, and what is said instead."""

from __future__ import annotations

import base64
import io
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pytest
from markdown_it import MarkdownIt
from PIL import Image

import shardline
from shardline import Category, Feature, Schema, Version
from shardline.dagster.previews.pictures import MAX_IMAGES, draw_contact_sheet
from shardline.dagster.previews.preview import MAX_CHARACTERS, render_preview
from shardline.dagster.previews.preview_sample import (
    read_record_sizes,
    read_some_rows,
    select_shards,
)
from shardline.errors import InvalidArgumentError
from tests.dagster.landings import COLORS, NAME, appended, image_folder, png
from tests.errors import raises
from tests.kernel.frames import framed
from tests.readers.overlays import tagged
from tests.tfrecord.samples import flipped, made

if TYPE_CHECKING:
    from collections.abc import Sequence

GREY = (0xC3, 0xC9, 0xD0)


@dataclass(frozen=True)
class Drawn:
    """One picture on a page."""

    alt: str
    image: Image.Image


@dataclass(frozen=True)
class Page:
    """A page as a browser would show it."""

    markdown: str
    pictures: list[Drawn]
    text: str

    def of(self, what: str) -> Drawn:
        """The one picture whose description begins so."""
        (found,) = [drawn for drawn in self.pictures if drawn.alt.startswith(what)]
        return found


def page_of(version: Version, number: int | None = None) -> Page:
    """The pictures of a snapshot, the latest unless told."""
    snapshot = version.latest() if number is None else version.snapshot(number)
    markdown = render_preview(version, snapshot, version.log.entry(snapshot.entry))
    assert len(markdown) < MAX_CHARACTERS
    pictures, text = [], ""
    for block in MarkdownIt().parse(markdown):
        for token in block.children or ():
            if token.type == "image":
                kind, data = str(token.attrs["src"]).split(";base64,")
                image = Image.open(io.BytesIO(base64.b64decode(data)))
                assert kind == f"data:image/{(image.format or '').lower()}"
                alt = "".join(part.content for part in token.children or ())
                pictures.append(Drawn(alt, image.convert("RGB")))
            else:
                assert token.type in {"text", "softbreak", "em_open", "em_close", "text_special"}
                text += token.content
    return Page(markdown, pictures, text)


def colors_in(image: Image.Image) -> dict[tuple[int, int, int], int]:
    """How many pixels have each color."""
    pixels = np.asarray(image).reshape(-1, 3)
    colors, counts = np.unique(pixels, axis=0, return_counts=True)
    return {
        (int(red), int(green), int(blue)): int(count)
        for (red, green, blue), count in zip(colors, counts, strict=True)
    }


def table(**columns: Sequence[object]) -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def shares_in(alt: str) -> dict[str, float]:
    """The shares that a description tells."""
    told = alt.rsplit(": ", maxsplit=1)[-1].split(", ")
    return {name: float(share) for name, share in re.findall(r"(.+) ([\d.]+)%", "\n".join(told))}


def test_image_folder_has_sheet_shares_and_sizes(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", NAME)
    appended(version, image_folder(tmp_path / "images"))
    page = page_of(version)
    assert page.text == ""
    sheet = page.of("Contact sheet: 12 images of image")
    found = colors_in(sheet.image)
    assert all(found[color] > 4 * 1000 for color in COLORS.values())
    assert GREY not in found
    shares = page.of("Bar chart: shares of label in 12 added rows")
    assert shares_in(shares.alt) == {"blue": 33.3, "green": 33.3, "red": 33.3}
    sizes = [len(file.read_bytes()) for file in (tmp_path / "images").rglob("*.png")]
    assert page.of("Histogram: record sizes").alt.endswith("12 added rows")
    assert min(sizes) < max(sizes)
    assert len(page.pictures) == 3


def test_pictures_have_white_background(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", NAME)
    appended(version, image_folder(tmp_path / "images"))
    for encoded in re.findall(r"base64,([^)]+)", page_of(version).markdown):
        image = Image.open(io.BytesIO(base64.b64decode(encoded)))
        assert "transparency" not in image.info
        assert image.mode in {"RGB", "P", "L"}
        corners = [(0, 0), (image.width - 1, 0), (0, image.height - 1)]
        assert [image.convert("RGB").getpixel(corner) for corner in corners] == [(255,) * 3] * 3


def test_rows_chart_marks_rejected_snapshots(tmp_path: Path) -> None:
    version = Version(tmp_path, NAME)
    for number in range(3):
        appended(version, [{"x": number}, {"x": 2 * number}], batch=str(number))
        if number == 1:
            version.reject(2)
    rows = page_of(version).of("Bar chart: rows")
    assert re.findall(r"\d+", rows.alt) == ["1", "4", "2", "4", "2"]
    assert rows.alt.endswith("; rejected: 2")
    assert any(red > 180 and blue < 90 for red, _, blue in colors_in(rows.image))
    before = page_of(version, 2).of("Bar chart: rows")
    assert re.findall(r"\d+", before.alt) == ["1", "2", "2", "4", "2"]
    assert before.alt.endswith("; rejected: 2")
    assert not [picture for picture in page_of(version, 1).pictures if "snapshots" in picture.alt]


def test_rows_chart_has_last_sixty_snapshots(tmp_path: Path) -> None:
    version = Version(tmp_path, NAME)
    for number in range(65):
        appended(version, [{"x": number}], batch=str(number))
    rows = page_of(version).of("Bar chart: rows")
    assert re.findall(r"\d+", rows.alt) == ["6", "65", "6", "65"]


def test_pictures_show_added_rows(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", NAME)
    appended(version, image_folder(tmp_path / "monday", colors=["red"]))
    appended(version, image_folder(tmp_path / "tuesday", colors=["green"]))
    page = page_of(version)
    found = colors_in(page.of("Contact sheet: 4 images").image)
    assert COLORS["green"] in found
    assert COLORS["red"] not in found
    assert "4 added rows" in page.text
    assert "always green" in page.text


def test_shares_name_all_labels(tmp_path: Path) -> None:
    feature = Feature("animal", "int64", meaning=Category(("cat", "dog", "emu")))
    version = Version(tmp_path, NAME)
    appended(version, table(animal=[1, 1, 1, 0]), schema=Schema((feature,)), batch="one")
    shares = page_of(version).of("Bar chart: shares of animal")
    assert shares_in(shares.alt) == {"cat": 25.0, "dog": 75.0, "emu": 0.0}


def test_few_numbers_count_as_labels(tmp_path: Path) -> None:
    version = Version(tmp_path, NAME)
    appended(version, table(id=range(100), y=[n % 3 for n in range(100)]), batch="one")
    page = page_of(version)
    (chart,) = (picture for picture in page.pictures if " shares of y" in picture.alt)
    assert shares_in(chart.alt) == {"0": 34.0, "1": 33.0, "2": 33.0}
    other = Version(tmp_path, "digits/v2")
    appended(other, table(id=range(100)), batch="one")
    assert not [drawn for drawn in page_of(other).pictures if "shares" in drawn.alt]


def test_shares_of_many_labels_are_truncated(tmp_path: Path) -> None:
    names = [f"name {place:02}" for place in range(20) for _ in range(20 - place)]
    schema = Schema((Feature("name", "bytes", meaning=Category(), required=False),))
    version = Version(tmp_path, NAME)
    appended(version, table(name=[*names, *[None] * 40]), schema=schema, batch="one")
    shares = shares_in(page_of(version).of("Bar chart: shares of name").alt)
    assert list(shares)[:2] == ["(missing)", "name 00"]
    assert (len(shares), shares["10 others"]) == (12, 22.0)
    assert sum(shares.values()) == pytest.approx(100, abs=1)


def test_alternating_labels_are_all_sampled(tmp_path: Path) -> None:
    version = Version(tmp_path, NAME)
    count = 20_480
    appended(version, table(label=[n % 10 for n in range(count)]), batch="one")
    chart = page_of(version).of("Bar chart: shares of label in 4,096 of 20,480 added rows")
    shares = shares_in(chart.alt)
    assert list(shares) == [str(digit) for digit in range(10)]
    assert all(7 < share < 13 for share in shares.values())


def test_labels_are_escaped(tmp_path: Path) -> None:
    hostile = ["](javascript:alert(1)) <b>", "$\\frac{1}$ *a* `b`", "\x1b[31m\n\n# big", "z" * 9999]
    schema = Schema((Feature("label", "bytes", meaning=Category()),))
    version = Version(tmp_path, NAME)
    appended(version, table(label=hostile), schema=schema, batch="one")
    page = page_of(version)
    (shares,) = [drawn for drawn in page.pictures if "shares" in drawn.alt]
    assert "](javascript:alert(1)) <b> 25.0%" in shares.alt
    assert len(page.markdown) < 30_000


def test_equal_records_become_a_note(tmp_path: Path) -> None:
    version = Version(tmp_path, NAME)
    source = made(tmp_path / "a.tfrecord", framed(*[b"12345"] * 3))
    appended(version, source, schema=Schema.opaque())
    page = page_of(version)
    assert page.pictures == []
    assert re.findall(r"\d+", page.text) == ["3", "5"]


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("indexed", [True, False])
def test_sampling_works_for_all_compressions(
    tmp_path: Path, compression: str, *, indexed: bool
) -> None:
    version = Version(tmp_path, NAME)
    values = [b"v" * (n % 7) for n in range(500)]
    appended(version, table(x=range(500), v=values), batch="one", compression=compression)
    snapshot = version.latest()
    if not indexed:
        for index in tmp_path.rglob("*.index"):
            index.unlink()
    (file,) = select_shards(snapshot, snapshot.shards)
    payloads = [len(payload) for payload in shardline.files.RecordFile(snapshot.files()[0])]
    assert read_record_sizes(file).tolist() == payloads
    rows = read_some_rows(file, snapshot.schema.features, 1000, 1 << 20)
    assert rows["x"].to_pylist() == list(range(500))
    assert rows["v"].to_pylist() == values
    some = read_some_rows(file, snapshot.schema.features, 50, 1 << 20)["x"].to_pylist()
    assert len(some) == 50
    assert some == sorted(set(some))
    spread = compression == "none" and indexed
    assert (some[-1] > 450) == spread


def test_large_records_give_small_sample(tmp_path: Path) -> None:
    version = Version(tmp_path, NAME)
    appended(version, table(x=[b"." * 10_000] * 200), batch="one")
    snapshot = version.latest()
    (file,) = select_shards(snapshot, snapshot.shards)
    rows = read_some_rows(file, snapshot.schema.features, 4096, 100_000)
    assert 8 <= rows.num_rows <= 10
    assert read_some_rows(file, snapshot.schema.features, 4096, 10).num_rows == 1


def test_sample_spans_all_shards(tmp_path: Path) -> None:
    version = Version(tmp_path, NAME)
    appended(version, table(x=[b"." * 1000] * 40), batch="one", target_bytes=1000)
    snapshot = version.latest()
    assert snapshot.totals.shards == 40
    files = select_shards(snapshot, snapshot.shards)
    assert len(files) == 8
    assert (files[0].shard, files[-1].shard) == (snapshot.shards[0], snapshot.shards[-1])


@pytest.mark.parametrize("indexed", [True, False])
def test_overlays_are_sampled_with_bases(tmp_path: Path, *, indexed: bool) -> None:
    snapshot = tagged(tmp_path)
    if indexed:
        for path in tmp_path.rglob("*.tfrecord"):
            shardline.files.write_index(path)
    looked = select_shards(snapshot, snapshot.shards)
    assert [one.shard.records for one in looked] == [3, 1, 5]
    sizes = np.concatenate([read_record_sizes(one) for one in looked])
    joined = [len(one) for one in snapshot.to_tf(parse=False).as_numpy_iterator()]
    assert np.abs(sizes - joined).max() <= 4, "the headers of the messages that are joined"
    rows = [read_some_rows(one, snapshot.schema.features, 100, 1 << 20) for one in looked]
    assert pa.concat_tables(rows)["x"].to_pylist() == list(range(9))
    version = Version(tmp_path, snapshot.version)
    assert "Not drawn" not in page_of(version).text
    for path in tmp_path.rglob("v1.*.tfrecord"):
        path.unlink()
    scores = [feature for feature in snapshot.schema.features if feature.name == "score"]
    (first, *_) = select_shards(snapshot, snapshot.shards, scores)
    assert read_some_rows(first, scores, 2, 1 << 20)["score"].to_pylist()[0] == 0.0


def test_corrupt_shard_becomes_a_note(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", NAME)
    folders = [image_folder(tmp_path / color, colors=[color]) for color in ("red", "blue")]
    appended(version, folders)
    path = Path(version.latest().files()[0])
    path.write_bytes(flipped(path.read_bytes(), 8 * 100))
    page = page_of(version)
    assert "some rows." in page.text
    assert str(path) in page.text
    assert "record 0" in page.text
    found = colors_in(page.of("Contact sheet: 4 images").image)
    assert len({COLORS["red"], COLORS["blue"]} & set(found)) == 1


def test_missing_shard_becomes_a_note(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", NAME)
    appended(version, image_folder(tmp_path / "images"))
    for file in (tmp_path / "root").rglob("*.tfrecord*"):
        file.unlink()
    page = page_of(version)
    assert page.pictures == []
    assert "record sizes." in page.text
    assert version.latest().shards[0].name in page.text


def test_snapshot_without_new_rows_shows_all(tmp_path: Path) -> None:
    version = Version(tmp_path, NAME)
    appended(version, table(y=[1, 2, 2, 2]), batch="one")
    appended(version, table(y=[1] * 4), batch="two")
    version.restore(1)
    assert version.log.entry(version.latest().entry).added == ()
    shares = page_of(version).of("Bar chart: shares of y in 4 rows")
    assert shares_in(shares.alt) == {"1": 25.0, "2": 75.0}


def sheet_of(*images: bytes, most: int = 1 << 20) -> tuple[Any, Image.Image]:
    made = draw_contact_sheet([(data, "label") for data in images], "image", str, most)
    return made, Image.open(io.BytesIO(made.data)).convert("RGB")


def test_corrupt_image_becomes_grey_tile() -> None:
    good = png((255, 0, 0))
    made, image = sheet_of(good, good[: len(good) // 2], b"", b"no image", good)
    assert (made.images, made.damaged) == (5, 3)
    found = colors_in(image)
    assert found[255, 0, 0] == 2 * 64 * 64
    assert found[GREY] > 3 * 3500


def test_huge_image_is_not_decoded() -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 8_000, 8_000, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(8_000 * (3 * 8_000 + 1)), 9)
    bomb = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )
    assert len(bomb) < 300_000
    made, _ = sheet_of(bomb)
    assert (made.images, made.damaged) == (1, 1)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_all_image_modes_are_drawn(mode: str) -> None:
    out = io.BytesIO()
    bright = Image.fromarray(np.full((30, 200), 60_000, np.uint16)) if mode == "I;16" else None
    image = bright or Image.new("RGB", (30, 200), (250, 250, 250)).convert(mode)
    image.save(out, "JPEG" if mode == "CMYK" else "PNG")
    made, drawn = sheet_of(out.getvalue())
    assert (made.images, made.damaged) == (1, 0)
    assert drawn.getpixel((12 + 32, 48 + 32))[0] > 240  # type: ignore[index] # it is RGB


def test_contact_sheet_is_bounded() -> None:
    random = np.random.default_rng(0)
    noise = []
    for _ in range(60):
        out = io.BytesIO()
        Image.fromarray(random.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(out, "PNG")
        noise.append(out.getvalue())
    made, _ = sheet_of(*noise, most=64 * 1024)
    assert (made.images, made.mime) == (MAX_IMAGES, "image/jpeg")
    assert len(made.data) <= 64 * 1024
    with raises(InvalidArgumentError, "budget-exceeded"):
        sheet_of(*noise, most=1000)


def test_drawing_keeps_matplotlib_state(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    version = Version(tmp_path / "root", NAME)
    appended(version, image_folder(tmp_path / "images"))
    assert len(page_of(version).pictures) == 3
    assert dict(mpl.rcParams) == before
