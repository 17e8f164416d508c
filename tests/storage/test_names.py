"""Names, paths and URIs that are refused before anything is done with them, and those that pass."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardline.errors import InvalidNameError
from shardline.storage import (
    open_store,
    parse_location,
    validate_name,
    validate_no_credentials,
    validate_object_name,
)
from tests.errors import raises
from tests.storage.hostile_names import GOOD, HOSTILE, SECRET

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKS: dict[str, Callable[[str], object]] = {
    "root": parse_location,
    "object": validate_object_name,
    "dataset": partial(validate_name, kind="dataset"),
    "version": partial(validate_name, kind="version"),
    "tag": partial(validate_name, kind="tag"),
    "written": partial(validate_no_credentials, where="the log entry"),
}

CASES = [
    (check, why, text)
    for check, reasons in HOSTILE.items()
    for why, texts in reasons.items()
    for text in texts
]


def test_there_are_many_hostile_names_and_no_two_are_the_same() -> None:
    assert len({(check, text) for check, _, text in CASES}) == len(CASES)
    assert len({text for _, _, text in CASES}) >= 220


@pytest.mark.parametrize(("check", "why", "text"), CASES)
def test_a_hostile_name_is_refused_in_words_without_the_secret(
    check: str, why: str, text: str
) -> None:
    with pytest.raises(InvalidNameError) as caught:
        CHECKS[check](text)
    message = caught.value.describe()
    assert SECRET not in message, why
    assert "AKIA" not in message
    assert message.isprintable(), "a terminal must not obey it"
    assert len(message) < 500
    if check == "root":
        with pytest.raises(InvalidNameError):
            open_store(text)


@pytest.mark.parametrize(
    ("check", "text"),
    [(check, text) for check, texts in GOOD.items() for text in texts],
    ids=lambda text: text[:40],
)
def test_a_good_name_passes(check: str, text: str) -> None:
    CHECKS[check](text)


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(parse_location("data/./x/")) == str(tmp_path / "data" / "x")
    assert str(parse_location(Path("data"))) == str(tmp_path / "data")
    assert str(parse_location(".")) == str(tmp_path)


def test_the_home_folder_is_meant_by_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert str(parse_location("~/data")) == "/home/someone/data"
    assert str(parse_location("/data/~x")) == "/data/~x"


def test_a_uri_that_was_made_a_path_is_refused_with_advice() -> None:
    with raises(InvalidNameError, "invalid-location"):
        parse_location(Path("s3://bucket/a"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/a/", "s3://bucket/a"),
        ("s3://bucket/", "s3://bucket"),
        ("gs://bucket/a/b", "gs://bucket/a/b"),
        ("az://container", "az://container"),
        ("file:///data/x", "/data/x"),
        ("file://localhost/data", "/data"),
        ("memory://x/a", "memory://x/a"),
    ],
)
def test_a_location_reads_as_what_it_was_parsed_from(text: str, shown: str) -> None:
    assert str(parse_location(text)) == shown
    assert parse_location(shown) == parse_location(text)


@pytest.mark.parametrize(
    ("text", "code", "advice"),
    [
        ("S3://bucket/a", "unknown-scheme", "s3://"),
        ("s3a://bucket/a", "unknown-scheme", "s3://"),
        ("gcs://bucket/a", "unknown-scheme", "gs://"),
        ("abfs://container/a", "unknown-scheme", "az://"),
        ("C:\\data", "invalid-location", "'/'"),
        ("C:/data", "unknown-scheme", "/mnt/c"),
        ("//server/share", "invalid-location", "mount"),
        ("data/../x", "invalid-location", "without"),
        ("s3://key:word@bucket", "embedded-credentials", "environment"),
        ("s3://bucket:9000", "embedded-credentials", "environment"),
        ("data:x", "unknown-scheme", "./"),
    ],
)
def test_a_refusal_says_what_to_write_instead(text: str, code: str, advice: str) -> None:
    with raises(InvalidNameError, code) as caught:
        parse_location(text)
    assert advice in str(caught.value.hint)
