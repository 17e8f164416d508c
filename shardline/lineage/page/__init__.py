"""The report page: the history of a root in a self-contained HTML file."""

from shardline.lineage.page.report_page import render_page, write_page

__all__ = ["render_page", "write_page"]
