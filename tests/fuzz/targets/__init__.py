"""All fuzz targets by name. To add a target, add it to the list of its module."""

from __future__ import annotations

from tests.fuzz.targets import forged, roots, sources

TARGETS = {target.name: target for target in (*sources.TARGETS, *roots.TARGETS, *forged.TARGETS)}
