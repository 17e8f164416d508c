"""What one check found, before it is told to Dagster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import dagster as dg

Metadata: TypeAlias = Mapping[str, dg.MetadataValue[Any] | bool | int | float | str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a check passed, in a sentence, and what to show beside it.

    `warns` says of a failed check that it is worth a look, and not worth holding anything up.
    """

    passed: bool
    description: str
    metadata: Metadata = field(default_factory=dict)
    warns: bool = False

    def result(self, asset: dg.AssetKey, check: str) -> dg.AssetCheckResult:
        """The verdict as Dagster takes it."""
        return dg.AssetCheckResult(
            passed=self.passed,
            asset_key=asset,
            check_name=check,
            description=self.description,
            metadata=self.metadata,
            severity=dg.AssetCheckSeverity.WARN if self.warns else dg.AssetCheckSeverity.ERROR,
        )
