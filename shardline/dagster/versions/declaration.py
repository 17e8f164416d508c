"""What the next materialization of a version would do: planned by its factory, never done."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import dagster as dg
from pydantic import ValidationError

from shardline.arguments import parse_size, validate_minimum
from shardline.dagster.checks.version_checks import VersionChecks
from shardline.dagster.expectations.suite import SUITES, SuiteError, read_suite
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.materialization import Metadata, column_schema
from shardline.errors import InvalidArgumentError, ShardlineError, UnknownArgumentError
from shardline.hints import Hint
from shardline.operations.transform_version import TransformPlan
from shardline.schema.schema import Schema
from shardline.text import format_bytes, format_count


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


def create_transform_plan(plan: TransformPlan) -> VersionPlan:
    """Return the plan of an extension or a migration."""
    compute, reuse = format_count(plan.compute, "shard"), format_count(plan.reuse, "shard")
    return VersionPlan(
        f"{compute} of {plan.source} to compute, {reuse} to reuse; this reads "
        f"{format_bytes(plan.reads)} of {format_count(plan.records, 'record')}",
        {
            "would_compute": plan.compute,
            "would_reuse": plan.reuse,
            "rows_to_read": plan.records,
            "bytes_to_read": plan.reads,
            "columns": dg.MetadataValue.table_schema(column_schema(plan.schema)),
        },
    )


Schemas: TypeAlias = Mapping[str, Schema | None]
"""The declared schemas of versions by name, None if it cannot be known before a run."""


class DeclarationError(ShardlineError):
    """An invalid declaration of a version."""

    code = "invalid-declaration"

    @classmethod
    def of(cls, version: str, error: ValueError) -> "DeclarationError":
        """Build the error for a problem in the declaration of a version."""
        if not isinstance(error, ShardlineError):
            return cls(f"{version}: {error}", version=version)
        return cls(
            f"{version}: {error.message}",
            code=error.code,
            hint=error.hint,
            path=error.path,
            feature=error.feature,
            version=version,
        )


@dataclass(frozen=True, slots=True)
class VersionDefs:
    """What a factory gives: first the asset of the version, then what comes with it.

    `inputs` are the versions that it is made of. `dry_run` plans its next materialization.
    `derive_schema` returns its schema, given those of its inputs, None if the schema cannot be
    known before a run. It raises ValueError if a schema contradicts the declaration. `suite` is
    the file of its expectations, `exports` are the files that it writes outside the root.
    """

    name: str
    assets: tuple[dg.AssetsDefinition, ...]
    checks: dg.AssetChecksDefinition
    inputs: tuple[str, ...] = ()
    schedules: Sequence[dg.ScheduleDefinition] = ()
    sensors: Sequence[dg.SensorDefinition] = ()
    suite: Path | None = None
    exports: tuple[Path, ...] = ()
    dry_run: DryRun = field(kw_only=True)
    derive_schema: Callable[[Schemas], Schema | None] = field(kw_only=True)

    @property
    def key(self) -> dg.AssetKey:
        """The key of its asset."""
        return self.assets[0].key


def create_version_checks(
    version: str, expectations: str | Path | None, *, grows: bool
) -> VersionChecks:
    """The checks of a version; a file of expectations that is not there is refused."""
    if expectations is None:
        return VersionChecks(version, grows=grows)
    suite = SUITES / expectations
    try:
        read_suite(suite, version)
    except SuiteError as error:
        raise DeclarationError.of(version, error) from None
    return VersionChecks(version, suite, grows=grows)


@contextmanager
def raise_declaration_error(name: str) -> Iterator[None]:
    """Tell at load, with the name of the version, what would only fail in a run."""
    try:
        yield
    except ValueError as error:
        raise DeclarationError.of(name, error) from None


def parse_target(name: str, value: int | str) -> int:
    """Return a size in bytes, given as a number or as text such as 128MB."""
    size = parse_size(value) if isinstance(value, str) else value
    validate_minimum(name, size, 1)
    return size


def validate_inputs(name: str, inputs: Sequence[str]) -> None:
    """Refuse a version that is an input of itself."""
    if name in inputs:
        raise DeclarationError(
            f"{name}: derived from itself",
            code="same-version",
            hint=Hint.of("give the derived version another name"),
            version=name,
        )
