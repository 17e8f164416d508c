"""Data Docs: a page per validation, drawn by Great Expectations, that needs no network.

The original pages load styles and scripts from the internet. Ours replace them by a small style
sheet and a policy that forbids everything else, because the page contains text of schemas and
suites that Great Expectations does not escape everywhere.
"""

import re
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.api import Snapshot
from shardline.storage.durable_file import DurableFile

if TYPE_CHECKING:
    from great_expectations.core.expectation_validation_result import (
        ExpectationSuiteValidationResult,
    )
    from great_expectations.render.view.view import DefaultJinjaPageView

MAX_PAGES = 50
_NUMBER = re.compile(r"[0-9]{1,19}")
_FOREIGN = re.compile(
    r"<script\b.*?</script>|<link\b[^>]*>|<img\b[^>]*>|<footer\b.*?</footer>"
    r"|href=\"\.\./[^\"]*\"|\son[a-z]+=(?:\"[^\"]*\"|'[^']*')"
    r"|background: url\(.https?:[^)]*\)[^;]*;",
    re.DOTALL | re.IGNORECASE,
)
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">"
)
_STYLE = """<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1200px; color: #222;
       background: #fff; }
.sticky, nav.navbar img, .cooltip, footer { display: none; }
.lead { color: #555; }
.breadcrumb { list-style: none; padding: 0; display: flex; gap: 1em; }
.alert { background: #eef1f6; border-radius: 6px; padding: .6em 1em; margin: 1.5em 0 .5em; }
h5, h6 { margin: 0; font-size: 1em; }
table { border-collapse: collapse; width: 100%; }
td, th { border-bottom: 1px solid #ddd; padding: .4em .8em .4em 0; text-align: left;
         vertical-align: top; }
.fa-check-circle::before, .fa-check::before { content: "\\2713"; color: #1a7f37; }
.fa-times::before, .fa-exclamation-triangle::before { content: "\\2717"; color: #c62828; }
.badge { background: #e4e8ef; border-radius: 4px; padding: 0 .4em; }
a { color: inherit; text-decoration: none; }
</style>"""


def write_page(
    result: "ExpectationSuiteValidationResult",
    snapshot: Snapshot,
    extent: str,
    docs: Path,
    *,
    max_pages: int = MAX_PAGES,
) -> Path:
    """Write the page of a validation below `docs`, by version and snapshot. Returns its path.

    An earlier page of the snapshot is replaced. Of each version, the pages of the latest
    `max_pages` snapshots are kept. `extent` describes the validated rows.
    """
    version = docs / snapshot.version.replace("/", "_")
    page = version / str(snapshot.number) / "expectations.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    text = _render_page(result, snapshot, extent)
    # Two runs may write the page at once: a reader sees a complete one.
    with DurableFile(page, overwrite=True, synced=False) as file:
        file.write(text.encode())
    _delete_old_pages(version, snapshot.number, max_pages)
    return page


def _render_page(
    result: "ExpectationSuiteValidationResult", snapshot: Snapshot, extent: str
) -> str:
    from great_expectations.render.renderer.page_renderer import (  # noqa: PLC0415 - takes seconds
        ValidationResultsPageRenderer,
    )

    result.meta = {
        "run_id": {"run_name": str(snapshot), "run_time": datetime.now(UTC).isoformat()},
        "great_expectations_version": result.meta.get("great_expectations_version"),
        "batch_spec": {"data_asset_name": extent},
    }
    document = ValidationResultsPageRenderer(run_info_at_end=True).render(result)
    page: str = _get_view().render(document)  # type: ignore[no-untyped-call]
    head, _, body = _FOREIGN.sub("", page).partition("<head>")
    return f"{head}<head>\n{_POLICY}\n{body.replace('</head>', f'{_STYLE}</head>', 1)}"


@cache
def _get_view() -> "DefaultJinjaPageView":
    """Return the view of pages. It compiles its templates once."""
    from great_expectations.render.view.view import (  # noqa: PLC0415 - takes seconds
        DefaultJinjaPageView,
    )

    return DefaultJinjaPageView()


def _delete_old_pages(version: Path, current: int, max_pages: int) -> None:
    """Delete the pages of old snapshots. Another run may be doing the same."""
    numbers = sorted(int(path.name) for path in version.iterdir() if _NUMBER.fullmatch(path.name))
    for number in numbers[:-max_pages]:
        if number != current:
            with suppress(OSError):
                shutil.rmtree(version / str(number))
