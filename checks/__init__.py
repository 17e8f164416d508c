"""The checks of this deployment: expectation suites, and functions of its own."""

from pathlib import Path

SUITES = Path(__file__).with_name("expectations")
"""The folder of the expectation suites."""
