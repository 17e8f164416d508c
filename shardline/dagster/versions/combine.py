"""A version that follows two others: the pairs of their records."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

import dagster as dg
from pydantic import Field

from shardline.api import Snapshot, Version
from shardline.arguments import TARGET_BYTES
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.declaration import (
    DryRun,
    Schemas,
    VersionDefs,
    VersionPlan,
    create_version_checks,
    parse_target,
    raise_declaration_error,
    validate_inputs,
)
from shardline.dagster.versions.declared_udfs import DeclaredUdfs, LateUdfs, Udfs
from shardline.dagster.versions.derivation import (
    build_derived_asset,
    create_step_report,
    require_declared_checks,
    select_input,
)
from shardline.dagster.versions.materialization import build_result, column_schema
from shardline.dagster.versions.progress import create_logging_executor
from shardline.errors import InvalidArgumentError
from shardline.hints import Hint, Option
from shardline.operations.combine import (
    CombinePlan,
    CombineReport,
    combine,
    plan_combine,
)
from shardline.operations.transform_version import parse_shard_compression
from shardline.pairing.combine_spec import (
    CombineMode,
    CombineSpec,
    PairOptions,
    SpecOptions,
    bind_spec,
    validate_mode,
    validate_option_names,
)
from shardline.release import __version__
from shardline.schema.schema import Schema
from shardline.text import format_count
from shardline.udf.udf_declaration import UDF, FunctionUDF, is_udf


class CombineConfig(dg.Config):
    """What can be set in the launchpad; all of it may be left out."""

    left_snapshot: int = Field(
        default=0, ge=0, description="Take this snapshot of the left; 0: the newest published."
    )
    right_snapshot: int = Field(
        default=0, ge=0, description="Take this snapshot of the right; 0: the newest published."
    )


def combined_version(
    name: str,
    *,
    left: str | VersionDefs,
    right: str | VersionDefs,
    fields: Udfs | LateUdfs = (),
    mode: CombineMode = "materialized",
    target_bytes: int | str = TARGET_BYTES,
    budget_bytes: int | str | None = None,
    compression: str | None = None,
    expectations: str | Path | None = None,
    description: str = "",
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    code_version: str = __version__,
    **options: Unpack[PairOptions],
) -> VersionDefs:
    """Declare a version, `digit_pairs/v1`, of the pairs of what `left` and `right` have published.

    See `shardline.combine` for which pairs there are and what their columns are called. `left` and
    `right` may be the same: with `once`, each two different records are paired once. `fields` may
    be a function without arguments that gives them when it runs. With mode "virtual" only a plan is
    written, by which readers make all pairs. It follows both by itself, and makes the pairs of what
    is new in them; with `limit` or `sample`, all of them each time. `target_bytes` and
    `budget_bytes` are numbers, or sizes such as "128MB".
    """
    validate_option_names(combined_version, options)
    first, second = (one if isinstance(one, str) else one.name for one in (left, right))
    inputs = tuple(dict.fromkeys((first, second)))
    validate_inputs(name, inputs)
    once = options.get("once", False)
    with raise_declaration_error(name):
        declared = DeclaredUdfs.of(fields)
        _validate_spec(options, declared, mode)
        target = parse_target("target_bytes", target_bytes)
        budget = None if budget_bytes is None else parse_target("budget_bytes", budget_bytes)
        parse_shard_compression(compression)
        if once and first != second:
            raise InvalidArgumentError(
                f"unordered pairs need the same version on both sides: {first} and {second}",
                code="conflicting-arguments",
                hint=Hint.of("name one version for both sides, or leave out ", Option("once")),
            )
    gate = create_version_checks(name, expectations, grows=False)

    def opened(
        shardline: ShardlineResource, config: CombineConfig, run: str = ""
    ) -> _CombineInputs:
        versions = {one: shardline.version(one, run=run, code=code_version) for one in inputs}
        left_one = select_input(versions[first], config.left_snapshot, "left_snapshot")
        right_one = (
            left_one
            if once and not config.right_snapshot
            else select_input(versions[second], config.right_snapshot, "right_snapshot")
        )
        into = shardline.version(name, run=run, code=code_version)
        return _CombineInputs(versions[first], versions[second], into, left_one, right_one)

    @build_derived_asset(
        name,
        inputs,
        made_by="combine",
        description=description or f"Pairs of `{first}` and `{second}`.",
        owners=owners,
        tags=tags,
        code_version=code_version,
    )
    def combined(
        context: dg.AssetExecutionContext, config: CombineConfig, shardline: ShardlineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        work = opened(shardline, config, context.run.run_id)
        version = work.into
        rule = SpecOptions(**options, fields=declared.settled())
        require_declared_checks(version, gate)
        began = time.perf_counter()
        report = combine(
            *(work.left, work.right, version),
            which_left=work.left_snapshot.number,
            which_right=work.right_snapshot.number,
            target_bytes=target,
            mode=mode,
            compression=compression,
            budget_bytes=budget,
            checks=gate.required,
            executor=create_logging_executor(context.log),
            **rule,
        )
        _log_report(context, report)
        made = create_step_report(version, report, time.perf_counter() - began, context)
        if made is None:
            sides = (work.left_snapshot, work.right_snapshot)
            context.log.info("there is no pair of %s and %s", *sides)
            return
        pairs = {"pairs": made.snapshot.records, "computed_pairs": report.records}
        yield build_result(version, replace(made, counts={**made.counts, **pairs}))

    def plan(shardline: ShardlineResource, config: CombineConfig) -> VersionPlan:
        work = opened(shardline, config)
        return _create_plan(
            plan_combine(
                *(work.left, work.right, work.into),
                which_left=work.left_snapshot.number,
                which_right=work.right_snapshot.number,
                target_bytes=target,
                mode=mode,
                compression=compression,
                **SpecOptions(**options, fields=declared.settled()),
            )
        )

    def derive_schema(schemas: Schemas) -> Schema | None:
        sides = (schemas[first], schemas[second])
        if sides[0] is None or sides[1] is None:
            return None
        return _infer_schema(sides[0], sides[1], options, declared)

    return VersionDefs(
        name,
        (combined,),
        gate.definition(),
        inputs=inputs,
        suite=gate.suite,
        dry_run=DryRun(CombineConfig, plan),
        derive_schema=derive_schema,
    )


@dataclass(frozen=True, slots=True)
class _CombineInputs:
    """The versions of a combination, and the snapshots of the inputs to read."""

    left: Version
    right: Version
    into: Version
    left_snapshot: Snapshot
    right_snapshot: Snapshot


def _validate_spec(options: PairOptions, declared: DeclaredUdfs, mode: str) -> None:
    """Refuse what contradicts itself, as far as it is known before anything is read."""
    spec = _create_spec(options, declared.functions)
    late = [name for name, value in options.items() if value and name not in spec.given]
    late += ["fields"] if declared.given and not spec.fields else []
    validate_mode(mode, (*spec.given, *late))


def _create_spec(options: PairOptions, fields: Sequence[UDF]) -> CombineSpec:
    """Return the spec with these fields, and without a filter that is a table: it is not read."""
    known = options.copy()
    where = options.get("where")
    if is_udf(where) and not isinstance(where, FunctionUDF):
        known["where"] = None
    return CombineSpec.of(**known, fields=fields)


def _infer_schema(
    left: Schema, right: Schema, options: PairOptions, declared: DeclaredUdfs
) -> Schema | None:
    """Return the schema of the pairs, None if the features of a maker are not known yet."""
    spec = _create_spec(options, ())
    bound, pairs = bind_spec(spec, left, right)
    bound.refuse_same_names()
    declared.validate(pairs)
    if declared.declared is None:
        return None
    bound, schema = bind_spec(replace(spec, fields=declared.declared), left, right)
    bound.refuse_same_names()
    return schema


def _create_plan(plan: CombinePlan) -> VersionPlan:
    compute, reuse = format_count(plan.compute, "shard"), format_count(plan.reuse, "shard")
    return VersionPlan(
        f"{plan.estimate} of {plan.left} and {plan.right} to compute, in {compute}; {reuse} to "
        "reuse",
        {
            "pairs_to_compute": plan.estimate.pairs,
            "bytes_to_write": plan.estimate.bytes,
            "at_most": plan.estimate.most,
            "would_compute": plan.compute,
            "would_reuse": plan.reuse,
            "would_drop": plan.drop,
            "incremental": plan.incremental,
            "columns": dg.MetadataValue.table_schema(column_schema(plan.schema)),
        },
    )


def _log_report(context: dg.AssetExecutionContext, report: CombineReport) -> None:
    context.log.info(
        "%s: %s in %s computed, %s reused",
        report.version,
        format_count(report.records, "pair"),
        format_count(len(report.made), "shard"),
        format_count(len(report.reused), "shard"),
    )
