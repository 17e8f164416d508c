"""Credentials in errors: left out of messages, hints and fields, whoever raises them."""

from __future__ import annotations

import copy
import pickle

import pytest

from shardline.errors import ShardlineError, StorageError
from shardline.hints import Hint, Option
from shardline.redaction import has_credentials, redact
from tests.cli.command import shardline
from tests.storage.hostile_names import GOOD, HOSTILE, SECRET

SECRETS = [text for texts in HOSTILE["written"].values() for text in texts]
PARTITIONS = [
    "/data/account_key=7/a.csv",
    "account_key=7/a.csv",
    "s3://bucket/access_token=3/secret=x/a.parquet",
    "/data/year=2024/api_key=7",
    "/data/password=a%20b/x",
]


@pytest.mark.parametrize("text", PARTITIONS)
def test_partition_folder_is_no_credential(text: str) -> None:
    assert not has_credentials(text)
    assert redact(f"{text}: file not found") == f"{text}: file not found"


@pytest.mark.parametrize("text", GOOD["written"])
def test_redact_harmless_text_stays_same(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("text", [*SECRETS, f"AKIAKEY:{SECRET}@bucket/a", f"k:{SECRET}@host"])
def test_error_with_credentials_hides_them(text: str) -> None:
    hint = Hint.of("see ", text, " or ", Option("root", text), " or ", Hint.run("verify", text))
    for error in (
        ShardlineError(f"{text}: not found", hint=hint, path=text),
        ShardlineError(f"invalid value '{text}': expected a file", hint=hint),
        StorageError(5, "no answer", text, hint=hint, path=text),
    ):
        error.feature = text
        for one in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - ours
            shown = [str(one), one.message, one.describe(), str(one.to_dict()), *one.__notes__]
            assert SECRET not in "".join(shown)
            assert one.message.endswith((": not found", "expected a file", "no answer"))


URIS = [
    f"s3://KEY:{SECRET}@bucket/a.tfrecord",
    f"https://host/a.tfrecord?X-Amz-Signature={SECRET}",
    f"a.tfrecord?X-Amz-Signature={SECRET}",
    f"KEY:{SECRET}@bucket/a.tfrecord",
]


@pytest.mark.parametrize("uri", URIS)
def test_commands_never_echo_credentials(uri: str) -> None:
    for arguments in (
        ("verify", uri),
        ("head", uri, uri),
        ("head", "a/v1", "-n", uri),
        ("append", "a/v1", uri, "--root", uri),
        ("append", uri, "x.csv", "--root", "/nowhere"),
        ("rebuild", uri, "--output", uri),
        ("rebuild", uri, "--target-size", uri),
        ("extend", uri, "--into", uri, "--udf", f"{uri}:x", "--root", "/nowhere"),
        ("status", "--root", uri, "--nothing", uri),
        (uri,),
    ):
        for more in ((), ("--json",)):
            result = shardline(*arguments, *more)
            assert result.code == 2, arguments
            assert SECRET not in result.out + result.err, arguments
