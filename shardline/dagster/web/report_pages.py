"""Pages for people, the audit's among them, on the web server: where nothing in them can act.

What is in such a page came from data. So a browser gives it an origin of its own, from which it
reaches neither Dagster nor anything else.
"""

from pathlib import Path
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PREFIX = "/reports"
_SANDBOX_POLICY = "sandbox allow-scripts allow-modals"


def get_page_link(page: Path, reports: Path) -> str:
    """Where the web server has a page that lies in the folder of reports."""
    place = page.resolve().relative_to(reports.resolve())
    return f"{_PREFIX}/{quote(place.as_posix())}"


class ReportPages:
    """The web server, and beside it the folder of reports."""

    def __init__(self, app: ASGIApp, folder: Path) -> None:
        self._app = app
        self._files = StaticFiles(directory=folder, check_dir=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a page, or let the web server answer."""
        path = str(scope.get("path", ""))
        if scope["type"] != "http" or not path.startswith(f"{_PREFIX}/"):
            await self._app(scope, receive, send)
            return

        async def send_apart(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("Content-Security-Policy", _SANDBOX_POLICY)
            await send(message)

        below = {**scope, "path": path.removeprefix(_PREFIX), "root_path": ""}
        try:
            await self._files(below, receive, send_apart)
        except HTTPException as error:
            answer = PlainTextResponse(f"{error.detail}\n", error.status_code)
            await answer(scope, receive, send_apart)
