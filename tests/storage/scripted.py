"""An HTTP server on loopback that answers as a test says, to see how stores take it."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Request:
    """What a client asked. Header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What to say. Without a status nothing is said: the connection ends or stays silent."""

    status: int | None
    body: bytes = b""
    silent: bool = False


@dataclass
class ScriptedServer:
    """The requests that came, and the answers that were given by `script`."""

    script: Callable[[Request], Answer]
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)


@contextlib.contextmanager
def scripted(script: Callable[[Request], Answer]) -> Iterator[ScriptedServer]:
    """A server that lives as long as the block."""
    server = ScriptedServer(script)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, self.rfile.read(size))
            server.requests.append(request)
            answer = server.script(request)
            if answer.status is None:
                if answer.silent:
                    server.closing.wait()
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("content-length", str(len(answer.body)))
            self.send_header("etag", '"0"')
            self.send_header("last-modified", "Mon, 02 Jan 2023 03:04:05 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one  # noqa: N815 - http.server's

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        http.handle_error = lambda *_: None  # type: ignore[method-assign] # clients may go away
        server.port = http.server_port
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            http.shutdown()
            thread.join()
