"""Makers of fields for the command, in a file as a user would write it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.tfrecord.samples import made

if TYPE_CHECKING:
    from pathlib import Path

_TEXT = b"""
import sys
import pyarrow.compute as pc
from shardline import Feature, batch_udf, record_udf

@batch_udf(Feature("double", "int64"), reads=["x"], code="1")
def double(batch):
    return {"double": pc.multiply(batch["x"], 2)}

@record_udf(Feature("half", "float"), reads=["x"])
def half(record):
    return {"half": record["x"] / 2}

@record_udf(Feature("inverse", "float", required=False), reads=["x"], code="1")
def inverse(record):
    return {"inverse": 1 / record["x"]}

@record_udf(Feature("x", "float"), reads=["x"], code="1")
def x(record):
    return {"x": record["x"] + 0.5}

@record_udf(Feature("gone", "float"), reads=["x"], code="1")
def leaves(record):
    sys.exit(0)

@batch_udf(Feature("first", "int64"), reads=["x"], code="1")
def first(batch):
    return {"first": batch["x"][:1]}

def plain(record):
    return {}

both = [double, half]
nothing = []
mixed = [double, 7]
"""


def write_makers(folder: Path, name: str = "makers.py") -> Path:
    """The file, in a folder."""
    return made(folder / name, _TEXT)
