"""The ticks of the automation, for the tests of what follows what."""

from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from tests.dagster_project.platforms import Platform


@dataclass
class Ticks:
    """The ticks of the automation, one behind the other, as the daemon makes them."""

    platform: Platform
    instance: dg.DagsterInstance
    cursor: Any = field(default=None)

    def requested(self) -> set[dg.AssetKey]:
        """What a tick asks for."""
        defs = self.platform.defs
        result = dg.evaluate_automation_conditions(
            defs=defs, instance=self.instance, cursor=self.cursor
        )
        self.cursor = result.cursor
        return {
            key for key in defs.resolve_all_asset_keys() if result.get_requested_partitions(key)
        }

    def follow(self) -> list[dg.AssetKey]:
        """Ticks, and the runs that they ask for, until one asks for nothing."""
        followed: list[dg.AssetKey] = []
        while wanted := self.requested():
            assert self.platform.run(self.instance, *wanted).success
            followed += sorted(wanted)
        return followed
