"""A version with the pairs of records of two others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Unpack

import dagster as dg
from pydantic import Field

from shardline.arguments import TARGET_BYTES, validate_option_names
from shardline.dagster import metadata_keys as keys
from shardline.dagster.versions.builder import (
    DerivedOperation,
    DerivedReport,
    VersionOptions,
    VersionStep,
    build_version,
    select_input,
)
from shardline.dagster.versions.declaration import (
    DeclaredUdfs,
    LateUdfs,
    Schemas,
    Udfs,
    VersionDefs,
    VersionPlan,
    get_version_name,
    parse_target,
    raise_declaration_error,
)
from shardline.dagster.versions.metadata_values import build_column_schema
from shardline.errors import InvalidArgumentError
from shardline.execution.executor import Executor
from shardline.hints import Hint, Option
from shardline.log.model import Checks
from shardline.operations.combine import CombinePlan, plan_combine
from shardline.operations.transform import parse_shard_compression
from shardline.pairing.combine_spec import (
    CombineMode,
    CombineSpec,
    PairOptions,
    SpecOptions,
    validate_mode,
)
from shardline.pairing.spec_binding import bind_spec
from shardline.schema.schema import Schema
from shardline.text import format_count
from shardline.udf.udf_declaration import UDF, FunctionUDF, is_udf


class CombineConfig(dg.Config):
    """Launchpad options of a combined version. All are optional."""

    left_snapshot: int = Field(
        default=0, ge=0, description="Snapshot of the left to read. 0: the latest published."
    )
    right_snapshot: int = Field(
        default=0, ge=0, description="Snapshot of the right to read. 0: the latest published."
    )


class CombinedOptions(PairOptions, VersionOptions, total=False):
    """The options of the pairs and those of all factories as keyword arguments."""


def combined_version(
    name: str,
    *,
    left: str | VersionDefs,
    right: str | VersionDefs,
    udfs: Udfs | LateUdfs = (),
    mode: CombineMode = "materialized",
    target_bytes: int | str = TARGET_BYTES,
    budget_bytes: int | str | None = None,
    compression: str | None = None,
    **options: Unpack[CombinedOptions],
) -> VersionDefs:
    """Declare a version with the pairs of the published records of `left` and `right`.

    The version follows both and computes only the pairs of new shards. With `limit` or `sample`,
    all pairs are computed each time. `Version.combine` describes the pairs and their features.

    Args:
        name: The new version.
        left: The left version, or its name.
        right: The right version, or its name. It may be the left version.
        udfs: A UDF with new features of a pair, several UDFs, or a function without arguments
            that returns them in a run.
        mode: "virtual" writes only a plan, from which readers compute all pairs.
        target_bytes: Size of a shard, as a number or as text such as "128MB".
        budget_bytes: Limit of the bytes to write, as a number or as text.
        compression: "none" or "gzip" for the shards.
        **options: The options of the pairs, see `Version.combine`, and those of all factories,
            see `VersionOptions`.

    Returns:
        The declared version, for `build_definitions`.

    Raises:
        DeclarationError: If the options contradict each other.

    Example:
        pairs = combined_version("pairs/v1", left=photos, right=captions, on="photo_id")
    """
    validate_option_names(combined_version, options, CombinedOptions.__annotations__)
    pairs = PairOptions()
    for option in PairOptions.__annotations__.keys() & options.keys():
        pairs[option] = options.pop(option)  # type: ignore[literal-required, misc]
    sides = (get_version_name(left), get_version_name(right))
    with raise_declaration_error(name):
        declared = DeclaredUdfs.of(udfs)
        _validate_spec(pairs, declared, mode)
        target = parse_target("target_bytes", target_bytes)
        budget = None if budget_bytes is None else parse_target("budget_bytes", budget_bytes)
        parse_shard_compression(compression)
        if pairs.get("unordered") and sides[0] != sides[1] and name not in sides:
            raise InvalidArgumentError(
                f"unordered pairs need the same version on both sides: {sides[0]} and {sides[1]}",
                code="conflicting-arguments",
                hint=Hint.of(
                    "name the same version for both sides, or leave out ", Option("unordered")
                ),
            )
    inputs = tuple(dict.fromkeys(sides))
    operation = _Combination(inputs, sides, pairs, declared, mode, target, budget, compression)
    return build_version(name, operation, options)


@dataclass(frozen=True, slots=True)
class _Combination(DerivedOperation[CombineConfig]):
    """The declared options of a combined version."""

    operation: ClassVar[str] = "combine"
    config: ClassVar[type[dg.Config]] = CombineConfig

    inputs: tuple[str, ...]
    sides: tuple[str, str]
    pairs: PairOptions
    udfs: DeclaredUdfs
    mode: CombineMode
    target_bytes: int
    budget_bytes: int | None
    compression: str | None

    def describe(self) -> str:
        return f"Pairs of `{self.sides[0]}` and `{self.sides[1]}`."

    def prepare(self, step: VersionStep[CombineConfig]) -> "_CombineWork":
        left, right = (step.inputs[name] for name in self.sides)
        left_snapshot = select_input(left, step.config.left_snapshot, "left_snapshot")
        right_snapshot = (
            left_snapshot
            if self.pairs.get("unordered") and not step.config.right_snapshot
            else select_input(right, step.config.right_snapshot, "right_snapshot")
        )
        plan = plan_combine(
            left,
            right,
            step.version,
            left_snapshot=left_snapshot.number,
            right_snapshot=right_snapshot.number,
            target_bytes=self.target_bytes,
            mode=self.mode,
            compression=self.compression,
            **SpecOptions(**self.pairs, udfs=self.udfs.settled()),
        )
        return _CombineWork(plan, self.budget_bytes, step.checks)

    def derive_schema(self, schemas: Schemas) -> Schema | None:
        left, right = (schemas[name] for name in self.sides)
        return None if left is None or right is None else self._infer_schema(left, right)

    def _infer_schema(self, left: Schema, right: Schema) -> Schema | None:
        """Return the schema of the pairs, None if the features of a UDF are not known yet."""
        spec = _create_spec(self.pairs, ())
        bound, pairs = bind_spec(spec, left, right)
        bound.validate_side_names()
        self.udfs.validate(pairs)
        if self.udfs.declared is None:
            return None
        bound, schema = bind_spec(replace(spec, udfs=self.udfs.declared), left, right)
        bound.validate_side_names()
        return schema


@dataclass(frozen=True, slots=True)
class _CombineWork:
    """A planned combination of two snapshots."""

    combination: CombinePlan
    budget_bytes: int | None
    checks: Checks

    def plan(self) -> VersionPlan:
        plan = self.combination
        compute, reuse = format_count(plan.compute, "shard"), format_count(plan.reuse, "shard")
        return VersionPlan(
            f"{plan.left} and {plan.right}: {plan.estimate} to compute in {compute}, {reuse} to "
            "reuse",
            {
                keys.PAIRS_TO_COMPUTE: plan.estimate.pairs,
                keys.BYTES_TO_WRITE: plan.estimate.bytes,
                keys.IS_UPPER_BOUND: plan.estimate.most,
                keys.SHARDS_TO_COMPUTE: plan.compute,
                keys.SHARDS_TO_REUSE: plan.reuse,
                keys.SHARDS_TO_DROP: plan.drop,
                keys.IS_INCREMENTAL: plan.incremental,
                keys.COLUMNS: dg.MetadataValue.table_schema(build_column_schema(plan.schema)),
            },
        )

    def run(self, executor: Executor) -> DerivedReport:
        report = self.combination.execute(
            budget_bytes=self.budget_bytes, checks=self.checks, executor=executor
        )
        counts = {keys.COMPUTED_PAIRS: report.records}
        return DerivedReport(report.entry, report.written, counts=counts)


def _validate_spec(options: PairOptions, udfs: DeclaredUdfs, mode: str) -> None:
    """Raise InvalidArgumentError for options that contradict each other."""
    spec = _create_spec(options, udfs.functions)
    late = [name for name, value in options.items() if value and name not in spec.changed]
    late += ["udfs"] if udfs.declaration and not spec.udfs else []
    validate_mode(mode, (*spec.changed, *late))


def _create_spec(options: PairOptions, udfs: Sequence[UDF]) -> CombineSpec:
    """Return the spec with these UDFs. A filter that is a table is left out: it is not read."""
    known = options.copy()
    where = options.get("where")
    if is_udf(where) and not isinstance(where, FunctionUDF):
        known["where"] = None
    return CombineSpec.of(**known, udfs=udfs)
