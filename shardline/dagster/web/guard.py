"""What stands between the browsers and the Dagster web server, which itself lets everybody in.

The web server has no login and does not ask which page sent a request, or to which name. So every
page that is open in a browser on the same machine could launch runs, loopback or not: by a link, a
form, a WebSocket, or under a name of its own that it lets point to 127.0.0.1 (DNS rebinding).
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
    """The answer to a request that is not let in."""

    status: int
    reason: str


_HOST = DeniedRequest(
    421,
    "This server does not go by the name in the Host header. If a proxy or a tunnel is in front of"
    " it, start it with the address that the browser shows: --host https://NAME, or"
    " SHARDLINE_UI_HOSTS.",
)
_ORIGIN = DeniedRequest(
    403,
    "The request comes from a page of another origin. If a proxy or a tunnel is in front of this"
    " server, let it pass the Host header on, and start the server with the address that the"
    " browser shows: --host https://NAME, or SHARDLINE_UI_HOSTS.",
)
_NO_ORIGIN = DeniedRequest(403, "A WebSocket needs an Origin header, and a browser sends it.")
_METHOD = DeniedRequest(405, "Only GET, HEAD and POST are answered here.")
_GRAPHQL_BY_GET = DeniedRequest(405, "GraphQL is answered by POST only, with the query as JSON.")
_READ_ONLY = DeniedRequest(401, "This server is read-only.")
_NOT_JSON = DeniedRequest(415, "A POST must have the content type application/json.")


def parse_origin(told: str) -> str:
    """The origin that a browser sends for an address, which is https where it does not say.

    Raises ValueError if it is more, less or other than a scheme, a name and a port.
    """
    scheme, _, rest = told.strip().lower().rpartition("://")
    scheme, authority = scheme or "https", rest.removesuffix("/")
    if scheme not in _DEFAULT_PORTS or not _AUTHORITY.fullmatch(authority):
        raise InvalidArgumentError(
            f"invalid server address {told!r}",
            code="invalid-location",
            hint=Hint.of("write NAME, NAME:PORT or http://NAME:PORT, as the browser shows it"),
        )
    return f"{scheme}://{authority.removesuffix(f':{_DEFAULT_PORTS[scheme]}')}"


def loopback_origins(port: int) -> frozenset[str]:
    """The origins under which a browser on this machine opens a port of it."""
    return frozenset(parse_origin(f"http://{name}:{port}") for name in _LOOPBACK_NAMES)


class Guard:
    """Lets in what was sent to one of the `origins` by that origin itself, and keeps out frames.

    A POST may lack the Origin header, which every browser sends with it: programs on this machine
    need not pretend to be a page. If `read_only`, no POST but of GraphQL is let in: Dagster refuses
    mutations itself, but some releases let everybody report events.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str], *, read_only: bool = False) -> None:
        self._app = app
        self._read_only = read_only
        self._origins = frozenset(origins)
        self._hosts = frozenset(urlsplit(origin).netloc for origin in self._origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: with what the app says to it, or with the reason why it is refused."""
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
    """Why a request to the right name, with no foreign Origin, is not let in."""
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
    """Whether the browser says that another site, or another port of this one, is behind this."""
    return not {"same-origin", "none"}.issuperset(headers.getlist("sec-fetch-site"))


def _is_navigation(headers: Headers) -> bool:
    """Whether the address bar will show it: a link from a chat or an issue must work."""
    wanted = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return wanted == ("navigate", "document")


def _is_json(headers: Headers) -> bool:
    """By the type itself: a page may send 'text/plain; application/json' to any origin."""
    types = headers.getlist("content-type")
    return [kind.partition(";")[0].strip().lower() for kind in types] == ["application/json"]


def _is_graphql(scope: Scope) -> bool:
    # The router takes '/graphql' with a line feed behind it for the same thing.
    return str(scope["path"]).strip("/\r\n\t ") == "graphql"


def _add_headers(message: Message) -> None:
    headers = MutableHeaders(scope=message)
    # A second policy can only narrow the first: a browser obeys both.
    headers.append("Content-Security-Policy", _NO_FRAMES)
    headers.update(_ANSWER_HEADERS)


_SANDBOX_POLICY = "sandbox allow-scripts allow-modals"


class ReportPages:
    """The web server, and beside it the folder of reports."""

    def __init__(self, app: ASGIApp, folder: Path) -> None:
        self._app = app
        self._files = StaticFiles(directory=folder, check_dir=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a page, or let the web server answer."""
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
