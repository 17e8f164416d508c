"""Definitions of all declared versions. Invalid declarations fail at load."""

from collections.abc import Mapping, Sequence

import dagster as dg

from shardline.dagster.automation.audit import (
    AUDIT,
    AUDIT_JOB,
    build_audit_asset,
    build_audit_schedule,
)
from shardline.dagster.automation.conditions import build_follow_sensor
from shardline.dagster.automation.maintenance import (
    build_vacuum_job,
    build_verify_job,
    build_verify_schedule,
)
from shardline.dagster.automation.reconciler import ReconciledVersion, build_reconciler_sensor
from shardline.dagster.expectations.columns import get_flat_columns
from shardline.dagster.expectations.suite import read_suite, validate_columns
from shardline.dagster.resources import ShardlineResource, shardline_resource
from shardline.dagster.versions.declaration import (
    DeclarationError,
    VersionDefs,
    raise_declaration_error,
)
from shardline.dagster.versions.dry_run import build_dry_run_job
from shardline.hints import Hint
from shardline.schema.schema import Schema


def build_definitions(
    *declared: VersionDefs,
    shardline: ShardlineResource | None = None,
    resources: Mapping[str, object] | None = None,
) -> dg.Definitions:
    """Return the definitions of the declared versions with their automation and jobs."""
    validate_declarations(declared)
    names = [version.name for version in declared]
    verify = build_verify_job(names)
    shared = dg.Definitions(
        assets=[build_audit_asset(names)],
        schedules=[build_verify_schedule(verify), build_audit_schedule()],
        sensors=[
            build_follow_sensor(),
            build_reconciler_sensor([get_reconciled_version(version) for version in declared]),
        ],
        jobs=[build_dry_run_job(declared), verify, build_vacuum_job(names), AUDIT_JOB],
        resources={**(resources or {}), "shardline": (shardline or shardline_resource()).fixed()},
        # Steps are few and large, and each runs its shards in parallel: processes would not help.
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(*(version.definitions for version in declared), shared)


def get_reconciled_version(version: VersionDefs) -> ReconciledVersion:
    """Return a declared version as the reconciler needs it."""
    return ReconciledVersion(
        version.name,
        tuple(spec.name for spec in version.checks.check_specs),
        version.inputs,
        tuple(asset.key for asset in version.assets[1:]),
    )


def validate_declarations(declared: tuple[VersionDefs, ...]) -> None:
    """Raise DeclarationError for duplicate names, undeclared inputs and schemas that do not fit."""
    known: dict[dg.AssetKey, str] = {dg.AssetKey(AUDIT): "the audit"}
    for version in declared:
        for asset in version.assets:
            other = known.setdefault(asset.key, version.name)
            if other != version.name:
                raise DeclarationError(
                    f"{version.name}: same asset as {other} ({asset.key.to_user_string()})",
                    code="duplicate-asset",
                    hint=Hint.of("rename one of them"),
                    version=version.name,
                )
    names = [version.name for version in declared]
    for name in sorted({name for name in names if names.count(name) > 1}):
        raise DeclarationError(
            f"{name}: declared twice",
            code="duplicate-version",
            hint=Hint.of("remove one of the declarations"),
            version=name,
        )
    for version in declared:
        for upstream in version.inputs:
            if upstream not in names:
                raise DeclarationError(
                    f"{version.name}: undeclared input {upstream}",
                    code="undeclared-input",
                    hint=Hint.of(f"declare {upstream}, or name one of {', '.join(sorted(names))}"),
                    version=version.name,
                )
    validate_exports(declared)
    validate_schemas(declared)


def validate_schemas(declared: Sequence[VersionDefs]) -> None:
    """Raise DeclarationError if a schema contradicts a declaration or a suite.

    All inputs must be declared. Only suites are read. Versions whose schema depends on a table or
    on a function that is called in the run are not validated.
    """
    schemas = resolve_schemas(declared)
    for version in declared:
        schema = schemas[version.name]
        if version.suite is None or schema is None:
            continue
        columns = [column.name for column in get_flat_columns(schema)]
        with raise_declaration_error(version.name):
            suite = read_suite(version.suite, version.name)
            validate_columns(version.suite, suite, columns)


def resolve_schemas(declared: Sequence[VersionDefs]) -> dict[str, Schema | None]:
    """Return the schema of each version, None if it is unknown before a run."""
    versions = {version.name: version for version in declared}
    schemas: dict[str, Schema | None] = {}

    def resolve(version: VersionDefs, path: tuple[str, ...]) -> None:
        if version.name in path:
            cycle = " -> ".join((*path[path.index(version.name) :], version.name))
            raise DeclarationError(
                f"{version.name}: input of itself ({cycle})",
                code="circular-input",
                hint=Hint.of("change an input of one of these versions"),
                version=version.name,
            )
        for name in version.inputs:
            if name not in schemas:
                resolve(versions[name], (*path, version.name))
        with raise_declaration_error(version.name):
            schemas[version.name] = version.derive_schema(schemas)

    for version in declared:
        if version.name not in schemas:
            resolve(version, ())
    return schemas


def validate_exports(declared: Sequence[VersionDefs]) -> None:
    """Raise DeclarationError if two versions export to the same path."""
    known = dict[str, str]()
    for version in declared:
        for path in version.exports:
            other = known.setdefault(str(path.resolve()), version.name)
            if other != version.name:
                raise DeclarationError(
                    f"{version.name}: exports to the path of {other}",
                    code="duplicate-export",
                    hint=Hint.of("export one of them to another path"),
                    path=path,
                    version=version.name,
                )
