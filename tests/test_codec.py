"""Properties of the JSON form of everything that is stored."""

from __future__ import annotations

import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline import canonical_json as canonical
from shardline import codec
from shardline.log.entry import Entry
from shardline.log.model import (
    Added,
    Attestation,
    Checks,
    CommitInfo,
    Input,
    Ref,
    Shard,
    Source,
    Totals,
)
from shardline.log.parameters import Dismissal
from shardline.operations.export import ExportRecord
from shardline.pairing.pair_plan import PairPlan
from shardline.schema.schema import Schema
from shardline.sidecars.receipt import Receipt
from tests.sampling import drawn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import DataObject, SearchStrategy

    from shardline.codec import JsonObject

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
COUNTS = st.integers(0, 2**62)
POSITIVES = st.integers(1, 2**62)
HEX = st.integers(0, 2**256 - 1).map(lambda number: f"{number:064x}")
NAMES = st.builds(
    "v{}.{:032x}.{}".format, st.integers(1, 9), st.integers(0, 2**128 - 1),
    st.sampled_from(["tfrecord", "plan"]),
)  # fmt: skip
MILLENNIUM = datetime(2000, 1, 1)  # noqa: DTZ001 - the strategy adds no zone
SPANS = st.tuples(COUNTS, COUNTS).map(sorted)


Strategy: TypeAlias = "SearchStrategy[Any]"


def objects(required: dict[str, Strategy], optional: dict[str, Strategy] | None = None) -> Strategy:
    """JSON objects with these keys."""
    build: Any = st.fixed_dictionaries
    return build(required, optional=optional)  # type: ignore[no-any-return]


BASES = objects({"name": NAMES, "sha256": HEX})
_SHARD = {
    "name": NAMES,
    "records": COUNTS,
    "bytes": COUNTS,
    "sha256": HEX,
    "compression": st.sampled_from(["none", "gzip", "zlib"]),
}
SHARDS = objects(_SHARD, {"source": HEX, "base": BASES})
ADDED = objects(_SHARD, {"source": HEX, "base": BASES, "at": COUNTS})
SOURCES = objects({"path": TEXTS, "size": COUNTS, "sha256": HEX}) | objects({"batch": TEXTS})
INPUTS = objects({"dataset": TEXTS, "version": TEXTS, "snapshot": POSITIVES, "entry": HEX})
ATTESTATIONS = objects(
    {"check": TEXTS, "passed": st.booleans(), "content": HEX}, {"detail": TEXTS}
) | objects(
    {"check": TEXTS, "passed": st.booleans(), "shards": st.lists(NAMES, min_size=1)},
    {"detail": TEXTS},
)
CHECKS = objects({"shard": st.lists(TEXTS), "snapshot": st.lists(TEXTS)})
REFS = objects({"name": TEXTS, "snapshot": st.none() | POSITIVES}, {"reason": TEXTS})
TOTALS = objects({"records": COUNTS, "bytes": COUNTS, "shards": COUNTS})
COMMIT_INFOS = objects(
    {"release": TEXTS.filter(bool)}, {"host": TEXTS, "run": TEXTS, "code": TEXTS}
)
DISMISSALS = objects({"source": SOURCES, "entry": POSITIVES})
SHAPES = st.lists(st.integers(1, 9), max_size=3)
MEANINGS = {
    "bytes": st.sampled_from(["text", "category"]).map(lambda name: {"is": name})
    | objects({"is": st.just("category"), "labels": st.lists(TEXTS, min_size=1, unique=True)})
    | objects({"is": st.just("image"), "encoding": st.sampled_from(["png", "jpeg"])})
    | objects(
        {"is": st.just("array"), "dtype": st.sampled_from(["int8", "float64"]), "shape": SHAPES}
    ),
    "int64": st.just({"is": "category"}),
}
FEATURES = st.one_of(
    *(
        objects(
            {"name": TEXTS, "kind": st.just(kind)},
            {
                "shape": SHAPES,
                "required": st.booleans(),
                "sequence": st.booleans(),
                "doc": TEXTS,
                **({"meaning": MEANINGS[kind]} if kind in MEANINGS else {"nan": st.booleans()}),
            },
        )
        for kind in ("bytes", "int64", "float")
    )
)
SCHEMAS = objects(
    {
        "payload": st.just("sequence_example"),
        "features": st.lists(FEATURES, max_size=3, unique_by=lambda one: one["name"]),
    },
    {"doc": TEXTS},
)
RECEIPTS = objects(
    {
        "format": st.just(1),
        "rows": SPANS,
        "last": st.booleans(),
        "shard": st.none() | SHARDS,
        "refused": st.lists(SPANS, max_size=3),
        "damaged": COUNTS,
        "quarantine": st.none() | TEXTS,
        "told": st.lists(TEXTS, max_size=2),
    },
    {"functions": st.lists(HEX, max_size=2)},
)
NAMINGS = objects({"on_collision": st.sampled_from(["refuse", "keep-left"])}) | objects(
    {"on_collision": st.just("prefix"), "left_prefix": TEXTS.filter(bool)},
    {"right_prefix": TEXTS},
)
PLANS = objects(
    {
        "format": st.just(1),
        "left": INPUTS,
        "right": INPUTS,
        "cover": st.lists(COUNTS, min_size=4, max_size=4)
        | st.lists(COUNTS, min_size=6, max_size=6),
        "naming": NAMINGS,
        "once": st.booleans(),
        "pairs": COUNTS,
    }
)
EXPORTS = objects(
    {
        **dict.fromkeys(("version", "content", "compression", "sha256"), TEXTS),
        **dict.fromkeys(("snapshot", "records", "bytes", "modified"), COUNTS),
    }
)
SIDECARS = st.dictionaries(
    NAMES.filter(lambda name: name.endswith("d")).map(lambda name: f"{name}.receipt"),
    HEX,
    max_size=2,
)
ENTRIES = objects(
    {
        "format": st.just(1),
        "dataset": TEXTS,
        "version": TEXTS,
        "number": POSITIVES,
        "id": TEXTS,
        "previous": st.none() | HEX,
        "time": st.datetimes(MILLENNIUM).map(
            lambda time: f"{time.isoformat(timespec='microseconds')}Z"
        ),
        "by": COMMIT_INFOS,
        "operation": st.sampled_from(["create", "append", "reject", "sing"]),
        "fingerprint": st.none() | HEX,
        "snapshot": COUNTS,
        "published": st.none() | POSITIVES,
        "totals": TOTALS,
        "content": st.none() | HEX,
    },
    {
        "parameters": st.dictionaries(TEXTS, COUNTS | TEXTS, max_size=2),
        "inputs": st.lists(INPUTS, max_size=2),
        "schema": SCHEMAS,
        "checks": CHECKS,
        "added": st.lists(ADDED, max_size=3),
        "removed": st.lists(NAMES, max_size=2),
        "sources": st.lists(SOURCES, max_size=2),
        "attestations": st.lists(ATTESTATIONS, max_size=2),
        "rejects": POSITIVES,
        "restores": POSITIVES,
        "tag": REFS,
        "pin": REFS,
        "condemned": st.lists(NAMES, max_size=2),
        "sidecars": SIDECARS,
    },
)
STORED: list[tuple[type[JsonObject], Strategy]] = [
    (Shard, SHARDS),
    (Added, ADDED),
    (Source, SOURCES),
    (Input, INPUTS),
    (Attestation, ATTESTATIONS),
    (Checks, CHECKS),
    (Ref, REFS),
    (Totals, TOTALS),
    (CommitInfo, COMMIT_INFOS),
    (Dismissal, DISMISSALS),
    (Schema, SCHEMAS),
    (Receipt, RECEIPTS),
    (PairPlan, PLANS),
    (ExportRecord, EXPORTS),
    (Entry, ENTRIES),
]
IDS = [cls.__name__ for cls, _ in STORED]
OTHERS = [None, True, 0, -1, 2**40, 1.5, "", "x", "0" * 64, [], [1], ["x"], {}, {"x": 1}]


