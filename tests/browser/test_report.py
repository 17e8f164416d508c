"""The report page as a person sees it: a file, opened in a browser that can reach nothing."""

import os
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import ConsoleMessage, Locator, Page, expect

from shardline.hints import Hint
from shardline.lineage.audit.audit_report import Finding
from shardline.lineage.page import write_page
from shardline.provenance.log_index import LogIndex
from tests.browser.conftest import SCREENSHOTS_VARIABLE
from tests.lineage.page_roots import HOSTILE, write_histories

pytestmark = pytest.mark.xdist_group("browser")  # they wait: one worker is enough

LAPTOP = {"width": 1366, "height": 768}
PAPER = {"width": 720, "height": 1000}
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
FINDINGS = [
    Finding(
        "note",
        "erased",
        "pairs/v1",
        "snapshot 1",
        "one record was erased",
        Hint.of("nothing to do"),
    ),
    Finding("error", "changed-shard", "digits/v1", "snapshot 1", HOSTILE, Hint.of("repair it")),
    *[
        Finding("warning", "no-source", "digits/v1", f"entry {n}", "gone", Hint.of("keep it"))
        for n in (2, 7)
    ],
    Finding("warning", "no-record", "", "the root", "nothing is known of it", Hint.of("look")),
]
REFUSED = """\
() => new Promise((resolve) => {
  addEventListener("securitypolicyviolation", (event) => resolve(event.effectiveDirective));
  document.body.append(Object.assign(new Image(), {src: "http://127.0.0.1:9/x.png"}));
})
"""


@dataclass
class Seen:
    """A browser before the page, and what the page asked for and complained of."""

    page: Page
    path: Path
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self) -> None:
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("console", self._said)
        self.page.set_viewport_size(LAPTOP)  # type: ignore[arg-type]
        self.page.goto(self.path.as_uri())

    def _said(self, message: ConsoleMessage) -> None:
        self.complaints.append(f"{message.type}: {message.text}")

    def shoot(self, name: str) -> None:
        told = os.environ.get(SCREENSHOTS_VARIABLE)
        folder = Path(told) if told else self.path.parent
        self.page.screenshot(path=folder / f"{name}.png")

    @property
    def detail(self) -> Locator:
        return self.page.get_by_label("Selected version")

    def node(self, version: str) -> Locator:
        return self.page.get_by_role("button", name=f"{version}, ")

    def camera(self) -> tuple[float, float, float]:
        """How far the graph is moved, and how much it is enlarged."""
        told = self.page.locator(".camera").get_attribute("transform") or ""
        x, y, scale = map(float, re.findall(r"-?[\d.]+", told) or (0, 0, 1))
        return x, y, scale


def test_report_page_works_without_network(browser_page: Page, tmp_path: Path) -> None:
    root = write_histories(tmp_path / "root").root
    path = write_page(LogIndex(root), tmp_path / "page.html", findings=FINDINGS, now=NOW)
    seen = Seen(browser_page, path)
    seen.open()
    what_was_found_is_on_top(seen)
    a_click_on_a_version_tells_its_history(seen)
    the_sizes_are_plotted(seen)
    the_fields_tell_where_they_come_from(seen)
    the_graph_is_zoomed_and_moved(seen)
    the_keyboard_does_it_all_too(seen)
    schemas_are_told_in_order(seen)
    it_can_be_read_in_the_dark(seen)
    on_paper_everything_is_there(seen)
    assert seen.asked == [path.as_uri()]
    assert seen.complaints == []
    assert browser_page.evaluate(REFUSED) == "img-src"


def what_was_found_is_on_top(seen: Seen) -> None:
    expect(seen.page).to_have_title("Shardline report")
    expect(seen.page.locator("#summary")).to_contain_text("3 versions of 2 datasets, 7 snapshots")
    found = seen.page.locator(".finding")
    expect(found).to_have_count(len(FINDINGS))
    expect(found.first).to_contain_text("changed-shard digits/v1 · snapshot 1")
    expect(found.first).to_contain_text(HOSTILE)
    expect(found.last).to_be_hidden()
    seen.page.get_by_role("button", name="Show all 5").click()
    expect(found.last).to_contain_text("one record was erased")
    seen.page.get_by_role("button", name="Show fewer").click()
    expect(seen.detail.get_by_role("heading", name="digits/v1")).to_be_visible()
    row = seen.page.locator("tr[data-version='digits/v1']")
    expect(row.locator(".chip.bad")).to_have_text(["✗ error"])
    expect(seen.page.locator("tr[data-version='pairs/v1'] .chip.bad")).to_have_count(0)
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    seen.shoot("report-laptop")


def a_click_on_a_version_tells_its_history(seen: Seen) -> None:
    seen.node("digits/v2").click()
    expect(seen.detail.get_by_role("heading", name="digits/v2")).to_be_visible()
    expect(seen.node("digits/v2")).to_have_attribute("aria-pressed", "true")
    expect(seen.page.locator(".edge.on")).to_have_count(1)
    seen.detail.get_by_role("button", name="digits/v1@4").click()
    snapshots = seen.detail.locator(".snapshot")
    expect(snapshots).to_have_count(5)
    verdicts = ["waiting", "published", "published", "rejected", "published"]
    for row, verdict in zip(snapshots.all(), verdicts, strict=True):
        expect(row.locator("summary")).to_contain_text(verdict)
    rejected = snapshots.nth(3)
    rejected.locator("summary").click()
    expect(rejected).to_contain_text(f"failed integrity (1 shard) record 7: {HOSTILE}")
    expect(rejected).to_contain_text("run </script><script>do")
    expect(rejected).to_contain_text("code c0ffee")
    expect(rejected).to_contain_text("Sourcesbatch bad")
    seen.shoot("report-version")


