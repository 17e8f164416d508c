"""The builder of versions: a factory states only what its operation adds.

An operation plans and runs in a `VersionStep`. The builder turns an operation into the asset, the
checks and the dry run of a version, with the options that all factories take.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypedDict, TypeVar

import dagster as dg
from pydantic import Field

from shardline.api import Snapshot, Version
from shardline.dagster import metadata_keys as keys
from shardline.dagster.asset_names import get_asset_key, group_name
from shardline.dagster.automation.conditions import build_follow_condition
from shardline.dagster.checks.version_checks import VersionChecks
from shardline.dagster.expectations.suite import SUITES, SuiteError, read_suite
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.declaration import (
    DeclarationError,
    DryRun,
    Schemas,
    VersionDefs,
    VersionPlan,
)
from shardline.dagster.versions.materialization import (
    Metadata,
    StepReport,
    build_result,
    get_latest_report,
)
from shardline.dagster.versions.metadata_values import build_column_schema
from shardline.dagster.versions.progress import create_logging_executor
from shardline.errors import SnapshotNotFoundError
from shardline.execution.executor import Executor
from shardline.hints import Command, Hint
from shardline.log.entry import Entry
from shardline.log.model import Checks, Shard
from shardline.operations.transform import TransformPlan
from shardline.release import __version__
from shardline.schema.schema import Schema
from shardline.text import format_bytes, format_count
from shardline.udf.transform import Transform, validate_side_names

ConfigT = TypeVar("ConfigT", bound=dg.Config)
MEGABYTE = 1024 * 1024


class VersionOptions(TypedDict, total=False):
    """Keyword arguments that every factory takes.

    Attributes:
        expectations: File of the version's suite in `checks/expectations/`.
        description: Text for the asset's page.
        owners: Owners of the asset.
        tags: Tags of the asset.
        code_version: Version of the code, recorded in the log. Default: the version of Shardline.
    """

    expectations: str | Path | None
    description: str
    owners: Sequence[str]
    tags: Mapping[str, str] | None
    code_version: str


@dataclass(frozen=True, slots=True)
class VersionStep(Generic[ConfigT]):
    """The opened versions and the launchpad config of a materialization or of its plan.

    A version gets the declared `checks` with its first snapshot, or from `require_checks`.
    """

    version: Version
    inputs: Mapping[str, Version]
    config: ConfigT
    checks: Checks

    def require_checks(self) -> None:
        """Require the declared checks of a version that exists.

        A new version gets them with its first snapshot: creating it here would record a
        declaration that may turn out to be wrong.
        """
        if self.version.exists:
            self.version.require(self.checks)


class VersionOperation(ABC, Generic[ConfigT]):
    """An operation that a factory adds to the builder.

    Attributes:
        operation: The name of the operation in the log.
        config: The class of the launchpad options.
        grows: Whether rows arrive in batches from outside.
        inputs: The versions from which the version is derived.
    """

    operation: ClassVar[str]
    config: ClassVar[type[dg.Config]]
    grows: ClassVar[bool] = False
    inputs: tuple[str, ...]

    @abstractmethod
    def describe(self) -> str:
        """Return the origin of the version, for the asset's page."""

    @abstractmethod
    def plan(self, step: VersionStep[ConfigT]) -> VersionPlan:
        """Plan a materialization. Nothing is changed."""

    @abstractmethod
    def run(
        self, step: VersionStep[ConfigT], context: dg.AssetExecutionContext
    ) -> StepReport | None:
        """Materialize the version. Returns None if it has no snapshot."""

    @abstractmethod
    def derive_schema(self, schemas: Schemas) -> Schema | None:
        """Return the schema of the version, see `VersionDefs.derive_schema`."""

    def build_asset_metadata(self) -> Metadata:
        """Return the metadata of the asset's definition."""
        return {}


