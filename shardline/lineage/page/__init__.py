"""The report page: the history of a root in one HTML file that needs nothing else."""

from shardline.lineage.page.report_page import render_page, write_page

__all__ = ["render_page", "write_page"]
