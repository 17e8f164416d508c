"""A server that takes events, on loopback."""

from __future__ import annotations

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def server(
    *, status: int = 201, first: int = 0
) -> Iterator[tuple[str, list[tuple[str, str | None, Any]]]]:
    """An endpoint on loopback, and what was posted to it: path, key and event.

    It takes so many at first, whatever it answers to the others.
    """
    posted: list[tuple[str, str | None, Any]] = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((self.path, self.headers["Authorization"], json.loads(body)))
            self.send_response(201 if len(posted) <= first else status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Endpoint) as http:
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}", posted
        finally:
            http.shutdown()
            thread.join()
