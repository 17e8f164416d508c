"""Whether OpenLineage events are as the specification wants them, by two judges.

The classes of openlineage-python are generated from the published JSON schemas: `misfits` holds an
event against their fields and types. `published_misfits` holds it against the schemas themselves,
which are not part of this project: OPENLINEAGE_SPEC names the folder `spec` of a checkout of the
OpenLineage repository, and where it is not set the test that asks is skipped.
"""

from __future__ import annotations

import json
import os
import types
import typing
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import attr
import pytest
from jsonschema import Draft202012Validator, FormatChecker
from openlineage.client import facet_v2
from openlineage.client.generated import base
from referencing import Registry, Resource

if typing.TYPE_CHECKING:
    from collections.abc import Iterator

SPEC = "OPENLINEAGE_SPEC"
_OURS = frozenset({"shardline_entry", "shardline_snapshot"})


def misfits(event: dict[str, Any]) -> Iterator[str]:
    """What is wrong with an event, by the classes."""
    yield from _against(base.RunEvent, event, "event")
    for name, facet in _facets(event):
        if name in _OURS:
            continue
        kind = _classes().get(facet["_schemaURL"])
        if kind is None:
            yield f"{name}: no class is of {facet['_schemaURL']}"
        else:
            yield from _against(kind, facet, name)


def published_misfits(event: dict[str, Any]) -> Iterator[str]:
    """What is wrong with an event, by the published schemas."""
    folder = os.environ.get(SPEC)
    if not folder:
        pytest.skip(f"{SPEC} does not name a checkout of the OpenLineage specification")
    yield from _by_schema(folder, event["schemaURL"], event, "event")
    for name, facet in _facets(event):
        yield from _by_schema(folder, facet["_schemaURL"], facet, name)


def _facets(event: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    for holder in holders:
        for kind in ("facets", "inputFacets", "outputFacets"):
            yield from holder.get(kind, {}).items()


@cache
def _classes() -> dict[str, type]:
    modules = [getattr(facet_v2, name) for name in facet_v2.__all__]
    found = [
        one
        for module in modules
        if isinstance(module, types.ModuleType)
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, base.BaseFacet)
    ]
    return {one._get_schema(): one for one in found}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _against(kind: type, told: Any, where: str) -> Iterator[str]:  # noqa: ANN401 - from JSON
    """What of an object does not fit a class; its facets are looked at apart."""
    if not isinstance(told, dict):
        yield f"{where} is no object"
        return
    fields = {one.name: one for one in attr.fields(kind)}
    yield from (f"{where} has an unknown {name}" for name in told.keys() - fields.keys())
    for name, field in fields.items():
        if name not in told:
            if field.default is attr.NOTHING:
                yield f"{where} has no {name}"
        elif not name.lower().endswith("facets"):
            yield from _fits(_hints(kind)[name], told[name], f"{where}.{name}")


def _fits(hint: Any, value: Any, where: str) -> Iterator[str]:  # noqa: ANN401 - types and JSON
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (only,) = [one for one in inner if one is not type(None)]
        yield from _fits(only, value, where)
    elif origin in (list, dict):
        parts = enumerate(value) if origin is list else value.items()
        for place, one in parts:
            yield from _fits(inner[-1], one, f"{where}[{place!r}]")
    elif isinstance(hint, type) and attr.has(hint):
        yield from _against(hint, value, where)
    elif not _is_of(hint, value):
        yield f"{where} is {value!r}, not of {hint}"


def _is_of(hint: Any, value: Any) -> bool:  # noqa: ANN401 - types and JSON
    if isinstance(hint, type) and issubclass(hint, Enum):
        return value in [one.value for one in hint]
    return hint is Any or type(value) is hint


@cache
def _registry(folder: str) -> Registry[Any]:
    files = [Path(folder, "OpenLineage.json"), *sorted(Path(folder, "facets").glob("*.json"))]
    schemas = [json.loads(file.read_text()) for file in files]
    return Registry().with_resources(
        [(schema["$id"], Resource.from_contents(schema)) for schema in schemas]
    )


def _by_schema(folder: str, url: str, told: dict[str, Any], where: str) -> Iterator[str]:
    validator = Draft202012Validator(
        {"$ref": url}, registry=_registry(folder), format_checker=FormatChecker()
    )
    yield from (f"{where}: {error.message}" for error in validator.iter_errors(told))
