"""Where OpenLineage events go: lines of JSON in a file, or an endpoint that takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shardline.errors import BadNameError, UnavailableError
from shardline.hints import Hint
from shardline.storage.durable_file import DurableFile
from shardline.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from openlineage.client.event_v2 import RunEvent

    from shardline.lineage.exports.openlineage import Told

ENDPOINT = "api/v1/lineage"


@dataclass(frozen=True, slots=True)
class Sent:
    """How many entries were told, in how many events."""

    entries: int
    events: int


def line(event: RunEvent) -> str:
    """An event as one line of JSON."""
    from openlineage.client.serde import Serde  # noqa: PLC0415 - optional

    return str(Serde.to_json(event)) + "\n"


def write_events(told: Iterable[Told], path: Path, *, overwrite: bool = False) -> Sent:
    """Write events to a file, one a line.

    With `overwrite`, a file that is there is replaced when all are told.
    """
    entries = events = 0
    with DurableFile(path, overwrite=overwrite) as file:
        for one in told:
            file.write("".join(map(line, one.events)).encode())
            entries, events = entries + 1, events + len(one.events)
    return Sent(entries, events)


def send_events(told: Iterable[Told], url: str, *, api_key: str = "") -> Sent:
    """Post events to an endpoint, one after the other, in the order of time.

    `url` is that of the server; with a path, it is where to post. Raises UnavailableError at the
    first that is not taken: since runs have the same ids again, all can be sent again.
    """
    from openlineage.client.transport.http import (  # noqa: PLC0415 - optional
        ApiKeyTokenProvider,
        HttpConfig,
        HttpTransport,
        TokenProvider,
    )
    from requests import RequestException  # noqa: PLC0415 - comes with it

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        # What stands before an @ may be a password.
        shown = f"…@{url.rpartition('@')[2]}" if "@" in url else url
        raise BadNameError(
            f"invalid server address {shown!r}: expected http:// or https:// without password",
            code="invalid-location",
            hint=Hint.of(
                "write an address such as https://marquez.example.org; set a key in "
                "OPENLINEAGE_API_KEY"
            ),
        )
    auth = ApiKeyTokenProvider({"apiKey": api_key}) if api_key else TokenProvider({})
    config = HttpConfig(
        url=f"{parts.scheme}://{parts.netloc}",
        endpoint=parts.path.strip("/") or ENDPOINT,
        auth=auth,
    )
    # What it answers to the last try is told as its answer, and not as a failure to reach it.
    config.retry = {**config.retry, "raise_on_status": False}
    transport = HttpTransport(config)
    entries = events = 0
    try:
        for one in told:
            for event in one.events:
                transport.emit(event)
                events += 1
            entries += 1
    except RequestException as error:
        answer = getattr(error, "response", None)
        where, what = f"{config.url}/{config.endpoint}", type(error).__name__
        sent = f"after {counted(events, 'event')}"
        problem, code = f"cannot be reached ({what}) {sent}", "storage-unavailable"
        if answer is not None:
            problem = f"rejected an event with status {answer.status_code} {sent}"
            code = "request-rejected"
        raise UnavailableError(
            f"{where}: {problem}",
            code=code,
            hint=Hint.of("check the server and send all events again: none is stored twice"),
            path=where,
        ) from None
    finally:
        transport.close()
    return Sent(entries, events)