def the_sizes_are_plotted(seen: Seen) -> None:
    plots = seen.detail.get_by_role("img", name=re.compile("over time: "))
    expect(plots).to_have_count(2)
    for plot in plots.all():
        assert plot.locator(".line").evaluate("line => line.getTotalLength()") > 100
        expect(plot.locator(".dot")).to_have_count(5)
        expect(plot.locator(".dot.bad")).to_have_count(1)
    first = seen.detail.locator(".snapshot").last
    expect(first).not_to_have_attribute("open", "")
    plots.first.locator(".dot").first.click()
    expect(first).to_have_attribute("open", "")


def the_fields_tell_where_they_come_from(seen: Seen) -> None:
    seen.node("digits/v2").click()
    seen.detail.get_by_role("tab", name="Features (3)").click()
    rows = seen.detail.get_by_role("row")
    expect(rows.filter(has_text="bright")).to_contain_text(
        "computed by function 'seen' from digits/v1: image"
    )
    expect(rows.filter(has_text="note removed")).to_contain_text("was digits/v1: note")
    seen.shoot("report-fields")


def the_graph_is_zoomed_and_moved(seen: Seen) -> None:
    mouse, graph = seen.page.mouse, seen.page.locator("svg.graph")
    box = graph.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] - 20
    mouse.move(x, y)
    mouse.wheel(0, -300)
    seen.page.wait_for_function("document.querySelector('.camera').transform.baseVal.length > 0")
    assert seen.camera()[2] > 1.2
    before = seen.camera()
    mouse.down()
    mouse.move(x - 60, y - 30, steps=4)
    mouse.up()
    after = seen.camera()
    assert after[0] < before[0] - 30
    assert after[1] < before[1] - 15
    assert after[2] == before[2]
    seen.page.get_by_role("button", name="Zoom out").click()
    assert seen.camera()[2] < before[2]
    seen.page.get_by_role("button", name="Zoom in").click()
    assert seen.camera()[2] == pytest.approx(before[2])
    seen.page.get_by_role("button", name="Show all", exact=True).click()
    assert seen.camera() == (0, 0, 1)
    dragged_over_is_not_chosen(seen)


def dragged_over_is_not_chosen(seen: Seen) -> None:
    box = seen.node("pairs/v1").bounding_box()
    assert box is not None
    seen.page.mouse.move(box["x"] + 50, box["y"] + 20)
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + 20, box["y"] + 40, steps=4)
    seen.page.mouse.up()
    expect(seen.node("pairs/v1")).to_have_attribute("aria-pressed", "false")
    assert seen.camera()[0] < 0


def the_keyboard_does_it_all_too(seen: Seen) -> None:
    seen.page.locator("svg.graph").focus()
    for key, place, grows in (("+", 2, True), ("ArrowLeft", 0, True), ("ArrowDown", 1, False)):
        before = seen.camera()
        seen.page.keyboard.press(key)
        assert (seen.camera()[place] > before[place]) is grows
    seen.page.keyboard.press("0")
    assert seen.camera() == (0, 0, 1)
    seen.node("pairs/v1").focus()
    seen.page.keyboard.press("Enter")
    expect(seen.detail.get_by_role("heading", name="pairs/v1")).to_be_visible()
    seen.detail.get_by_role("tab", name="Snapshots").focus()
    seen.page.keyboard.press("ArrowRight")
    expect(seen.detail.get_by_role("tab", name="Features")).to_be_focused()
    expect(seen.detail.get_by_role("row").filter(has_text="a_image")).to_be_visible()


def schemas_are_told_in_order(seen: Seen) -> None:
    listed = seen.page.locator(".schemas").first.locator("> li")
    expect(listed).to_have_count(2)
    expect(listed.first).to_contain_text("digits/v1 declared with 3 features")
    expect(listed.last).to_contain_text("removed label")


def it_can_be_read_in_the_dark(seen: Seen) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = seen.page.evaluate(ground)
    seen.page.emulate_media(color_scheme="dark")
    assert seen.page.evaluate(ground) != light
    seen.shoot("report-dark")
    seen.page.emulate_media(color_scheme="light")


def on_paper_everything_is_there(seen: Seen) -> None:
    seen.page.get_by_role("button", name="Zoom in").click()
    seen.page.set_viewport_size(PAPER)  # type: ignore[arg-type]
    seen.page.emulate_media(media="print", color_scheme="dark")
    printed = seen.page.locator("#printed .version")
    expect(printed).to_have_count(3)
    expect(seen.page.locator("#printed .snapshot:not([open])")).to_have_count(0)
    expect(seen.page.locator("#printed .plot")).to_have_count(6)
    expect(seen.page.locator(".finding").last).to_be_visible()
    expect(seen.detail).to_be_hidden()
    graph = seen.page.locator("svg.graph").bounding_box()
    assert graph is not None
    for node in seen.page.locator(".node").all():
        box = node.bounding_box()
        assert box is not None
        assert graph["x"] <= box["x"]
        assert box["x"] + box["width"] <= graph["x"] + graph["width"]
        assert graph["y"] <= box["y"]
        assert box["y"] + box["height"] <= graph["y"] + graph["height"]
    assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert len(re.findall(rb"/Type\s*/Page\b", seen.page.pdf(format="A4"))) >= 4
    seen.shoot("report-print")
    seen.page.emulate_media(media="screen")
