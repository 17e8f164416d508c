"""`shardline migrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import compression_option, parse_assignments, parse_value_assignments
from shardline.cli.references import SNAPSHOT_HELP
from shardline.cli.transform import (
    TransformOptions,
    execution_options,
    target_options,
    transform_standalone_file,
    transform_version,
)
from shardline.hints import Hint

if TYPE_CHECKING:
    from shardline.kernel.types import Kind
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.migrate import MigrationSpec
    from shardline.operations.transform import TransformPlan
    from shardline.schema.schema import Schema
    from shardline.udf.transform import Transform

_KINDS: tuple[Kind, ...] = ("float", "int64")


@click.command(
    epilog="""\b
Examples:
  shardline migrate digits/v1 --into v2 --rename label=digit --drop notes
  shardline migrate digits/v1 --into v2 --cast brightness=float --dry-run
  shardline migrate digits/v1 --into v2 --default split=train
  shardline migrate old.tfrecord -o new.tfrecord --rename label=digit

A VALUE is a number, true, false, a list or "quoted text" as in JSON; anything else is text:
--default age=18, --default split=train, --default 'code="007"'.

Options use the old names of features. If the context and the feature_lists of SequenceExamples
both have a NAME, write context:NAME or feature_lists:NAME.

"""
    + SNAPSHOT_HELP,
)
@target_options
@click.option("--rename", multiple=True, metavar="OLD=NEW", help="Rename a feature. Repeatable.")
@click.option("--drop", multiple=True, metavar="NAME", help="Drop a feature. Repeatable.")
@click.option(
    "--cast",
    multiple=True,
    metavar="NAME=KIND",
    help="Convert a feature to float or int64, if that is exact. Repeatable.",
)
@click.option(
    "defaults",
    "--default",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a new feature, or an old one where it is missing. It becomes required. Repeatable.",
)
@compression_option(None, "  [default: as before]")
@execution_options
def migrate(
    *,
    rename: tuple[str, ...],
    drop: tuple[str, ...],
    cast: tuple[str, ...],
    defaults: tuple[str, ...],
    **common: Any,  # noqa: ANN401 - they are told in TransformOptions
) -> None:
    """Rename, drop, cast or fill features of a version or a file.

    Other features are copied byte for byte. The plan is shown first. The new snapshot is checked
    and published. After an append, the same command computes only new shards.

    Exits with 1 if a number cannot be cast, a record is corrupt or the check fails. Nothing is
    written then.
    """
    asked = TransformOptions(**common)
    asked.validate()
    steps = _parse_steps(rename, drop, cast, defaults)
    if asked.output is not None:

        def transform(schema: Schema) -> Transform:
            from shardline.operations.migrate import make_migrate_transform

            _validate_names(schema, steps)
            return make_migrate_transform(schema, steps)

        transform_standalone_file(
            asked, asked.output, transform, ("migrating", "migrated"), steps.lines()
        )
    elif asked.into is not None:

        def plan(
            base: StoredVersion, snapshot: StoredSnapshot, into: StoredVersion
        ) -> TransformPlan:
            from shardline.operations.migrate import plan_migration

            _validate_names(snapshot.schema, steps)
            return plan_migration(
                base,
                steps,
                into,
                snapshot=snapshot.number,
                compression=asked.compression,
                max_quarantined=asked.max_quarantined or 0.0,
                limits=asked.limits,
            )

        transform_version(asked, asked.into, plan, steps.lines())


def _parse_steps(
    rename: tuple[str, ...], drop: tuple[str, ...], cast: tuple[str, ...], defaults: tuple[str, ...]
) -> MigrationSpec:
    from shardline.operations.migrate import MigrationSpec

    if not (rename or drop or cast or defaults):
        raise UsageError(
            "no changes given",
            code="missing-option",
            hint=Hint.of(
                "pass `--rename OLD=NEW`, `--drop NAME`, `--cast NAME=float`",
                " or `--default NAME=VALUE`",
            ),
        )
    return MigrationSpec(
        rename=parse_assignments(rename, "--rename", "OLD=NEW"),
        drop=list(dict.fromkeys(drop)),
        cast={name: _parse_kind(name, kind) for name, kind in _parse_casts(cast).items()},
        default=parse_value_assignments(defaults, "--default"),
    )


def _validate_names(schema: Schema, steps: MigrationSpec) -> None:
    """Refuse to give a feature the name of another that stays."""
    gone = {*steps.rename, *steps.drop}
    left = {feature.name for feature in schema.features if feature.name not in gone}
    for old, new in steps.rename.items():
        if new in left:
            raise UsageError(
                f"--rename {old}={new}: feature {new!r} exists already",
                code="duplicate-feature",
                hint=f"rename or drop {new!r} too",
                feature=new,
            )
        left.add(new)


def _parse_casts(cast: tuple[str, ...]) -> dict[str, str]:
    return parse_assignments(cast, "--cast", "NAME=float or NAME=int64")


def _parse_kind(name: str, told: str) -> Kind:
    for kind in _KINDS:
        if told == kind:
            return kind
    raise UsageError(
        f"invalid --cast {name}={told}: expected float or int64",
        code="invalid-option-value",
        feature=name,
    )
