"""`shardline schema` of a version, and of sources that are to become one."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import json_option, limit_options, limits, root_option, workers_option
from shardline.cli.output import Table, add_skipped_files
from shardline.cli.progress import show_activity, show_file_progress
from shardline.cli.references import (
    is_reference,
    open_root,
    open_version,
    parse_version,
    split_files_and_versions,
)
from shardline.cli.schema_file import format_declaration
from shardline.cli.source_arguments import find_sources, format_option, infer_source_format
from shardline.schema.tf_spec import format_spec
from shardline.text import escape_text, float32_json, format_count

if TYPE_CHECKING:
    from shardline.schema.file_schema import FeatureSchema, FileSchema, SchemaReport
    from shardline.schema.schema import Feature, Schema
    from shardline.tfrecord import Limits


def is_version_argument(argument: str, root: str | None) -> bool:
    """Whether a version is meant: nothing is there of that name, and there is a root."""
    return bool(root) and is_reference(argument) and not Path(argument).exists()


def print_version_schema(
    argument: str, root: str | None, *, spec: bool, declare: bool, as_json: bool
) -> None:
    """Tell the schema of a version."""
    wanted = parse_version(argument)
    schema = open_version(open_root(root), wanted).schema
    if as_json:
        told = {
            "ok": True,
            "version": wanted.version,
            "schema": schema.to_dict(),
            "fingerprint": schema.fingerprint,
            "spec": format_spec(schema),
        }
        click.echo(json.dumps(told))
    elif declare:
        click.echo(format_declaration(schema), nl=False)
    elif spec:
        click.echo("import tensorflow as tf\n\n" + format_spec(schema), nl=False)
    else:
        _print_version(wanted.version, schema)


def print_source_schema(
    arguments: tuple[str, ...], format_: str | None, limits: Limits, *, as_json: bool
) -> None:
    """Tell the schema that an append of these sources would give a new version."""
    from shardline.errors import SchemaMismatchError
    from shardline.sources import infer_source_schema, open_source

    found = find_sources(arguments, format_)
    sources = [open_source(one, format=format_, limits=limits) for one in found]  # type: ignore[arg-type] # one of its choices
    with show_activity("finding the schema"):
        try:
            schema = infer_source_schema(sources)
        except SchemaMismatchError as error:
            if error.code not in {"inexact-number", "number-too-large"}:
                raise
            # What is declared is edited: the user decides which features may be rounded.
            schema = infer_source_schema(sources, allow_rounding=True)
            click.echo(f"warning: {escape_text(error.message)}", err=True)
    if not schema.features and schema.payload != "opaque":
        raise SchemaMismatchError(f"nothing in {found[0]} tells a schema: it holds no values")
    if as_json:
        click.echo(json.dumps(add_skipped_files({"ok": True, "schema": schema.to_dict()})))
    else:
        click.echo(format_declaration(schema), nl=False)


def _print_version(version: str, schema: Schema) -> None:
    click.echo(
        f"{version}: {schema.payload} records, {format_count(len(schema.features), 'feature')}"
    )
    if schema.doc:
        click.echo(escape_text(schema.doc))
    if not schema.features:
        return
    told = [_format_row(feature) for feature in schema.features]
    headings = [name for name in told[0] if any(row[name] for row in told)]
    table = Table(*headings, wide=headings[-1])
    for row in told:
        table.add_row(*(row[name] for name in headings))
    table.print()
    click.echo("\n" + format_spec(schema), nl=False)


def _format_row(feature: Feature) -> dict[str, str]:
    inner = ", ".join("?" if size is None else str(size) for size in feature.shape)
    presence = ["required" if feature.required else "optional"]
    presence += ["per step"] if feature.sequence else []
    presence += ["may be NaN"] if feature.nan else []
    return {
        "feature": escape_text(feature.name),
        "kind": feature.kind,
        "shape": f"[{inner}]",
        "presence": ", ".join(presence),
        "meaning": "" if feature.meaning is None else escape_text(str(feature.meaning)),
        "doc": escape_text(feature.doc),
    }


@click.command(
    epilog="""\b
Examples:
  shardline schema train.tfrecord
  shardline schema 'train-*' --json
  shardline schema train.tfrecord --spec >> input_pipeline.py
  shardline schema digits/v1                the schema of a version
