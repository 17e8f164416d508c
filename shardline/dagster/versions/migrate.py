"""A version with the records of another under a changed schema."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

from shardline.api import Version
from shardline.arguments import list_items, validate_option_names, validate_share
from shardline.dagster.versions.builder import (
    InputConfig,
    TransformOperation,
    VersionOptions,
    VersionStep,
    build_version,
)
from shardline.dagster.versions.declaration import (
    VersionDefs,
    get_version_name,
    raise_declaration_error,
)
from shardline.operations.migrate import (
    MigrationSpec,
    make_migrate_transform,
    plan_migration,
    validate_migration_spec,
)
from shardline.operations.transform import TransformPlan, parse_shard_compression
from shardline.schema.schema import Kind, Schema
from shardline.udf.transform import Transform


def migrated_version(
    name: str,
    *,
    of: str | VersionDefs,
    rename: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    cast: Mapping[str, Kind] | None = None,
    default: Mapping[str, Any] | None = None,
    max_quarantined: float = 0.0,
    compression: str | None = None,
    **options: Unpack[VersionOptions],
) -> VersionDefs:
    """Declare a version with the published records of `of` under a changed schema.

    The version follows `of` and migrates only new shards. Features are named as in `of`.

    Args:
        name: The new version.
        of: The version to migrate, or its name.
        rename: New names of features, by their old names.
        drop: Features to leave out.
        cast: New kinds of features, "float" or "int64". A number that the new kind cannot hold
            exactly stops the run.
        default: Values for records that lack the feature, which is required from then on. If no
            record has the feature, all get it.
        max_quarantined: Share of the records, from 0 to 1, that may fail a cast. They go to
            quarantine.
        compression: "none" or "gzip" for new shards. Default: as in `of`.
        **options: The options of all factories, see `VersionOptions`.

    Returns:
        The declared version, for `build_definitions`.

    Raises:
        DeclarationError: If the steps are empty or contradict each other.

    Example:
        digits_v2 = migrated_version("digits/v2", of=digits_v1, rename={"label": "digit"})
    """
    validate_option_names(migrated_version, options, VersionOptions.__annotations__)
    with raise_declaration_error(name):
        spec = MigrationSpec(
            rename=rename or {},
            drop=[str(feature) for feature in list_items(drop, "drop")],
            cast=cast or {},
            default=default or {},
        )
        validate_migration_spec(spec)
        validate_share("max_quarantined", max_quarantined)
        parse_shard_compression(compression)
    source = get_version_name(of)
    return build_version(name, _Migration((source,), compression, max_quarantined, spec), options)


@dataclass(frozen=True, slots=True)
class _Migration(TransformOperation):
    """The declared options of a migrated version."""

    operation: ClassVar[str] = "migrate"

    spec: MigrationSpec

    def describe(self) -> str:
        return f"Migrated from `{self.inputs[0]}`."

    def prepare_transform(
        self, step: VersionStep[InputConfig], base: Version, snapshot: int
    ) -> TransformPlan:
        return plan_migration(
            base,
            self.spec,
            step.version,
            snapshot=snapshot,
            compression=self.compression,
            max_quarantined=self.max_quarantined,
            checks=step.checks,
        )

    def derive_transform(self, base: Schema) -> Transform:
        return make_migrate_transform(base, self.spec)
