"""`shardline migrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import assigned, assigned_values, compression_option
from shardline.cli.transform import (
    ChangeOptions,
    change_loose,
    change_version,
    place_options,
    work_options,
)
from shardline.hints import Hint

if TYPE_CHECKING:
    from shardline.kernel.types import Kind
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.migrate import Steps
    from shardline.operations.transform_version import ShardChange
    from shardline.schema.schema import Schema
    from shardline.udf.transform import Transform

_KINDS: tuple[Kind, ...] = ("float", "int64")


@click.command(
    short_help="Rename, drop, cast or fill in features, in a new version.",
    epilog="""\b
Examples:
  shardline migrate digits/v1 --into v2 --rename label=digit --drop notes
  shardline migrate digits/v1 --into v2 --cast brightness=float --dry-run
  shardline migrate digits/v1 --into v2 --default split=train
  shardline migrate old.tfrecord --output new.tfrecord --rename label=digit

A VALUE is a number, true, false, a list or "quoted text" as JSON writes it; anything else is text:
--default age=18, --default split=train, --default 'code="007"'.

Each feature is named as the old version calls it. If the context and the feature_lists of
SequenceExamples both have a NAME, write context:NAME or feature_lists:NAME.

SNAPSHOT is a number, a tag, 'published' (the default), 'newest' or a time (UTC).""",
)
@place_options
@click.option(
    "--rename", multiple=True, metavar="OLD=NEW", help="Rename a feature; may be repeated."
)
@click.option("--drop", multiple=True, metavar="NAME", help="Leave out a feature; may be repeated.")
@click.option(
    "--cast",
    multiple=True,
    metavar="NAME=KIND",
    help="Make the numbers of a feature float or int64, if they can be exactly; may be repeated.",
)
@click.option(
    "defaults",
    "--default",
    multiple=True,
    metavar="NAME=VALUE",
    help="Give a feature a value in the records that lack it; in all, if it is new; may be "
    "repeated. It is required from then on.",
)
@compression_option(None, "  [default: as before]")
@work_options
def migrate(
    *,
    rename: tuple[str, ...],
    drop: tuple[str, ...],
    cast: tuple[str, ...],
    defaults: tuple[str, ...],
    **common: Any,  # noqa: ANN401 - they are told in ChangeOptions
) -> None:
    """Make the records of a version those of another one, with another schema; or of a file.

    What is not named goes on byte for byte. The plan is shown first, and with --dry-run that is
    all. The new snapshot is checked, and so published. Later, when the old version has grown, the
    same command makes only what is new.

    Exits with 1 if a number cannot be cast, at a damaged record, or if the check failed; nothing is
    changed then.
    """
    asked = ChangeOptions(**common)
    asked.refuse_mixed()
    steps = _steps(rename, drop, cast, defaults)
    if asked.output is not None:

        def transform(schema: Schema) -> Transform:
            from shardline.operations.migrate import migration

            _refuse_taken(schema, steps)
            return migration(schema, steps)

        change_loose(asked, asked.output, transform, ("migrating", "migrated"), steps.lines())
    elif asked.into is not None:

        def plan(base: StoredVersion, snapshot: StoredSnapshot, into: StoredVersion) -> ShardChange:
            from shardline.operations.migrate import planned_migration

            _refuse_taken(snapshot.schema, steps)
            return planned_migration(
                base,
                into,
                steps,
                which=snapshot.number,
                compression=asked.compression,
                quarantine_share=asked.quarantine_share or 0.0,
                limits=asked.limits,
            )

        change_version(asked, asked.into, plan, steps.lines())


def _steps(
    rename: tuple[str, ...], drop: tuple[str, ...], cast: tuple[str, ...], defaults: tuple[str, ...]
) -> Steps:
    from shardline.operations.migrate import Steps

    if not (rename or drop or cast or defaults):
        raise UsageError(
            "no changes given",
            code="missing-option",
            hint=Hint.of(
                "pass `--rename OLD=NEW`, `--drop NAME`, `--cast NAME=float`",
                " or `--default NAME=VALUE`",
            ),
        )
    return Steps(
        rename=assigned(rename, "--rename", "OLD=NEW"),
        drop=list(dict.fromkeys(drop)),
        cast={name: _kind(name, kind) for name, kind in _casts(cast).items()},
        default=assigned_values(defaults, "--default"),
    )


def _refuse_taken(schema: Schema, steps: Steps) -> None:
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


def _casts(cast: tuple[str, ...]) -> dict[str, str]:
    return assigned(cast, "--cast", "NAME=float or NAME=int64")


def _kind(name: str, told: str) -> Kind:
    for kind in _KINDS:
        if told == kind:
            return kind
    raise UsageError(
        f"invalid --cast {name}={told}: expected float or int64",
        code="invalid-option-value",
        feature=name,
    )
