"""The outcome of a check, and the suite digest in the detail of an attestation."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import dagster as dg

Metadata: TypeAlias = Mapping[str, dg.MetadataValue[Any] | bool | int | float | str]


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The outcome of a check: a sentence, and metadata for Dagster.

    A failed check with `warns` is reported as a warning and blocks nothing.
    """

    passed: bool
    description: str
    metadata: Metadata = field(default_factory=dict)
    warns: bool = False

    def result(self, asset: dg.AssetKey, check: str) -> dg.AssetCheckResult:
        """Return the outcome as a Dagster check result."""
        return dg.AssetCheckResult(
            passed=self.passed,
            asset_key=asset,
            check_name=check,
            description=self.description,
            metadata=self.metadata,
            severity=dg.AssetCheckSeverity.WARN if self.warns else dg.AssetCheckSeverity.ERROR,
        )


EXPECTATIONS = "expectations"
MAX_DETAIL = 500
"""Most characters of the detail of an attestation."""
_SUITE = re.compile(r"suite sha256:(?P<digest>[0-9a-f]{64})\Z")


def format_suite_detail(digest: str, description: str) -> str:
    """Return the detail of an attestation: the description and the digest of the suite."""
    name = f"suite sha256:{digest}"
    room = MAX_DETAIL - len(name) - 2
    return f"{description[:room].rstrip()}; {name}" if description else name


def parse_suite_digest(detail: str) -> str:
    """Return the digest of the suite in the detail of an attestation, empty without one."""
    match = _SUITE.search(detail)
    return "" if match is None else match["digest"]


def strip_suite(detail: str) -> str:
    """Return the detail of an attestation without the digest of the suite."""
    return _SUITE.sub("", detail).removesuffix("; ")
