"""The pages of the Dagster UI that the tests visit, by what a person sees and clicks on them.

A button is found by its icon and its words, since the icons have names for people who cannot see.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import ConsoleMessage, Locator, Page, Request, Response, expect

MILLISECONDS = 300_000
WIDTH, HEIGHT = 1440, 900
_GRAPH_HEIGHT = 820
_NO_TOASTS = "[data-sonner-toaster] { display: none !important }"
_GROUPS = ("digits", "digit_pairs")
_ENDS = re.compile("^(Success|Failure|Canceled)$")
_LINE_COLOUR, _LINE_PIXELS = [0x4F, 0x43, 0xDD], 100
_HAS_LINE = """\
([canvas, colour, pixels]) => {
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (colour.every((shade, place) => data[at + place] === shade)) found += 1;
  }
  return found >= pixels;
}
"""
_FOLLOW_LINK = """\
path => {
  history.pushState(null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
}
"""


@dataclass
class Complaints:
    """What went wrong between a browser and the pages of one origin."""

    origin: str
    heard: list[str] = field(default_factory=list)

    def listen(self, page: Page) -> None:
        page.on("response", self._answered)
        page.on("requestfailed", self._failed)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.heard.append(f"raised: {error}"))
        page.on("websocket", lambda socket: socket.on("socketerror", self._broke))

    def _answered(self, response: Response) -> None:
        if response.status >= 400 and response.url.startswith(self.origin):
            self.heard.append(f"{response.status}: {response.url}")

    def _failed(self, request: Request) -> None:
        # Whoever leaves a page breaks off what that page was still asking for.
        if request.url.startswith(self.origin) and request.failure != "net::ERR_ABORTED":
            self.heard.append(f"{request.failure}: {request.url}")

    def _said(self, message: ConsoleMessage) -> None:
        # A page that is a file may say what it likes.
        where = message.location["url"]
        if message.type == "error" and (not where or where.startswith(self.origin)):
            self.heard.append(f"console: {message.text}")

    def _broke(self, error: str) -> None:
        # As above: the page closed it itself.
        if error != "WebSocket is closed before the connection is established.":
            self.heard.append(f"WebSocket: {error}")


@dataclass(frozen=True)
class DagsterUI:
    """A browser that looks at Dagster, and the folder for its screenshots, if any are wanted."""

    page: Page
    origin: str
    screenshots: Path | None

    def shoot(self, name: str, height: int | None = None) -> None:
        """Take a screenshot if wanted, on a screen of another height if that is given."""
        if self.screenshots is None:
            return
        if height is not None:
            self.page.set_viewport_size({"width": WIDTH, "height": height})
        path = self.screenshots / f"{name}.png"
        self.page.screenshot(path=path, animations="disabled", style=_NO_TOASTS)

    def open_graph(self) -> None:
        """Open the graph and all its groups, on a screen no higher than what there is to see."""
        nodes = [f"global@global:{group}" for group in _GROUPS]
        listed = [(f"open-nodes[{place}]", node) for place, node in enumerate(nodes)]
        query = urlencode([("expanded", ",".join(nodes)), *listed])
        self._open(f"/asset-groups?{query}", _GRAPH_HEIGHT)

    def listed(self, asset: str, status: str = "") -> Locator:
        """An asset in the list beside the graph; its status is the name of its icon."""
        return self.page.get_by_role("button", name=re.compile(f"{status} ?{asset} {asset}$"))

    def open_asset(self, asset: str) -> None:
        self._open(f"/assets/{asset}")

    def materialize(self, asset: str) -> str:
        """Click Materialize, go to the run, and watch it to its end; gives how that was."""
        self.open_asset(asset)
        self.page.get_by_role("button", name="materialization Materialize", exact=True).click()
        self.page.get_by_text("View", exact=True).click()
        self.page.wait_for_url("**/runs/*")
        ended = self.page.get_by_text(_ENDS).first
        ended.wait_for()
        return ended.inner_text()

    def open_launchpad(self, asset: str) -> Locator:
        """Open the menu beside Materialize, and the launchpad in it; gives its dialog."""
        self.open_asset(asset)
        self.page.get_by_role("button", name="arrow_drop_down", exact=True).first.click()
        self.page.get_by_text("Open launchpad", exact=True).click()
        return self.page.get_by_role("dialog").filter(has_text="Launchpad (configure assets)")

    def metadata(self, key: str) -> Locator:
        """The value of a key in the metadata of the asset that is open."""
        cell = self.page.get_by_role("cell", name=key, exact=True)
        return self.page.get_by_role("row").filter(has=cell).first.get_by_role("cell").nth(2)

    def table(self, key: str) -> list[list[str]]:
        """The rows of the table that is the value of a key, without its heading."""
        rows = self.metadata(key).get_by_role("row")
        rows.nth(1).wait_for()
        return [row.get_by_role("cell").all_inner_texts() for row in rows.all()[1:]]

    def snapshot(self, asset: str) -> tuple[int, str]:
        """The number and the digest of the snapshot that an asset's page tells of."""
        self.open_asset(asset)
        number, digest = (
            self.metadata(key).inner_text()
            for key in ("shardline/snapshot", "shardline/content_digest")
        )
        return int(number), digest.strip()

    def scroll_to_plot(self, key: str) -> None:
        """Go to the plot of a numeric key, and wait for its line: a single point has too little."""
        title = self.page.get_by_text(key, exact=True)
        drawn = self.page.locator("div", has=title).filter(has=self.page.locator("canvas"))
        canvas = drawn.last.locator("canvas")
        canvas.scroll_into_view_if_needed()
        line = [canvas.element_handle(), _LINE_COLOUR, _LINE_PIXELS]
        self.page.wait_for_function(_HAS_LINE, arg=line)

    def open_check(self, asset: str, check: str) -> None:
        """Open the page of a check, as a link does: loading the whole page takes long."""
        self.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        self.page.evaluate(_FOLLOW_LINK, f"/assets/{asset}?view=checks&checkDetail={check}")
        icon = self.page.get_by_role("img", name="asset_check", exact=True)
        expect(self.page.locator("div", has=icon).last).to_have_text(check)

    def check_results(self) -> Locator:
        """The words beside the names of the checks, on the page where they are listed."""
        return self.page.get_by_text(re.compile("^(Succeeded|Failed|Warning)$"))

    def _open(self, path: str, height: int = HEIGHT) -> None:
        self.page.set_viewport_size({"width": WIDTH, "height": height})
        self.page.goto(self.origin + path)
