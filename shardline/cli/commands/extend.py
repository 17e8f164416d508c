"""`shardline extend`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import compression_option
from shardline.cli.references import SNAPSHOT_HELP
from shardline.cli.transform import (
    TransformOptions,
    execution_options,
    target_options,
    transform_standalone_file,
    transform_version,
)
from shardline.cli.udf_options import UdfOptions, join_options, udf_option
from shardline.hints import Command, Hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.transform import TransformMode, TransformPlan
    from shardline.schema.schema import Schema
    from shardline.udf import UDF
    from shardline.udf.transform import Transform


@click.command(
    epilog="""\b
Examples:
  shardline extend digits/v1 --into v2 --udf my_fields:brightness
  shardline extend digits/v1 --into v2 --join names.csv --key label
  shardline extend digits/v1 --into v2 --udf my_fields:all --dry-run
  shardline extend train.tfrecord -o more.tfrecord --udf my_fields.py:length
\b
In my_fields.py:
  from shardline import Feature, record_udf
\b
  @record_udf(Feature("length", "int64"), reads=["name"], code="1")
  def length(record):
      return {"length": len(record["name"])}

batch_udf (Arrow columns, much faster), tensor_udf (TensorFlow) and table_join (a table) work the
same way. Change 'code' when the function changes: with an equal code, results are reused.

A VALUE is a number, true, false, a list or "quoted text" as in JSON; anything else is text:
--default age=18, --default split=train, --default 'code="007"'.

"""
    + SNAPSHOT_HELP,
)
@target_options
@udf_option
@join_options
@click.option(
    "--mode",
    type=click.Choice(["overlay", "rewrite"]),
    help="With --into: write only the new features, or all features of every "
    "record.  [default: overlay]",
)
@click.option(
    "replaces",
    "--replace",
    multiple=True,
    metavar="NAME",
    help="Replace an old feature of this name. Repeatable. A version needs --mode rewrite.",
)
@click.option(
    "--drop",
    multiple=True,
    metavar="NAME",
    help="Drop an old feature. Repeatable. A version needs --mode rewrite.",
)
@compression_option(None, "  [default: as in the base; none for an overlay]")
@execution_options
def extend(
    *,
    udfs: tuple[str, ...],
    tables: tuple[str, ...],
    key: str | None,
    table_key: str | None,
    columns: str | None,
    on_missing: str | None,
    defaults: tuple[str, ...],
    on_duplicate: str | None,
    mode: TransformMode | None,
    replaces: tuple[str, ...],
    drop: tuple[str, ...],
    **common: Any,  # noqa: ANN401 - the fields of TransformOptions
) -> None:
    """Add features to the records of a version or a file.

    New features come from functions (--udf), from a table (--join) or from both. Versions get an
    overlay by default: only the new features are written, and readers join them with the old
    shards. After an append, the same command computes only new shards. The new snapshot is checked
    and published.

    Exits with 1 if a function fails, a result does not fit, a key is not in the table, a record is
    corrupt or the check fails. Nothing is written then.
    """
    options = TransformOptions(**common)
    options.validate(mode=mode)
    if options.into is not None and mode != "rewrite" and (replaces or drop):
        raise UsageError(
            "--replace and --drop require --mode rewrite",
            code="missing-option",
            hint="add `--mode rewrite`: an overlay keeps the features of its base",
        )
    if drop and not udfs and not tables:
        _raise_drop_only(options, drop)
    udf_options = UdfOptions(
        udfs, tables, key, table_key, columns, on_missing, defaults, on_duplicate
    )
    extension = _Extension(options, udf_options.load(), mode or "overlay", replaces, drop)
    if options.output is not None:
        verb = ("extending", "extended")
        transform_standalone_file(options, options.output, extension.make_transform, verb)
    elif options.into is not None:
        transform_version(options, options.into, extension.make_plan)


def _raise_drop_only(options: TransformOptions, drop: tuple[str, ...]) -> NoReturn:
    """Name the command that only drops features."""
    into = ("--output", str(options.output)) if options.into is None else ("--into", options.into)
    drops = [argument for name in drop for argument in ("--drop", name)]
    command = Command.of("migrate", options.argument, *into, *drops)
    raise UsageError(
        "no features to add", code="missing-option", hint=Hint.of("to drop only, run ", command)
    )


@dataclass(frozen=True, slots=True)
class _Extension:
    """Features to add, replace and drop."""

    options: TransformOptions
    udfs: list[UDF]
    mode: TransformMode
    replaces: tuple[str, ...]
    drop: tuple[str, ...]

    def make_plan(
        self, base: StoredVersion, snapshot: StoredSnapshot, into: StoredVersion
    ) -> TransformPlan:
        """Plan the extension of a version."""
        from shardline.operations.extend import plan_extend, settle_udfs

        udfs = settle_udfs(self.udfs)
        self._validate_names(snapshot.schema, udfs, "--mode rewrite --replace")
        if self.mode == "overlay":
            self._validate_overlay(base, into, udfs)
        return plan_extend(
            base,
            udfs,
            into,
            snapshot=snapshot.number,
            mode=self.mode,
            replaces=self.replaces,
            drop=self.drop,
            compression=self.options.compression,
            max_quarantined=self.options.max_quarantined or 0.0,
            limits=self.options.limits,
        )

    def make_transform(self, schema: Schema) -> Transform:
        """Return the transform of the records of a file."""
        from shardline.operations.extend import make_extend_transform, settle_udfs

        udfs = settle_udfs(self.udfs)
        self._validate_names(schema, udfs, "--replace")
        return make_extend_transform(schema, udfs, replaces=self.replaces, drop=self.drop)

    def _validate_names(self, schema: Schema, udfs: Sequence[UDF], option: str) -> None:
        """Refuse a new feature with the name of an old feature that is kept."""
        removed = {*self.replaces, *self.drop}
        for feature in (feature for udf in udfs for feature in udf.features):
            is_kept = feature.name not in removed
            if is_kept and schema.find(feature.name, sequence=False) is not None:
                raise UsageError(
                    f"feature {feature.name!r} exists already",
                    code="duplicate-feature",
                    hint=f"choose another name, or add `{option} {shlex.quote(feature.name)}`",
                    feature=feature.name,
                )

    def _validate_overlay(
        self, base: StoredVersion, into: StoredVersion, udfs: Sequence[UDF]
    ) -> None:
        if into.log.dataset != base.log.dataset:
            raise UsageError(
                f"--into {into.name}: an overlay needs the dataset of its base",
                code="dataset-mismatch",
                hint=f"name a version of {base.log.dataset}, or add `--mode rewrite`",
                version=into.name,
            )
        required = [feature.name for udf in udfs for feature in udf.features if feature.required]
        if self.options.max_quarantined and required:
            raise UsageError(
                f"an overlay cannot quarantine records: feature {required[0]!r} is required",
                code="conflicting-options",
                hint="declare it with `required=False`, or add `--mode rewrite`",
                feature=required[0],
            )
