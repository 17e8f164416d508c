"""The story that the demo tells, as a person sees it in a browser: each test builds on the last."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from shardline.operations.rejected_sources import dismiss
from tests.browser.dagster_ui import Complaints, DagsterUI
from tests.browser.demo_site import DemoSite

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

GROWING, SINGLE, EXPORT = "digits_v1", "digits_single", "digits_single_export"
EXTENDED, PAIRS = "digits_v2", "digit_pairs_v1"
OF_DIGITS = (GROWING, SINGLE, EXPORT, EXTENDED)
CHECKS = [
    "drift",
    "expectations",
    "image_size",
    "integrity",
    "published",
    "schema",
    "sources_accepted",
    "volume",
]
PLOTTED = ["shardline/snapshot", "dagster/row_count", "shardline/added_rows", "shardline/bytes"]
LAUNCHPAD = ["files", "limit", "retry_rejected", "target_shard_mb"]


@pytest.fixture(scope="module")
def materialized(site: DemoSite, ui: DagsterUI) -> str:
    """A click on Materialize, after two batches landed: what the page of its run says."""
    site.stop_landing()
    site.land_folder("batch-1", 0, 600)
    site.land_parquet("batch-2.parquet", 600, 1200)
    the_graph_shows_the_demo(ui)
    return ui.materialize(GROWING)


@pytest.fixture(autouse=True)
def no_complaints(complaints: Complaints) -> Iterator[None]:
    """Assert that the browser has nothing to complain of."""
    yield
    assert complaints.heard == []


def test_materialize_in_ui_publishes_and_is_followed(
    site: DemoSite, ui: DagsterUI, materialized: str
) -> None:
    assert materialized == "Success"
    all_checks_turn_green(site, ui, rows=1200)
    the_single_file_followed(site, ui, rows=1200)
    the_overlay_followed_with_lineage(site, ui, rows=1200)
    the_pairs_followed_and_take_no_space(site, ui, rows=1200)


@pytest.mark.usefixtures("materialized")
def test_ui_pages_agree_with_the_log(site: DemoSite, ui: DagsterUI) -> None:
    site.wait_until_published("digit_pairs/v1", 1200 * 1199 // 2)
    each_check_has_a_page(ui)
    the_metadata_is_that_of_the_log(site, ui)
    the_launchpad_offers_what_can_be_set(ui)
    the_expectations_have_a_page_of_their_own(ui)
    every_column_is_followed_back_to_the_digits(site, ui)


@pytest.mark.usefixtures("materialized")
def test_corrupt_file_in_ui_changes_nothing_downstream(site: DemoSite, ui: DagsterUI) -> None:
    a_damaged_file_is_rejected_and_moves_nothing_downstream(site, ui)
    site.land_parquet("batch-4.parquet", 1200, 1797)
    assert ui.materialize(GROWING) == "Success"
    all_checks_turn_green(site, ui, rows=1797)
    the_single_file_followed(site, ui, rows=1797)
    the_picture_is_drawn(ui)
    numbers_are_plotted_over_time(ui)
    everything_is_green_in_the_graph(ui)


def the_graph_shows_the_demo(ui: DagsterUI) -> None:
    ui.open_graph()
    for asset in (*OF_DIGITS, PAIRS):
        expect(ui.listed(asset)).to_be_visible()
    ui.open_asset(GROWING)
    ui.page.get_by_role("link", name="digits", exact=True).click()
    expect(ui.page).to_have_url(re.compile("asset-groups.*digits"))
    for asset in OF_DIGITS:
        expect(ui.listed(asset)).to_be_visible()
    expect(ui.listed(PAIRS)).to_have_count(0)


def all_checks_turn_green(site: DemoSite, ui: DagsterUI, rows: int) -> None:
    ui.shoot(f"run-{rows}")
    assert site.version("digits/v1").published().records == rows
    ui.open_check(GROWING, "integrity")
    expect(ui.check_results()).to_have_text(["Succeeded"] * len(CHECKS))
    ui.shoot("checks-green", height=700)


def each_check_has_a_page(ui: DagsterUI) -> None:
    for check in CHECKS:
        ui.open_check(GROWING, check)
        expect(ui.page.get_by_text("Passed", exact=True)).to_be_visible()
        ui.shoot(f"check-{check}")


def the_metadata_is_that_of_the_log(site: DemoSite, ui: DagsterUI) -> None:
    snapshot = site.version("digits/v1").published()
    assert ui.snapshot(GROWING) == (snapshot.number, snapshot.content)
    expect(ui.page.get_by_text(f"{snapshot.records:,}", exact=True)).to_be_visible()
    expect(ui.metadata("shardline/bytes")).to_have_text(str(snapshot.bytes))
    expect(ui.metadata("shardline/shards")).to_have_text(str(len(snapshot.shards)))
    expect(ui.metadata("shardline/added_rows")).to_have_text("1200")
    expect(ui.metadata("shardline/read_code")).to_contain_text("tf.data.TFRecordDataset(files)")
    expect(ui.metadata("shardline/sources")).to_contain_text("batch-2.parquet")
    for column in ("path", "label", "image"):
        expect(ui.page.get_by_role("cell", name=column, exact=True)).to_be_visible()
    ui.shoot("metadata", height=2300)


def the_picture_is_drawn(ui: DagsterUI) -> None:
    ui.open_asset(GROWING)
    ui.metadata("shardline/preview").get_by_text("[Show Markdown]").click()
    pictures = ui.page.get_by_role("dialog").get_by_role("img", name=re.compile(":"))
    expect(pictures).to_have_count(4)
    for picture in pictures.all():
        assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    ui.shoot("materialization")


def numbers_are_plotted_over_time(ui: DagsterUI) -> None:
    ui.open_asset(GROWING)
    ui.page.get_by_role("button", name="Plots").click()
    for key in PLOTTED:
        ui.scroll_to_plot(key)
    ui.shoot("plots")


def the_launchpad_offers_what_can_be_set(ui: DagsterUI) -> None:
    launchpad = ui.open_launchpad(GROWING)
    for field in LAUNCHPAD:
        expect(launchpad.get_by_text(re.compile(rf"^\s*{field}:")).first).to_be_visible()
    expect(launchpad.get_by_text("No errors", exact=True)).to_be_visible()
    ui.shoot("launchpad")


def the_expectations_have_a_page_of_their_own(ui: DagsterUI) -> None:
    ui.open_check(GROWING, "expectations")
    link = ui.page.get_by_text(re.compile(r"expectations\.html$"))
    ui.page.goto(Path(link.inner_text()).as_uri())
    for words in ("Expectation Suite: digits_v1", "1,200 rows", "Succeeded"):
        expect(ui.page.get_by_text(words).first).to_be_visible()
    ui.shoot("data-docs")


def the_single_file_followed(site: DemoSite, ui: DagsterUI, rows: int) -> None:
    site.wait_until_published("digits/single", rows)
    snapshot = site.version("digits/single").published()
    assert ui.snapshot(SINGLE) == (snapshot.number, snapshot.content)
    expect(ui.page.get_by_text(f"{rows:,}", exact=True)).to_be_visible()
    expect(ui.metadata("shardline/shards")).to_have_text("1")
    ui.shoot(f"single-{rows}")


def the_overlay_followed_with_lineage(site: DemoSite, ui: DagsterUI, rows: int) -> None:
    site.wait_until_published("digits/v2", rows)
    snapshot = site.version("digits/v2").published()
    assert ui.snapshot(EXTENDED) == (snapshot.number, snapshot.content)
    computed, reused = (ui.metadata(f"shardline/{kind}_shards") for kind in ("computed", "reused"))
    assert int(computed.inner_text()) + int(reused.inner_text()) == len(snapshot.shards)
    lineage_table = ui.metadata("shardline/upstream_columns")
    for column, origin in (("brightness", "image"), ("label_name", "label"), ("image", "image")):
        row = lineage_table.get_by_role("row").filter(has_text=re.compile(f"^{column}digits_v1"))
        expect(row).to_have_text(f"{column}digits_v1: {origin}")
    for column in ("width", "height", "brightness", "label_name"):
        expect(ui.page.get_by_role("cell", name=column, exact=True).first).to_be_visible()
    ui.shoot("overlay", height=2700)


def the_pairs_followed_and_take_no_space(site: DemoSite, ui: DagsterUI, rows: int) -> None:
    pairs = rows * (rows - 1) // 2
    site.wait_until_published("digit_pairs/v1", pairs)
    snapshot = site.version("digit_pairs/v1").published()
    assert ui.snapshot(PAIRS) == (snapshot.number, snapshot.content)
    expect(ui.metadata("shardline/computed_pairs")).to_have_text(str(pairs))
    assert int(ui.metadata("shardline/bytes").inner_text()) == snapshot.bytes < 4096
    expect(ui.metadata("shardline/upstream_columns")).to_contain_text("b_imagedigits_v1: image")
    ui.shoot("pairs", height=2700)


def every_column_is_followed_back_to_the_digits(site: DemoSite, ui: DagsterUI) -> None:
    # Dagster draws this lineage itself only where it is bought: here people see our table of it.
    own = {column: f"{GROWING}: {column}" for column in ("image", "label", "path")}
    seen = dict.fromkeys(("brightness", "height", "width"), f"{GROWING}: image")
    sides = {f"{side}_{column}": origin for side in "ab" for column, origin in own.items()}
    expected = {
        SINGLE: own,
        EXTENDED: {**own, **seen, "label_name": f"{GROWING}: label"},
        PAIRS: sides,
    }
    for asset, lineage in expected.items():
        ui.open_asset(asset)
        assert ui.table("shardline/upstream_columns") == [
            list(one) for one in sorted(lineage.items())
        ]
        assert site.column_lineage(asset) == lineage
    ui.shoot("column-lineage", height=2700)


def a_damaged_file_is_rejected_and_moves_nothing_downstream(site: DemoSite, ui: DagsterUI) -> None:
    before = site.version("digits/single").published()
    shown, runs = ui.snapshot(SINGLE), site.runs_of(SINGLE)
    damage = site.land_damaged("batch-3.tfrecord", 1200, 1300, record=41)
    assert ui.materialize(GROWING) == "Success"
    rejected_at = time.time()
    ui.shoot("run-red")
    ui.open_check(GROWING, "sources_accepted")
    listed = ["Failed" if check == "sources_accepted" else "Succeeded" for check in CHECKS]
    expect(ui.check_results()).to_have_text([*listed, "Failed"])  # the last is the page's own
    finding = ui.page.get_by_role("row").filter(has_text=damage.path.name).last
    for place in (damage.record, damage.offset):
        expect(finding.get_by_role("cell", name=str(place), exact=True)).to_be_visible()
    ui.shoot("check-red")
    ui.open_graph()
    expect(ui.listed(GROWING, "check_failed")).to_be_visible()
    ui.shoot("graph-red")
    site.wait_for_a_look(rejected_at)
    assert site.runs_of(SINGLE) == runs
    after = site.version("digits/single").published()
    assert (after.number, after.content) == (before.number, before.content)
    assert ui.snapshot(SINGLE) == shown
    dismiss(site.version("digits/v1"), [str(damage.path)])


def everything_is_green_in_the_graph(ui: DagsterUI) -> None:
    ui.open_graph()
    for asset in (*OF_DIGITS, PAIRS):
        expect(ui.listed(asset, "run_success")).to_be_visible()
    expect(ui.page.get_by_text(re.compile(r"^(\d+) / \1 Passed$"))).to_have_count(4)
    ui.shoot("asset-graph")
