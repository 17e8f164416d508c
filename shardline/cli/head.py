"""`shardline head`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.options import expand_one, json_option, limit_options, limits
from shardline.cli.wording import counted, escaped, human_bytes

if TYPE_CHECKING:
    from shardline.operations.preview import Record


@click.command(
    epilog="""\b
Examples:
  shardline head train.tfrecord
  shardline head train.tfrecord -n 1 --skip 100000
  shardline head train.tfrecord --json | jq .features.label""",
)
@click.argument("file", metavar="FILE")
@click.option(
    "-n", "count", type=click.IntRange(min=0), default=5, show_default=True, help="How many."
)
@click.option(
    "--skip",
    type=click.IntRange(min=0),
    default=0,
    help="Begin at this record; at once if the file has an index (see 'shardline index').",
)
@limit_options
@json_option
def head(
    file: str, *, count: int, skip: int, max_record: int, max_unpacked: int, as_json: bool
) -> None:
    """Show the first records of a file.

    Features are shown with their kind and first values; long bytes as their size and what they
    seem to be. A record that is no Example is shown as text, or as its size. With --json each
    record is one line.
    """
    from shardline.operations.preview import preview

    path = expand_one(file)
    shown = 0
    for record in preview(path, count=count, skip=skip, limits=limits(max_record, max_unpacked)):
        click.echo(json.dumps(_as_dict(record)) if as_json else _as_text(record))
        shown += 1
    if not shown and count and not as_json:
        behind = f" behind the first {skip:,}" if skip else ""
        click.echo(f"{path}: no records{behind}")


def _as_dict(record: Record) -> dict[str, Any]:
    told: dict[str, Any] = {
        "record": record.number,
        "bytes": record.bytes,
        "form": record.form,
    }
    for key in ("features", "feature_lists", "payload"):
        value = getattr(record, key)
        if value is not None:
            told[key] = value
    return told


def _as_text(record: Record) -> str:
    lines = [f"record {record.number}: {record.form}, {human_bytes(record.bytes)}"]
    if record.payload is not None:
        return "\n".join([*lines, f"  {escaped(record.payload)}"])
    features = list((record.features or {}).items())
    feature_lists = list((record.feature_lists or {}).items())
    width = max((len(escaped(name)) for name, _ in features + feature_lists), default=0)
    lines += [f"  {escaped(name):{width}}  {_kind(one):9} {_values(one)}" for name, one in features]
    for name, one in feature_lists:
        steps = counted(one["steps"], "step")
        shown = " | ".join(" ".join(map(_value, values)) for values in one["values"])
        more = " | …" if one["steps"] > len(one["values"]) else ""
        kind = one["kind"] or "empty"
        lines.append(f"  {escaped(name):{width}}  {kind:9} {steps}: {shown}{more}")
    return "\n".join(lines)


def _kind(one: dict[str, Any]) -> str:
    return str(one["kind"]) if one["length"] == 1 else f"{one['kind']}[{one['length']}]"


def _values(one: dict[str, Any]) -> str:
    more = " …" if one["length"] > len(one["values"]) else ""
    return " ".join(map(_value, one["values"])) + more


def _value(value: float | str) -> str:
    if isinstance(value, str) and not value.startswith("<"):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
