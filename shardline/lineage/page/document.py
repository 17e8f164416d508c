"""The report page as one HTML file: its own style, script and data, and no way out of it.

The file asks for nothing from anywhere, and its policy forbids the browser to let it: only the
very script and style that were written into it run. Data is JSON that no HTML parser takes for
more than text, and the script only ever shows it as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from shardline.lineage.page.data import page_data
from shardline.lineage.page.model import as_json
from shardline.log.version import utc_now
from shardline.storage.durable_file import DurableFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from shardline.lineage.findings import Finding
    from shardline.lineage.page.model import ReportPage
    from shardline.provenance.catalog import Catalog

_SCRIPTS = ("elements.js", "plot.js", "version.js", "graph.js", "page.js")
_HARMLESS = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page_html(
    catalog: Catalog,
    *,
    findings: Sequence[Finding] | None = None,
    names: Iterable[str] | None = None,
    now: datetime | None = None,
) -> str:
    """The page of a root, or of the versions `names` and all they are related to.

    `findings` are those of an audit; None says that there was none. The same root and the same
    `now` give the same page.
    """
    return document(page_data(catalog, findings=findings, names=names, now=now or utc_now()))


def write_page(
    catalog: Catalog,
    path: Path | str,
    *,
    findings: Sequence[Finding] | None = None,
    names: Iterable[str] | None = None,
    now: datetime | None = None,
) -> Path:
    """Write the page to a file, whole or not at all; one that is there is replaced."""
    page = page_data(catalog, findings=findings, names=names, now=now or utc_now())
    return write_document(page, path)


def write_document(page: ReportPage, path: Path | str) -> Path:
    """Write what a page shows to a file."""
    with DurableFile(Path(path), overwrite=True) as file:
        file.write(document(page).encode())
    return Path(path)


def document(page: ReportPage) -> str:
    """The HTML of what a page shows."""
    style = _part("page.css")
    script = "".join(("'use strict';\n(() => {\n", *map(_part, _SCRIPTS), "})();\n"))
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    data = json.dumps(as_json(page), separators=(",", ":")).translate(_HARMLESS)
    return Template(_part("page.html")).substitute(
        policy=policy, style=style, script=script, data=data
    )


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