\b
  shardline schema monday.csv --declare > digits.json
  shardline append digits/v1 monday.csv --schema digits.json""",
)
@click.argument("arguments", nargs=-1, required=True, metavar="FILE...|NAME/VERSION")
@click.option("--spec", is_flag=True, help="Print only the tf.io feature spec, ready to paste.")
@click.option(
    "--declare",
    is_flag=True,
    help="Print the schema that 'append' infers for a new version, as JSON to edit. "
    "Reads all formats of 'append'.",
)
@format_option("the files are, with --declare")
@workers_option
@limit_options
@root_option
@json_option
def schema(
    arguments: tuple[str, ...],
    *,
    spec: bool,
    declare: bool,
    format_: str | None,
    workers: int | None,
    max_record: int,
    max_decompressed: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Show the features of records: of TFRecord files from all records, or of a version.

    Shows the kind, shape ([] one value, [8] eight, [?] any number), presence and value range of
    each feature, and the differences between files. For a version, shows its declared schema.

    Exits with 1 if a file is corrupt, a record is not an Example, or a feature has two kinds.
    """
    from shardline.schema.file_schema import feature_spec, infer_schema

    if spec and declare:
        raise UsageError("--spec and --declare exclude each other", code="conflicting-options")
    if format_ is not None and not declare:
        raise UsageError(
            "--format requires --declare",
            code="missing-option",
            hint="add `--declare`: otherwise, files are read as TFRecord",
        )
    within = limits(max_record, max_decompressed)
    if len(arguments) == 1 and is_version_argument(arguments[0], root):
        print_version_schema(arguments[0], root, spec=spec, declare=declare, as_json=as_json)
        return
    if declare:
        print_source_schema(arguments, format_, within, as_json=as_json)
        return
    paths, references = split_files_and_versions(arguments, root)
    if references:
        raise UsageError(
            f"{references[0]}: expected a version alone",
            code="too-many-arguments",
            hint="name a single version, without files",
            version=references[0].version,
        )
    _validate_formats(paths)
    with show_file_progress("reading", paths) as progress:
        report = infer_schema(paths, limits=within, workers=workers, progress=progress)
    ok = all(len(feature.kinds) < 2 for feature in report.merged.features)
    if as_json:
        payload = _serialize_report(report, feature_spec(report.merged), ok=ok)
        click.echo(json.dumps(add_skipped_files(payload)))
    elif spec:
        click.echo("import tensorflow as tf\n\n" + feature_spec(report.merged), nl=False)
    else:
        _print_report(report, feature_spec(report.merged))
    raise SystemExit(0 if ok else 1)


def _validate_formats(paths: list[Path]) -> None:
    """Refuse what is no TFRecord file by its name: it would only seem to be damaged."""
    for path in paths:
        told = infer_source_format(path)
        if told not in {None, "tfrecord"}:
            raise UsageError(
                f"{path}: expected a TFRecord file, got {told}",
                code="unexpected-format",
                hint="add `--declare` to show the schema that append infers",
                path=path,
            )


def _serialize_report(report: SchemaReport, spec: str, *, ok: bool) -> dict[str, Any]:
    return {
        "ok": ok,
        "records": report.merged.records,
        "features": _serialize_features(report.merged),
        "files": [
            {"file": file.file, "records": file.records, "features": _serialize_features(file)}
            for file in report.files
        ],
        "differences": [asdict(difference) for difference in report.differences],
        "spec": spec,
    }


def _serialize_features(schema: FileSchema) -> list[dict[str, Any]]:
    return [
        {
            "name": feature.name,
            "sequence": feature.sequence,
            "kind": feature.kind,
            "kinds": feature.kinds,
            "shape": feature.shape,
            "fixed": feature.length is not None,
            "length": feature.length,
            "lengths": feature.lengths,
            "steps": feature.steps,
            "required": feature.required,
            "present": feature.present,
            "min": _serialize_bound(feature.low),
            "max": _serialize_bound(feature.high),
            "nans": feature.nans,
            "bytes": feature.sizes,
            "utf8": feature.utf8 if "bytes" in feature.kinds else None,
        }
        for feature in schema.features
    ]


def _serialize_bound(value: float | None) -> float | str | None:
    """Return the smallest or largest value of a feature for JSON."""
    return float32_json(value) if isinstance(value, float) else value


def _print_report(report: SchemaReport, spec: str) -> None:
    files = format_count(len(report.files), "file")
    click.echo(f"{format_count(report.merged.records, 'record')} in {files}")
    table = Table("feature", "kind", "shape", "present", "values", wide="values")
    for feature in report.merged.features:
        name = escape_text(feature.name) + (" (list)" if feature.sequence else "")
        table.add_row(
            name, feature.kind, feature.shape, _format_presence(feature), _format_values(feature)
        )
    table.print()
    if report.differences:
        click.echo("The files differ:")
        for difference in report.differences:
            click.echo(f"  {escape_text(difference.name)}: {', '.join(difference.what)}")
            for file, told in difference.files.items():
                click.echo(f"    {escape_text(file)}: {escape_text(told)}")
    elif len(report.files) > 1:
        click.echo("All files have the same features.")
    click.echo("\n" + spec, nl=False)


def _format_presence(feature: FeatureSchema) -> str:
    if feature.required:
        return "always"
    return f"{feature.present:,} of {feature.records:,}"


def _format_values(feature: FeatureSchema) -> str:
    parts = []
    if feature.low is not None and feature.high is not None:
        parts.append(f"{_serialize_bound(feature.low)} to {_serialize_bound(feature.high)}")
    if feature.nans:
        parts.append(format_count(feature.nans, "NaN"))
    if feature.sizes is not None:
        least, most = feature.sizes
        size = f"{least} bytes" if least == most else f"{least} to {most} bytes"
        parts.append(f"{size}, {'text' if feature.utf8 else 'binary'}")
    if feature.length is None and feature.lengths is not None:
        parts.append(f"{feature.lengths[0]} to {feature.lengths[1]} values")
    return "; ".join(parts)
