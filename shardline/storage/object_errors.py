"""Errors of object stores in our words, chosen by their kind and HTTP status.

The library's own text is looked at and never shown: it can hold signed URLs and access keys.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from shardline.errors import (
    ConditionsIgnoredError,
    ObjectExistsError,
    ObjectMissingError,
    ShardlineError,
    StorageError,
    UnavailableError,
    UncertainWriteError,
)
from shardline.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Iterator

_STATUS = re.compile(r"status code: ([0-9]{3})")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist")
_NO_CREDENTIALS = re.compile(r"169\.254\.|[Tt]oken request|[Cc]redential")
_NOT_SENT = re.compile(r"builder error")
_CHECK_CREDENTIALS = Hint.of("check the credentials in the environment, and their permissions")


@contextmanager
def told(where: str, doing: Literal["read", "list", "write"]) -> Iterator[None]:
    """Turn errors of the library about the object or folder `where` into ours."""
    try:
        yield
    except ShardlineError:
        raise
    except (BaseError, OSError, NotImplementedError, ValueError) as error:
        raise _told(error, where, doing) from None


def _told(error: Exception, where: str, doing: str) -> StorageError:
    text = str(error)
    found = _STATUS.search(text)
    status = int(found[1]) if found else None
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in {401, 403}:
        return StorageError(
            f"{where}: access denied ({status or 'no status'})",
            code="access-denied",
            hint=_CHECK_CREDENTIALS,
            path=where,
        )
    if isinstance(error, FileNotFoundError) or status == 404:
        if doing == "read" and not _NO_BUCKET.search(text):
            return ObjectMissingError(f"{where}: object not found", path=where)
        return StorageError(
            f"{where}: bucket or container not found",
            code="bucket-not-found",
            hint=Hint.of("create it first, or check its name"),
            path=where,
        )
    if _NOT_SENT.search(text):
        return StorageError(
            f"{where}: invalid endpoint in the environment",
            code="invalid-storage-settings",
            hint=Hint.of(
                "check the endpoint: one that begins with http:// also needs `AWS_ALLOW_HTTP=true`"
            ),
            path=where,
        )
    return (
        _told_of_write(error, where, status)
        if doing == "write"
        else _told_of_read(text, where, status)
    )


def _told_of_read(text: str, where: str, status: int | None) -> StorageError:
    if status == 416:
        return StorageError(
            f"{where}: object shorter than expected", code="object-mismatch", path=where
        )
    if status is None and _NO_CREDENTIALS.search(text):
        return StorageError(
            f"{where}: no credentials found",
            code="credentials-not-found",
            hint=_CHECK_CREDENTIALS,
            path=where,
        )
    kind = UnavailableError if _may_work_later(status) else StorageError
    return kind(
        f"{where}: {_answer(status)}",
        hint=Hint.of("run again, and check the endpoint if the error returns"),
        path=where,
    )


def _told_of_write(error: Exception, where: str, status: int | None) -> StorageError:
    if isinstance(error, AlreadyExistsError):
        return ObjectExistsError(f"{where}: object exists already", path=where)
    if isinstance(error, NotSupportedError | NotImplementedError):
        return ConditionsIgnoredError(
            f"{where}: create-if-absent is disabled in the environment",
            hint=Hint.of("enable it: see the variable `AWS_CONDITIONAL_PUT`"),
            path=where,
        )
    if not _may_work_later(status):
        return StorageError(
            f"{where}: {_answer(status)}, object not written",
            hint=Hint.of("check the endpoint and region in the environment"),
            path=where,
        )
    # Without a clear answer to the last try, one before it may have done the work.
    return UncertainWriteError(
        f"{where}: {_answer(status)}, so the object may or may not be written",
        hint=Hint.of("check whether the object exists before you run again"),
        path=where,
    )


def _may_work_later(status: int | None) -> bool:
    return status is None or status >= 500 or status in {408, 425, 429}


def _answer(status: int | None) -> str:
    if status is None:
        return "the store did not answer"
    return f"the store answered with an error ({status})"