def build_version(
    name: str,
    operation: VersionOperation[ConfigT],
    options: VersionOptions,
    *,
    schedules: Sequence[dg.ScheduleDefinition] = (),
    sensors: Sequence[dg.SensorDefinition] = (),
) -> VersionDefs:
    """Return the definitions of a version and its operation."""
    code_version = options.get("code_version", __version__)
    if name in operation.inputs:
        raise DeclarationError(
            f"{name}: derived from itself",
            code="same-version",
            hint=Hint.of("give the derived version another name"),
            version=name,
        )
    checks = _create_checks(name, options.get("expectations"), grows=operation.grows)

    def open_step(
        shardline: ShardlineResource, config: ConfigT, run: str = ""
    ) -> VersionStep[ConfigT]:
        versions = {
            version: shardline.version(version, run=run, code=code_version)
            for version in (name, *operation.inputs)
        }
        return VersionStep(versions.pop(name), versions, config, checks.required)

    def materialize(
        context: dg.AssetExecutionContext,
        config: ConfigT,
        shardline: ShardlineResource,
    ) -> Iterator[dg.MaterializeResult[None]]:
        step = open_step(shardline, config, context.run.run_id)
        report = operation.run(step, context)
        if report is None:
            context.log.info("%s: no snapshot yet (no records)", name)
            return
        yield build_result(step.version, report)

    # Dagster reads the config class from the annotation.
    materialize.__annotations__["config"] = operation.config
    asset = dg.asset(
        key=get_asset_key(name),
        group_name=group_name(name),
        kinds={"tfrecord"},
        deps=[get_asset_key(version) for version in operation.inputs],
        description="\n\n".join(filter(None, (options.get("description"), operation.describe()))),
        owners=list(options.get("owners", ())),
        tags={**(options.get("tags") or {}), keys.OPERATION_TAG: operation.operation},
        metadata=operation.build_asset_metadata(),
        code_version=code_version,
        automation_condition=build_follow_condition() if operation.inputs else None,
        output_required=False,
    )(materialize)

    return VersionDefs(
        name,
        (asset,),
        checks.definition(),
        inputs=operation.inputs,
        schedules=schedules,
        sensors=sensors,
        suite=checks.suite,
        dry_run=DryRun(
            operation.config,
            lambda shardline, config: operation.plan(open_step(shardline, config)),
        ),
        derive_schema=operation.derive_schema,
    )


def _create_checks(version: str, expectations: str | Path | None, *, grows: bool) -> VersionChecks:
    """Return the checks of a version. Raises DeclarationError if its suite is invalid."""
    if expectations is None:
        return VersionChecks(version, grows=grows)
    suite = SUITES / expectations
    try:
        read_suite(suite, version)
    except SuiteError as error:
        raise DeclarationError.of(version, error) from None
    return VersionChecks(version, suite, grows=grows)


@dataclass(frozen=True, slots=True)
class DerivedReport:
    """The result of a derivation.

    Attributes:
        entry: The committed entry, None if there was nothing to do.
        shards: The shards that were computed.
        quarantined_rows: Quarantined records.
        quarantine: The quarantine files.
        counts: More numbers by metadata key.
    """

    entry: Entry | None
    shards: tuple[Shard, ...]
    quarantined_rows: int = 0
    quarantine: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


class DerivedWork(Protocol):
    """A derivation whose input snapshots are selected."""

    def plan(self) -> VersionPlan:
        """Plan the derivation. Nothing is changed."""

    def run(self, executor: Executor) -> DerivedReport:
        """Commit the derived snapshot."""


class DerivedOperation(VersionOperation[ConfigT]):
    """An operation that derives a version from the published snapshots of others."""

    @abstractmethod
    def prepare(self, step: VersionStep[ConfigT]) -> DerivedWork:
        """Select the input snapshots."""

    def plan(self, step: VersionStep[ConfigT]) -> VersionPlan:
        """Plan a materialization. Nothing is changed."""
        return self.prepare(step).plan()

    def run(
        self, step: VersionStep[ConfigT], context: dg.AssetExecutionContext
    ) -> StepReport | None:
        """Materialize the version. Returns None if it has no snapshot."""
        work = self.prepare(step)
        step.require_checks()
        start = time.perf_counter()
        derived = work.run(create_logging_executor(context.log))
        seconds = time.perf_counter() - start
        report = _create_step_report(step.version, derived, seconds) or get_latest_report(
            step.version, context.instance, context.asset_key
        )
        if report is None:
            return None
        computed = len(derived.shards) if derived.entry is not None else 0
        reused = report.snapshot.totals.shards - computed
        context.log.info(
            "%s: %s computed, %s reused",
            step.version.name,
            format_count(computed, "shard"),
            format_count(reused, "shard"),
        )
        if derived.quarantined_rows:
            rows = format_count(derived.quarantined_rows, "record")
            context.log.warning("%s quarantined", rows)
        return replace(
            report,
            quarantined_rows=derived.quarantined_rows,
            quarantine=derived.quarantine,
            counts={
                keys.COMPUTED_SHARDS: computed,
                keys.REUSED_SHARDS: reused,
                **derived.counts,
            },
        )


