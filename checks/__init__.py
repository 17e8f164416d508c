"""Checks of this deployment: expectation suites and its own check functions."""

from pathlib import Path

SUITES = Path(__file__).with_name("expectations")
"""Folder of the expectation suites."""
