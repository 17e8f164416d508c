"""Schemas in files: `shardline schema --declare` writes them, `append --schema` reads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from shardline.cli.errors import UsageError
from shardline.hints import Command, Hint

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.schema.schema import Schema


def format_declaration(schema: Schema) -> str:
    """The schema as JSON with a feature on each line, to be edited by hand."""
    told = schema.to_dict()
    features = ",\n".join(f"    {json.dumps(feature)}" for feature in told.pop("features"))
    head = "".join(f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in told.items())
    listed = f"[\n{features}\n  ]" if features else "[]"
    return f'{{\n{head}  "features": {listed}\n}}\n'


def read_schema(path: Path) -> Schema:
    """The schema in a file; a usage error says what is wrong with it.

    What has a schema in it, such as a log's first entry, will do.
    """
    from shardline.errors import SchemaMismatchError
    from shardline.schema.schema import Schema

    try:
        told = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path}: invalid JSON at line {error.lineno}, column {error.colno}: {error.msg}",
            code="invalid-schema-file",
            path=path,
        ) from None
    except UnicodeDecodeError:
        raise UsageError(
            f"{path}: invalid JSON: not UTF-8 text", code="invalid-schema-file", path=path
        ) from None
    except RecursionError:
        raise UsageError(
            f"{path}: invalid schema: nested too deeply", code="invalid-schema-file", path=path
        ) from None
    if isinstance(told, dict) and isinstance(told.get("schema"), dict):
        told = told["schema"]
    try:
        return Schema.from_dict(told)
    except SchemaMismatchError as error:
        raise UsageError(
            f"{path}: {error.message}",
            code="invalid-schema-file",
            hint=Hint.of(
                "to start from a valid schema, run ", Command.of("schema", "FILE", "--declare")
            ),
            path=path,
            feature=error.feature,
        ) from None