def mutate(draw: DataObject, payload: dict[str, Any]) -> dict[str, Any]:
    """Change, remove or add something, anywhere in a JSON object."""
    payload = copy.deepcopy(payload)
    places = list(iter_places(payload))
    container, key = draw.draw(st.sampled_from(places))
    action = draw.draw(st.sampled_from(["set", "remove", "add"]))
    if action == "set":
        container[key] = draw.draw(st.sampled_from(OTHERS))
    elif action == "remove":
        del container[key]
    elif isinstance(container, dict):
        container[draw.draw(st.sampled_from(["zzz", "at", "path", "shard"]))] = 1
    else:
        container.append(1)
    return payload


def iter_places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - any JSON value
    """List containers with their keys or positions, the outer first."""
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        for key in keys:
            yield value, key
            yield from iter_places(value[key])


def check_round_trip(cls: type[JsonObject], payload: dict[str, Any]) -> None:
    """Decode and encode; what was written must say the same, byte for byte."""
    value = codec.decode(cls, payload)
    written = codec.encode(value)
    assert codec.decode(cls, written) == value
    again = codec.encode(codec.decode(cls, written))
    assert canonical.encode(again) == canonical.encode(written)


@pytest.mark.parametrize(("cls", "payloads"), STORED, ids=IDS)
@settings(max_examples=drawn(20))
@given(draw=st.data())
def test_json_objects_round_trip(
    cls: type[JsonObject], payloads: Strategy, draw: DataObject
) -> None:
    check_round_trip(cls, draw.draw(payloads))


@pytest.mark.parametrize(("cls", "payloads"), STORED, ids=IDS)
@settings(max_examples=drawn(30))
@given(draw=st.data())
def test_changed_json_is_rejected_or_round_trips(
    cls: type[JsonObject], payloads: Strategy, draw: DataObject
) -> None:
    payload = mutate(draw, draw.draw(payloads))
    try:
        cls.from_dict(payload)
    except ValueError:
        return
    if all(type(one) is not float for container, key in iter_places(payload)
           for one in [container[key]]):  # fmt: skip
        check_round_trip(cls, payload)


@pytest.mark.parametrize(("cls", "payloads"), STORED, ids=IDS)
@settings(max_examples=drawn(10))
@given(draw=st.data())
def test_unknown_missing_and_mistyped_keys_are_named(
    cls: type[JsonObject], payloads: Strategy, draw: DataObject
) -> None:
    payload = draw.draw(payloads)
    with pytest.raises(ValueError, match="unknown key 'zzz'"):
        cls.from_dict({**payload, "zzz": 1})
    key = draw.draw(st.sampled_from(sorted(payload)))
    with pytest.raises(ValueError, match=f"'{key}'"):
        cls.from_dict({**payload, key: 1.5})
    without = {name: payload[name] for name in payload if name != key}
    written = codec.encode(codec.decode(cls, payload))
    if written.get(key) and cls not in {Source, Attestation}:
        try:
            assert not codec.encode(codec.decode(cls, without)).get(key)
        except ValueError as error:
            if f"missing '{key}'" not in str(error):
                raise


@pytest.mark.parametrize("payload", [None, [], "x", 5, True])
def test_other_json_than_an_object_is_rejected(payload: object) -> None:
    for cls, _ in STORED:
        with pytest.raises(ValueError, match=r"expected a JSON object"):
            cls.from_dict(payload)
