"""Parameters of entries: what is known of them is read, whatever else others write."""

from __future__ import annotations

import dataclasses
import json
from inspect import isclass
from pathlib import Path
from typing import Any

import pytest

from shardline.codec import OpenJsonObject
from shardline.log import parameters

GOLDEN = Path(__file__).parent.parent / "golden" / "0.1.0" / "root"
KINDS: dict[str, type[OpenJsonObject]] = {
    "append": parameters.AppendParameters,
    "rebuild": parameters.RebuildParameters,
    "extend": parameters.ExtendParameters,
    "migrate": parameters.MigrateParameters,
    "combine": parameters.CombineParameters,
    "erase": parameters.EraseParameters,
    "repair": parameters.RepairParameters,
    "reject": parameters.RejectParameters,
    "dismiss": parameters.DismissParameters,
    "vacuum": parameters.VacuumParameters,
    "consume": parameters.ConsumerParameters,
    "release": parameters.ConsumerParameters,
}
CLASSES = [
    kind
    for kind in vars(parameters).values()
    if isclass(kind) and issubclass(kind, OpenJsonObject) and kind is not OpenJsonObject
]


def test_parameters_of_old_release_round_trip() -> None:
    operations = set()
    for path in GOLDEN.glob("*/*/log/0*.json"):
        entry = json.loads(path.read_bytes())
        kind = KINDS.get(entry["operation"])
        stored = entry.get("parameters", {})
        if kind is None:
            assert stored == {}, entry["operation"]
            continue
        decoded = kind.from_dict(stored)
        assert decoded.problems == {}
        assert decoded.to_dict() == stored
        operations.add(entry["operation"])
    assert len(operations) >= 8


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("value", [7, "x", [7], [{}], {"a": 1}, None, [[]]])
def test_malformed_parameters_have_defaults(kind: type[Any], value: object) -> None:
    names = [field.name for field in dataclasses.fields(kind) if field.name != "problems"]
    keys = {*names, *kind.from_dict({}).problems, "unknown"}
    decoded = kind.from_dict(dict.fromkeys(keys, value))
    assert decoded.problems.keys() <= keys | {"of", "by", "fields", "found", "how", "source"}
    for field in dataclasses.fields(kind):
        default = getattr(kind.from_dict({}), field.name)
        assert isinstance(getattr(decoded, field.name), type(default) if default else object)


def test_validated_raises_for_missing_key() -> None:
    with pytest.raises(ValueError, match="missing 'shard'"):
        parameters.RepairParameters.from_dict({"how": "source", "lost_records": 0}).validated()


def test_invalid_items_of_list_are_left_out() -> None:
    rows = {"rows": 2, "files": ["a"]}
    decoded = parameters.EntryParameters.from_dict({"quarantine": [7, rows, {"rows": "x"}]})
    assert [item.rows for item in decoded.quarantine] == [2, 0]
    assert set(decoded.problems) == {"quarantine"}