def _create_step_report(
    version: Version, derived: DerivedReport, seconds: float
) -> StepReport | None:
    """Return the report of the committed snapshot, None if nothing was committed."""
    if derived.entry is None:
        return None
    snapshot = version.snapshot(derived.entry.snapshot)
    before = version.snapshot(snapshot.number - 1).records if snapshot.number > 1 else 0
    return StepReport(
        snapshot,
        added_rows=snapshot.records - before,
        added_bytes=sum(shard.bytes for shard in derived.shards),
        added_shards=len(derived.shards),
        seconds=seconds,
    )


class InputConfig(dg.Config):
    """Launchpad options of a version that is derived from one other. All are optional."""

    input_snapshot: int = Field(
        default=0, ge=0, description="Snapshot of the input to read. 0: the latest published."
    )


def select_input(base: Version, number: int, option: str) -> Snapshot:
    """Return a published snapshot of an input by number, the latest published for 0.

    `option` is its name in the launchpad.
    """
    if not number:
        return base.published()
    snapshot = base.snapshot(number)
    if not snapshot.published:
        raise SnapshotNotFoundError(
            f"{snapshot}: not published",
            code="snapshot-unpublished",
            hint=Hint.of(
                f"set {option} to a published snapshot; to see what blocks this one, run ",
                Command.of("status", base.name),
            ),
            version=base.name,
            snapshot=snapshot.number,
        )
    return snapshot


@dataclass(frozen=True, slots=True)
class TransformOperation(DerivedOperation[InputConfig]):
    """An operation that transforms the records of one version: an extension or a migration."""

    config: ClassVar[type[dg.Config]] = InputConfig

    inputs: tuple[str, ...]
    compression: str | None
    max_quarantined: float

    @abstractmethod
    def prepare_transform(
        self, step: VersionStep[InputConfig], base: Version, snapshot: int
    ) -> TransformPlan:
        """Plan the transform of a snapshot of the input."""

    @abstractmethod
    def derive_transform(self, base: Schema) -> Transform | None:
        """Return the transform of the input's schema, None if it is unknown before a run."""

    def prepare(self, step: VersionStep[InputConfig]) -> "_TransformWork":
        """Select the input snapshot."""
        base = step.inputs[self.inputs[0]]
        snapshot = select_input(base, step.config.input_snapshot, "input_snapshot")
        return _TransformWork(self.prepare_transform(step, base, snapshot.number))

    def derive_schema(self, schemas: Schemas) -> Schema | None:
        """Return the schema of the version, see `VersionDefs.derive_schema`."""
        base = schemas[self.inputs[0]]
        transform = None if base is None else self.derive_transform(base)
        if transform is None:
            return None
        validate_side_names(transform)
        return transform.after


@dataclass(frozen=True, slots=True)
class _TransformWork:
    """An extension or a migration."""

    transform: TransformPlan

    def plan(self) -> VersionPlan:
        """Plan the derivation. Nothing is changed."""
        plan = self.transform
        compute, reuse = format_count(plan.compute, "shard"), format_count(plan.reuse, "shard")
        return VersionPlan(
            f"{plan.source}: {compute} to compute, {reuse} to reuse; reads "
            f"{format_count(plan.records, 'record')} ({format_bytes(plan.read_bytes)})",
            {
                keys.SHARDS_TO_COMPUTE: plan.compute,
                keys.SHARDS_TO_REUSE: plan.reuse,
                keys.ROWS_TO_READ: plan.records,
                keys.BYTES_TO_READ: plan.read_bytes,
                keys.COLUMNS: dg.MetadataValue.table_schema(build_column_schema(plan.schema)),
            },
        )

    def run(self, executor: Executor) -> DerivedReport:
        """Commit the derived snapshot."""
        report = self.transform.execute(executor=executor)
        return DerivedReport(
            report.entry, report.written, report.quarantined_rows, report.quarantine_files
        )
