"""Schema files: `shardline schema --declare` writes them, `append --schema` reads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from shardline.cli.errors import UsageError
from shardline.hints import Command, Hint

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.schema.schema import Schema


def format_declaration(schema: Schema) -> str:
    """Return a schema as JSON with a feature per line, to be edited by hand."""
    payload = schema.to_dict()
    features = ",\n".join(f"    {json.dumps(feature)}" for feature in payload.pop("features"))
    head = "".join(
        f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in payload.items()
    )
    listed = f"[\n{features}\n  ]" if features else "[]"
    return f'{{\n{head}  "features": {listed}\n}}\n'


def read_schema(path: Path) -> Schema:
    """Read a schema from a JSON file, or from the `schema` of an object such as a log entry.

    Raises UsageError.
    """
    from shardline.errors import SchemaMismatchError
    from shardline.schema.schema import Schema

    try:
        payload = json.loads(path.read_bytes())
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
    if isinstance(payload, dict) and isinstance(payload.get("schema"), dict):
        payload = payload["schema"]
    try:
        return Schema.from_dict(payload)
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
