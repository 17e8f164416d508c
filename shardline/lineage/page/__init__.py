"""The report page: the history of a root in one HTML file that needs nothing else."""

from shardline.lineage.page.report_page import page_html, write_page

__all__ = ["page_html", "write_page"]
