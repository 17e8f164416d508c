"""Object stores: how they are found by the environment, and how their answers are told."""

from __future__ import annotations

import json
import os
import traceback
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from shardline.errors import (
    CommitStateUnknownError,
    ConditionsIgnoredError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnavailableError,
)
from shardline.storage import open_store
from tests.errors import raises
from tests.storage.asking import ASK, names
from tests.storage.scripted import Answer, Request, ScriptedServer, scripted
from tests.storage.servers import ACCESS_KEY, LOOPBACK, SECRET_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.storage.servers import S3Server

TELLTALE = (
    f"<Error><AWSAccessKeyId>{ACCESS_KEY}</AWSAccessKeyId>"
    f"<Url>http://x/?X-Amz-Signature=0123&amp;X-Amz-Credential={ACCESS_KEY}</Url></Error>"
).encode()
DROP = Answer(None)
SILENCE = Answer(None, silent=True)
SECONDS = 300
"""Only a test that hangs takes as long."""


def use_s3(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    settings = {
        "AWS_ENDPOINT_URL": f"http://{LOOPBACK}:{server.port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_TIMEOUT": f"{SECONDS}s",
        "NO_PROXY": LOOPBACK,
        **more,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


def assert_tells_no_secret(error: BaseException) -> None:
    told = "".join(traceback.format_exception(error))
    for secret in (
        ACCESS_KEY,
        SECRET_KEY,
        "Signature",
        "X-Amz",
        "obstore.exceptions",
        "Debug source",
    ):
        assert secret not in told
    assert error.__cause__ is None
    assert error.__suppress_context__


WRITES: list[tuple[Answer, type[StorageError], str, str]] = [
    (Answer(400, TELLTALE), StorageError, "storage-error", "(400), object not written"),
    (Answer(401, TELLTALE), StorageError, "access-denied", "(401)"),
    (Answer(403, TELLTALE), StorageError, "access-denied", "(403)"),
    (Answer(404, TELLTALE), StorageError, "bucket-not-found", ""),
    (Answer(409, TELLTALE), ObjectExistsError, "object-exists", ""),
    (Answer(412, TELLTALE), ObjectExistsError, "object-exists", ""),
    (Answer(429, TELLTALE), CommitStateUnknownError, "commit-state-unknown", "(429)"),
    (Answer(500, TELLTALE), CommitStateUnknownError, "commit-state-unknown", "(500)"),
    (Answer(503, TELLTALE), CommitStateUnknownError, "commit-state-unknown", "(503)"),
    (DROP, CommitStateUnknownError, "commit-state-unknown", "did not answer"),
    (SILENCE, CommitStateUnknownError, "commit-state-unknown", "did not answer"),
]


@pytest.mark.parametrize(("answer", "kind", "code", "words"), WRITES)
def test_a_failed_creation_is_told_as_what_it_means(
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    kind: type[StorageError],
    code: str,
    words: str,
) -> None:
    with scripted(lambda _: answer) as server:
        use_s3(server, monkeypatch, **({"AWS_TIMEOUT": "1s"} if answer is SILENCE else {}))
        with raises(StorageError, code, path="s3://bucket/a/b") as caught:
            open_store("s3://bucket/a").create("b", b"1")
    assert type(caught.value) is kind
    assert words in caught.value.message
    assert_tells_no_secret(caught.value)
    assert {request.headers["if-none-match"] for request in server.requests} == {"*"}


NO_BUCKET = b"<Error><Code>NoSuchBucket</Code></Error>"
READS: list[tuple[Answer, tuple[type[StorageError], str, str]]] = [
    (Answer(400, TELLTALE), (StorageError, "storage-error", "(400)")),
    (Answer(403, TELLTALE), (StorageError, "access-denied", "(403)")),
    (Answer(404, TELLTALE), (ObjectNotFoundError, "object-not-found", "")),
    (Answer(404, NO_BUCKET), (StorageError, "bucket-not-found", "")),
    (Answer(503, TELLTALE), (UnavailableError, "storage-unavailable", "(503)")),
    (DROP, (UnavailableError, "storage-unavailable", "did not answer")),
]


@pytest.mark.parametrize(("answer", "expected"), READS)
@pytest.mark.parametrize("operation", ["read", "read_ranges", "read_many", "delete", "list"])
def test_a_failed_request_is_told_as_what_it_means(
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    expected: tuple[type[StorageError], str, str],
    operation: str,
) -> None:
    kind, code, words = expected
    with scripted(lambda _: answer) as server:
        use_s3(server, monkeypatch)
        store = open_store("s3://bucket/a")
        if kind is ObjectNotFoundError and operation in {"read_many", "delete"}:
            assert ASK[operation](store, "b") in ([None, None], None)
            return
        if kind is ObjectNotFoundError and operation == "list":
            kind, code = StorageError, "bucket-not-found"
        with raises(StorageError, code) as caught:
            ASK[operation](store, "b")
    assert type(caught.value) is kind
    assert (caught.value.path or "").startswith("s3://bucket/a/")
    assert words in caught.value.message
    assert_tells_no_secret(caught.value)


def test_a_store_that_nobody_serves_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(lambda _: DROP) as server:
        use_s3(server, monkeypatch)
    store = open_store("s3://bucket")
    with raises(StorageError, "storage-unavailable", path="s3://bucket/a") as read:
        store.read("a")
    assert not isinstance(read.value, CommitStateUnknownError)
    with raises(CommitStateUnknownError, "commit-state-unknown", path="s3://bucket/a"):
        store.create("a", b"")


def test_a_put_whose_first_reply_was_lost_comes_back_as_existing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored: list[bytes] = []

    def put_then_fail(request: Request) -> Answer:
        if stored:
            return Answer(412)
        stored.append(request.body)
        return Answer(500)

    with scripted(put_then_fail) as server:
        use_s3(server, monkeypatch)
        with pytest.raises(ObjectExistsError):
            open_store("s3://bucket").create("a", b"ours")
    assert stored == [b"ours"], "so who asked reads back and compares"


def test_reads_that_fail_for_a_moment_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Answer(503), DROP, Answer(200, b"here")]
    with scripted(lambda _: answers.pop(0)) as server:
        use_s3(server, monkeypatch)
        assert open_store("s3://bucket").read("a") == b"here"


def test_many_are_read_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    together = Barrier(16)

    def meet(request: Request) -> Answer:
        together.wait(SECONDS)
        return Answer(200, request.path.encode())

    with scripted(meet) as server:
        use_s3(server, monkeypatch)
        found = open_store("s3://bucket/log").read_many([f"{number}" for number in range(32)])
    assert found == [b"/bucket/log/%d" % number for number in range(32)]


def test_one_range_is_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(lambda _: Answer(404)) as server:
        use_s3(server, monkeypatch)
        with pytest.raises(ObjectNotFoundError):
            open_store("s3://bucket").read_ranges("a", [(5, 10)])
    assert [request.headers["range"] for request in server.requests] == ["bytes=5-14"]


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"])
def test_the_endpoint_is_found_by_each_of_its_names(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with scripted(lambda _: Answer(200, b"here")) as server:
        use_s3(server, monkeypatch)
        monkeypatch.delenv("AWS_ENDPOINT_URL")
        monkeypatch.setenv(variable, f"http://{LOOPBACK}:{server.port}")
        assert open_store("s3://bucket").read("a") == b"here"


def test_an_endpoint_without_tls_needs_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(lambda _: Answer(200)) as server:
        use_s3(server, monkeypatch)
        monkeypatch.delenv("AWS_ALLOW_HTTP")
        store = open_store("s3://bucket")
        for operation in ("read", "create"):
            with raises(StorageError, "invalid-storage-settings") as caught:
                ASK[operation](store, "a")
            assert type(caught.value) is StorageError
            assert "AWS_ALLOW_HTTP" in str(caught.value.hint)
    assert server.requests == []


@pytest.mark.parametrize(
    ("root", "variable", "value"),
    [
        ("s3://bucket", "AWS_TIMEOUT", SECRET_KEY),
        ("gs://bucket", "GOOGLE_SERVICE_ACCOUNT", f"/{SECRET_KEY}"),
        ("az://container", "AZURE_STORAGE_ACCOUNT_KEY", SECRET_KEY),
    ],
)
def test_settings_that_do_not_suffice_are_told_when_the_store_is_opened(
    monkeypatch: pytest.MonkeyPatch, root: str, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    prefix = variable.split("_", maxsplit=1)[0]
    with raises(StorageError, "invalid-storage-settings", path=root) as caught:
        open_store(root)
    assert f"{prefix}_" in str(caught.value.hint)
    assert_tells_no_secret(caught.value)


def test_conditions_that_are_switched_off_are_not_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted(lambda _: Answer(200)) as server:
        use_s3(server, monkeypatch, AWS_CONDITIONAL_PUT="disabled")
        with raises(ConditionsIgnoredError, "conditional-write-unsupported") as caught:
            open_store("s3://bucket").create("a", b"")
    assert "AWS_CONDITIONAL_PUT" in str(caught.value.hint)
    assert server.requests == []


def honouring() -> Callable[[Request], Answer]:
    """A script that does as S3 does with objects created, read and deleted."""
    kept: dict[str, bytes] = {}

    def answer(request: Request) -> Answer:
        if request.method == "PUT":
            if request.path in kept:
                return Answer(412)
            kept[request.path] = request.body
            return Answer(200)
        if request.method == "GET":
            return Answer(200, kept[request.path])
        return Answer(200, b"<DeleteResult></DeleteResult>")

    return answer


def test_a_store_is_asked_once_per_process_whether_it_honours_conditions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted(honouring()) as server:
        use_s3(server, monkeypatch)
        open_store("s3://bucket/a").check_conditions("digits")
        assert [request.method for request in server.requests] == ["PUT", "PUT", "GET", "POST"]
        open_store("s3://bucket/b").check_conditions("faces")
        assert len(server.requests) == 4
        open_store("s3://other/b").check_conditions("faces")
        assert len(server.requests) == 8
    with scripted(honouring()) as another:
        use_s3(another, monkeypatch)
        open_store("s3://bucket/a").check_conditions("digits")
        assert len(another.requests) == 4, "another endpoint is another store"


def test_a_store_that_overwrites_is_refused_each_time(careless_s3_root: str) -> None:
    store = open_store(careless_s3_root)
    for _ in range(2):
        with raises(ConditionsIgnoredError, "conditional-write-unsupported", path=store.uri):
            store.check_conditions("digits")
    assert names(store, hidden=True) == [], "the probe is gone"


def test_a_store_that_says_exists_and_overwrites_all_the_same_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: dict[str, bytes] = {}

    def lying(request: Request) -> Answer:
        if request.method == "PUT":
            known = request.path in kept
            kept[request.path] = request.body
            return Answer(412 if known else 200)
        return Answer(200, kept.get(request.path, b"<DeleteResult></DeleteResult>"))

    with scripted(lying) as server:
        use_s3(server, monkeypatch)
        with pytest.raises(ConditionsIgnoredError):
            open_store("s3://bucket").check_conditions("")


def test_a_missing_bucket_is_told(s3_root: str) -> None:
    store = open_store(f"s3://no-such-bucket/{s3_root[-8:]}")
    for operation in ("create", "replace", "read", "list", "folders", "check_conditions"):
        with raises(StorageError, "bucket-not-found") as caught:
            ASK[operation](store, "a")
        assert not isinstance(caught.value, ObjectNotFoundError)


@pytest.mark.parametrize("variable", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_wrong_credentials_are_told_without_showing_them(
    s3_root: str, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, f"wrong-{SECRET_KEY}")
    store = open_store(s3_root)
    for operation in ("create", "read", "list", "delete", "info"):
        with raises(StorageError, "access-denied") as caught:
            ASK[operation](store, "a")
        assert "(403)" in caught.value.message
        assert_tells_no_secret(caught.value)


def test_two_roots_in_one_bucket_are_apart(s3_root: str, seaweedfs: S3Server) -> None:
    other = seaweedfs.new_root()
    open_store(s3_root).create("a", b"one")
    open_store(other).create("a", b"two")
    assert open_store(s3_root).read("a") == b"one"
    assert names(open_store(other)) == ["a"]


def test_a_memory_is_shared_by_its_name_within_the_process() -> None:
    open_store("memory://shared/x").create("a", b"1")
    assert open_store("memory://shared/x").read("a") == b"1"
    assert open_store("memory://shared").read("x/a") == b"1"
    assert open_store("memory://shared/y").list("") == []
    assert open_store("memory://another").list("") == []


def test_azure_and_google_are_asked_to_create_only_if_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted(lambda _: Answer(412)) as server:
        endpoint = f"http://{LOOPBACK}:{server.port}"
        account = {
            "gcs_base_url": endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        settings = {
            "AZURE_STORAGE_ACCOUNT_NAME": "account",
            "AZURE_STORAGE_ACCOUNT_KEY": "a2V5",
            "AZURE_STORAGE_ENDPOINT": endpoint,
            "AZURE_ALLOW_HTTP": "true",
            "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account),
            "GOOGLE_ALLOW_HTTP": "true",
            "NO_PROXY": LOOPBACK,
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        for root in ("az://container/a", "gs://bucket/a"):
            with pytest.raises(ObjectExistsError):
                open_store(root).create("b", b"1")
    azure, google = server.requests
    assert azure.headers["if-none-match"] == "*"
    assert google.headers["x-goog-if-generation-match"] == "0"
