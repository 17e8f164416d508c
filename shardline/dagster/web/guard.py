"""The guard of the Dagster web server, and its report pages.

The web server has no authentication and checks neither the origin nor the host of a request. Any
page in a browser on the same machine could launch runs, even on loopback: with a link, a form, a
WebSocket, or a name that resolves to 127.0.0.1 (DNS rebinding).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shardline.dagster.resources import REPORTS_PATH
from shardline.errors import InvalidArgumentError
from shardline.hints import Hint

LOOPBACK = "127.0.0.1"
_LOOPBACK_NAMES = (LOOPBACK, "localhost", "[::1]")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")

_NO_FRAMES = "frame-ancestors 'none'"
_ANSWER_HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class DeniedRequest:
    """The answer to a denied request."""

    status: int
    reason: str


_HOST = DeniedRequest(
    421,
    "Unknown host name in the Host header. If a proxy or a tunnel is in front of this server,"
    " start it with the address that the browser shows: --host https://NAME, or"
    " SHARDLINE_UI_HOSTS.",
)
_ORIGIN = DeniedRequest(
    403,
    "The request comes from a page of another origin. If a proxy or a tunnel is in front of this"
    " server, let it pass on the Host header, and start the server with the address that the"
    " browser shows: --host https://NAME, or SHARDLINE_UI_HOSTS.",
)
_NO_ORIGIN = DeniedRequest(403, "A WebSocket needs an Origin header, which every browser sends.")
_METHOD = DeniedRequest(405, "Only GET, HEAD and POST are allowed.")
_GRAPHQL_BY_GET = DeniedRequest(405, "GraphQL requests must be POST, with the query as JSON.")
_READ_ONLY = DeniedRequest(401, "This server is read-only.")
_NOT_JSON = DeniedRequest(415, "A POST must have the content type application/json.")


def parse_origin(address: str) -> str:
    """Return the origin that a browser sends for an address. The default scheme is https.

    Raises InvalidArgumentError for anything but a scheme, a name and a port.
    """
    scheme, _, rest = address.strip().lower().rpartition("://")
    scheme, authority = scheme or "https", rest.removesuffix("/")
    if scheme not in _DEFAULT_PORTS or not _AUTHORITY.fullmatch(authority):
        raise InvalidArgumentError(
            f"invalid server address {address!r}",
            code="invalid-location",
            hint=Hint.of("write NAME, NAME:PORT or http://NAME:PORT, as the browser shows it"),
        )
    return f"{scheme}://{authority.removesuffix(f':{_DEFAULT_PORTS[scheme]}')}"


def get_loopback_origins(port: int) -> frozenset[str]:
    """Return the origins of a port on this machine."""
    return frozenset(parse_origin(f"http://{name}:{port}") for name in _LOOPBACK_NAMES)


class Guard:
    """An ASGI app that passes requests of the `origins` to an app, and forbids frames.

    A POST may lack the Origin header, which every browser sends: local programs need not pretend to
    be a page. With `read_only`, only GraphQL may be posted: Dagster refuses mutations itself, but
    some releases accept events from anyone.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str], *, read_only: bool = False) -> None:
        self._app = app
        self._read_only = read_only
        self._origins = frozenset(origins)
        self._hosts = frozenset(urlsplit(origin).netloc for origin in self._origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the app, or deny it."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] in {"http.response.start", "websocket.http.response.start"}:
                _add_headers(message)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send_guarded)
        else:
            answer = PlainTextResponse(f"{refusal.reason}\n", refusal.status)
            await answer(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> DeniedRequest | None:
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return _HOST
        own = self._origins & {f"{scheme}://{hosts[0].lower()}" for scheme in _DEFAULT_PORTS}
        if not own.issuperset(origins):
            return _ORIGIN
        if scope["type"] == "websocket":
            return None if origins else _NO_ORIGIN
        refusal = _find_http_refusal(scope, headers)
        if refusal is None and self._read_only and scope["method"] == "POST":
            return None if _is_graphql(scope) else _READ_ONLY
        return refusal


def _find_http_refusal(scope: Scope, headers: Headers) -> DeniedRequest | None:
    """Return why to deny a request with the right host and no foreign Origin, None to pass it."""
    method = scope["method"]
    if _is_foreign(headers) and not (method == "GET" and _is_navigation(headers)):
        return _ORIGIN
    if method == "POST":
        return None if _is_json(headers) else _NOT_JSON
    if method not in {"GET", "HEAD"}:
        return _METHOD
    if _is_graphql(scope) and scope["query_string"]:
        return _GRAPHQL_BY_GET
    return None


def _is_foreign(headers: Headers) -> bool:
    """Return True if the browser reports another site or another port as the source."""
    return not {"same-origin", "none"}.issuperset(headers.getlist("sec-fetch-site"))


def _is_navigation(headers: Headers) -> bool:
    """Return True for a navigation in the address bar: links from a chat or an issue must work."""
    fetch_headers = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return fetch_headers == ("navigate", "document")


def _is_json(headers: Headers) -> bool:
    """Return True for the media type JSON. A page may send 'text/plain; application/json'."""
    types = headers.getlist("content-type")
    return [kind.partition(";")[0].strip().lower() for kind in types] == ["application/json"]


def _is_graphql(scope: Scope) -> bool:
    # The router treats '/graphql' with a trailing line feed as the same path.
    return str(scope["path"]).strip("/\r\n\t ") == "graphql"


def _add_headers(message: Message) -> None:
    headers = MutableHeaders(scope=message)
    # A second policy can only narrow the first: browsers enforce both.
    headers.append("Content-Security-Policy", _NO_FRAMES)
    headers.update(_ANSWER_HEADERS)


_SANDBOX_POLICY = "sandbox allow-scripts allow-modals"


class ReportPages:
    """An ASGI app that serves the folder of reports next to the web server.

    Reports contain text from data, so a sandbox policy gives each page an opaque origin, from which
    it cannot reach Dagster or any other page.
    """

    def __init__(self, app: ASGIApp, folder: Path) -> None:
        self._app = app
        self._files = StaticFiles(directory=folder, check_dir=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a page, or pass the request to the web server."""
        path = str(scope.get("path", ""))
        if scope["type"] != "http" or not path.startswith(f"{REPORTS_PATH}/"):
            await self._app(scope, receive, send)
            return

        async def send_apart(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("Content-Security-Policy", _SANDBOX_POLICY)
            await send(message)

        below = {**scope, "path": path.removeprefix(REPORTS_PATH), "root_path": ""}
        try:
            await self._files(below, receive, send_apart)
        except HTTPException as error:
            answer = PlainTextResponse(f"{error.detail}\n", error.status_code)
            await answer(scope, receive, send_apart)
