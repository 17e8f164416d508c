"""What the next materialization of a version would do: planned by its factory, never done."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
from pydantic import ValidationError

from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.column_schema import column_schema
from shardline.dagster.versions.metadata import Metadata
from shardline.errors import InvalidArgumentError, UnknownArgumentError
from shardline.hints import Hint
from shardline.operations.change_shards import ChangePlan
from shardline.text import counted, human_bytes


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """The plan of a materialization: a line for the log, and metadata for the asset's page."""

    summary: str
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class DryRun:
    """How to plan a version: the class of its launchpad config, and the function that plans."""

    config: type[dg.Config]
    plan: Callable[[ShardlineResource, Any], VersionPlan]

    def run(self, shardline: ShardlineResource, options: Mapping[str, Any]) -> VersionPlan:
        """Plan with these options, which have the keys of the launchpad config.

        Raises InvalidArgumentError if they do not fit that config.
        """
        return self.plan(shardline, parse_options(self.config, options))


def parse_options(config: type[dg.Config], options: Mapping[str, Any]) -> dg.Config:
    """Return the config with these values. Raises InvalidArgumentError if they do not fit it."""
    known = list(config.model_fields)
    for name in options:
        if name not in known:
            hint = Hint.nearest(name, known, "options")
            raise UnknownArgumentError(f"unknown option {name!r}", hint=hint)
    try:
        return config(**options)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidArgumentError(
            f"invalid option {where!r}: {first['msg']}", code="invalid-argument"
        ) from None


def plan_of_change(plan: ChangePlan) -> VersionPlan:
    """Return the plan of an extension or a migration."""
    compute, reuse = counted(plan.compute, "shard"), counted(plan.reuse, "shard")
    return VersionPlan(
        f"{compute} of {plan.source} to compute, {reuse} to reuse; this reads "
        f"{human_bytes(plan.reads)} of {counted(plan.records, 'record')}",
        {
            "would_compute": plan.compute,
            "would_reuse": plan.reuse,
            "rows_to_read": plan.records,
            "bytes_to_read": plan.reads,
            "columns": dg.MetadataValue.table_schema(column_schema(plan.schema)),
        },
    )
