"""`shardline schema` of a version, and of sources that are to become one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardline.cli.progress import at_work
from shardline.cli.references import (
    looks_like_reference,
    open_root,
    open_version,
    parse_version,
)
from shardline.cli.schema_file import declaration
from shardline.cli.skipped import with_skipped
from shardline.cli.source_arguments import find_sources
from shardline.cli.tables import plain_console, plain_table
from shardline.schema.spec_text import spec_text
from shardline.text import counted, escaped

if TYPE_CHECKING:
    from shardline.schema.schema import Feature, Schema
    from shardline.tfrecord import Limits


def is_version(argument: str, root: str | None) -> bool:
    """Whether a version is meant: nothing is there of that name, and there is a root."""
    return bool(root) and looks_like_reference(argument) and not Path(argument).exists()


def show_declared(
    argument: str, root: str | None, *, spec: bool, declare: bool, as_json: bool
) -> None:
    """Tell the schema of a version."""
    wanted = parse_version(argument)
    schema = open_version(open_root(root), wanted).schema
    if as_json:
        told = {
            "ok": True,
            "version": wanted.version,
            "schema": schema.to_json(),
            "fingerprint": schema.fingerprint,
            "spec": spec_text(schema),
        }
        click.echo(json.dumps(told))
    elif declare:
        click.echo(declaration(schema), nl=False)
    elif spec:
        click.echo("import tensorflow as tf\n\n" + spec_text(schema), nl=False)
    else:
        _print(wanted.version, schema)


def declare_sources(
    arguments: tuple[str, ...], format_: str | None, limits: Limits, *, as_json: bool
) -> None:
    """Tell the schema that an append of these sources would give a new version."""
    from shardline.errors import SchemaMismatchError
    from shardline.sources import as_source, infer_schema_of

    found = find_sources(arguments, format_)
    sources = [as_source(one, format=format_, limits=limits) for one in found]  # type: ignore[arg-type] # one of its choices
    with at_work("finding the schema"):
        try:
            schema = infer_schema_of(sources)
        except SchemaMismatchError as error:
            if error.code not in {"inexact-number", "number-too-large"}:
                raise
            # What is declared is edited: the user decides which features may be rounded.
            schema = infer_schema_of(sources, allow_rounding=True)
            click.echo(f"warning: {escaped(error.message)}", err=True)
    if not schema.features and schema.payload != "opaque":
        raise SchemaMismatchError(f"nothing in {found[0]} tells a schema: it holds no values")
    if as_json:
        click.echo(json.dumps(with_skipped({"ok": True, "schema": schema.to_json()})))
    else:
        click.echo(declaration(schema), nl=False)


def _print(version: str, schema: Schema) -> None:
    click.echo(f"{version}: {schema.payload} records, {counted(len(schema.features), 'feature')}")
    if schema.doc:
        click.echo(escaped(schema.doc))
    if not schema.features:
        return
    told = [_row(feature) for feature in schema.features]
    headings = [name for name in told[0] if any(row[name] for row in told)]
    table = plain_table(*headings, wide=headings[-1])
    for row in told:
        table.add_row(*(row[name] for name in headings))
    plain_console().print(table)
    click.echo("\n" + spec_text(schema), nl=False)


def _row(feature: Feature) -> dict[str, str]:
    inner = ", ".join("?" if size is None else str(size) for size in feature.shape)
    presence = ["required" if feature.required else "optional"]
    presence += ["per step"] if feature.sequence else []
    presence += ["may be NaN"] if feature.nan else []
    return {
        "feature": escaped(feature.name),
        "kind": feature.kind,
        "shape": f"[{inner}]",
        "presence": ", ".join(presence),
        "meaning": "" if feature.meaning is None else escaped(str(feature.meaning)),
        "doc": escaped(feature.doc),
    }
