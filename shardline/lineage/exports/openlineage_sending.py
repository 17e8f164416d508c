"""Where OpenLineage events go: lines of JSON in a file, or an endpoint that takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from shardline.errors import BadNameError, UnavailableError
from shardline.storage.local import DurableFile
from shardline.wording import counted

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
            f"{shown!r} is no address of a server: write http:// or https:// and its name, as "
            "https://marquez.example.org, and no password; a key goes into OPENLINEAGE_API_KEY"
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
        told_code = f"{where} could not be reached ({what})"
        if answer is not None:
            told_code = f"{where} did not take an event: it answered {answer.status_code}"
        raise UnavailableError(
            f"{told_code}. {counted(events, 'event')} had been taken: look at the server, and send "
            "all again, which tells nothing twice"
        ) from None
    finally:
        transport.close()
    return Sent(entries, events)
