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

if TYPE_CHECKING:
    from collections.abc import Iterator

_STATUS = re.compile(r"status code: ([0-9]{3})")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist")
_NO_CREDENTIALS = re.compile(r"169\.254\.|[Tt]oken request|[Cc]redential")
_NOT_SENT = re.compile(r"builder error")
_CHECK_CREDENTIALS = "check the credentials in the environment, and what they allow"


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
            f"{where}: access was refused ({status or 'no status'}); {_CHECK_CREDENTIALS}"
        )
    if isinstance(error, FileNotFoundError) or status == 404:
        if doing == "read" and not _NO_BUCKET.search(text):
            return ObjectMissingError(f"{where}: there is no such object")
        return StorageError(
            f"{where}: the bucket or container is not there; make it first, or check its name"
        )
    if _NOT_SENT.search(text):
        return StorageError(
            f"{where}: the endpoint in the environment cannot be used; check how it is written "
            "(one that begins with http:// needs AWS_ALLOW_HTTP=true too)"
        )
    return (
        _told_of_write(error, where, status)
        if doing == "write"
        else _told_of_read(text, where, status)
    )


def _told_of_read(text: str, where: str, status: int | None) -> StorageError:
    if status == 416:
        return StorageError(f"{where}: it is shorter than was expected; it is not the right object")
    if status is None and _NO_CREDENTIALS.search(text):
        return StorageError(f"{where}: no credentials were found; {_CHECK_CREDENTIALS}")
    kind = UnavailableError if _may_work_later(status) else StorageError
    return kind(
        f"{where}: {_answer(status)}; run again, and check the endpoint if it happens once more"
    )


def _told_of_write(error: Exception, where: str, status: int | None) -> StorageError:
    if isinstance(error, AlreadyExistsError):
        return ObjectExistsError(f"{where} exists already")
    if isinstance(error, NotSupportedError | NotImplementedError):
        return ConditionsIgnoredError(
            f"{where}: create-if-absent is switched off in the environment (AWS_CONDITIONAL_PUT), "
            "and nothing is written without it; switch it on"
        )
    if not _may_work_later(status):
        return StorageError(
            f"{where}: {_answer(status)}; nothing was changed. Check the endpoint and region in "
            "the environment"
        )
    # Without a clear answer to the last try, one before it may have done the work.
    return UncertainWriteError(
        f"{where}: {_answer(status)}, so it may be written or not; look whether it is there "
        "before you run again"
    )


def _may_work_later(status: int | None) -> bool:
    return status is None or status >= 500 or status in {408, 425, 429}


def _answer(status: int | None) -> str:
    if status is None:
        return "the store did not answer"
    return f"the store answered with an error ({status})"
