"""Folders of files: one record per file, bytes as they are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from shardline.errors import SchemaMismatchError, SourceError
from shardline.schema.schema import Category, Feature, Image, Schema, Text
from shardline.sources import open_source
from shardline.tfrecord.reader import Limits
from tests.errors import raises
from tests.log.schemas import JPEG, PNG
from tests.sources.reading import changes_in, read_back, take

if TYPE_CHECKING:
    from pathlib import Path

IMAGES = Schema(
    (
        Feature("image", "bytes", meaning=Image("png")),
        Feature("label", "bytes", meaning=Category()),
        Feature("path", "bytes", meaning=Text()),
    )
)


def filled(folder: Path, **files: bytes) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def test_a_folder_of_images_becomes_records_in_the_order_of_their_paths(tmp_path: Path) -> None:
    folder = filled(
        tmp_path / "pets",
        dogs__1_png=PNG + b"d",
        cats__2_png=PNG + b"b",
        cats__10_png=PNG + b"a",
        root_png=PNG,
        _hidden=b"no",
        _folder__1_png=b"no",
    )
    source = open_source(folder)
    assert source.infer() == IMAGES
    found = take(source, IMAGES)
    assert read_back(tmp_path, IMAGES, found.data) == {
        "image": [[PNG + b"a"], [PNG + b"b"], [PNG + b"d"], [PNG]],
        "label": [[b"cats"], [b"cats"], [b"dogs"], [b"pets"]],
        "path": [[b"cats/10.png"], [b"cats/2.png"], [b"dogs/1.png"], [b"root.png"]],
    }
    assert take(source, IMAGES, 2).payloads == found.payloads[2:]


@pytest.mark.parametrize(
    ("contents", "feature"),
    [
        ((PNG, PNG), Feature("image", "bytes", meaning=Image("png"))),
        ((JPEG, JPEG), Feature("image", "bytes", meaning=Image("jpeg"))),
        ((PNG, JPEG), Feature("image", "bytes")),
        ((PNG, b"text"), Feature("content", "bytes")),
        ((b"", b"text"), Feature("content", "bytes")),
    ],
)
def test_files_are_images_if_all_of_them_begin_as_such(
    tmp_path: Path, contents: tuple[bytes, bytes], feature: Feature
) -> None:
    source = open_source(filled(tmp_path, a=contents[0], b=contents[1]))
    schema = source.infer()
    assert feature in schema.features
    assert take(source, schema).refused == []


def test_path_and_label_are_left_out_if_the_schema_has_none(tmp_path: Path) -> None:
    schema = Schema((Feature("content", "bytes"),))
    source = open_source(filled(tmp_path, a=b"x"))
    assert read_back(tmp_path, schema, take(source, schema).data) == {"content": [[b"x"]]}
    size = Feature("size", "int64")
    with raises(SchemaMismatchError, "schema-mismatch", feature="size") as caught:
        take(source, Schema((Feature("content", "bytes"), size)))
    assert changes_in(caught.value) == [("size", "removed", str(size), "")]


def test_a_file_too_large_for_a_record_is_refused_unread(tmp_path: Path) -> None:
    folder = filled(tmp_path, a=b"x", b=bytes(2000))
    schema = Schema((Feature("content", "bytes"),))
    found = take(open_source(folder, limits=Limits(max_record_bytes=1000)), schema)
    assert found.rows == [0]
    assert found.places == [("file b", "content")]
    assert "1000" in found.refused[0].detail


def test_large_folders_are_cut_into_chunks(tmp_path: Path) -> None:
    folder = filled(tmp_path, **{f"f{at:02}": bytes(1_000_000) for at in range(12)})
    found = take(open_source(folder), Schema((Feature("content", "bytes"),)))
    assert len(found.ends) > 2
    assert found.rows == list(range(12))


def test_a_name_that_is_no_text_is_refused_where_paths_are_kept(tmp_path: Path) -> None:
    folder = filled(tmp_path / "f", a=PNG)
    (folder / os.fsdecode(b"\xff.png")).write_bytes(PNG)
    found = take(open_source(folder), IMAGES)
    assert found.rows == [0]
    assert found.places == [(r"file \xff.png", "path")]
    assert "UTF-8" in found.refused[0].detail


def test_a_folder_is_known_by_the_paths_and_contents_in_it(tmp_path: Path) -> None:
    folder = filled(tmp_path / "f", a=b"one", b__c=b"two")
    identity = open_source(folder).identity()
    assert (identity.path, identity.size) == (folder.as_posix(), 6)
    assert open_source(folder).identity() == identity
    (folder / ".hidden").write_bytes(b"")
    assert open_source(folder).identity() == identity
    (folder / "b/c").rename(folder / "b/d")
    assert open_source(folder).identity() != identity


def test_a_folder_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    folder = filled(tmp_path / "f", a=b"one", b=b"two")
    source = open_source(folder)
    source.identity()
    filled(folder, c=b"three")
    with raises(SourceError, "source-changed", path=str(folder)):
        take(source, Schema((Feature("content", "bytes"),)))
