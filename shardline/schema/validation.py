"""Validation of records against a schema, at kernel speed if they conform.

The facts of a whole block show if all its records conform. If not, the block is halved until the
violations are found. Properties that facts cannot show, such as the labels that occur, are checked
on the decoded values of those features only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline import kernel
from shardline.errors import ExampleError
from shardline.kernel.columns import to_arrow
from shardline.kernel.types import Column
from shardline.schema import shapes
from shardline.schema.logical_types import SIGNATURES, Array, Category, Image, Text
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from shardline.kernel.types import ColumnBuffers, FeatureFacts
    from shardline.schema.logical_types import LogicalType
    from shardline.schema.schema import Feature, Schema
    from shardline.tfrecord.record_block import RecordBlock

FeatureKey: TypeAlias = tuple[bool, str]


@dataclass(frozen=True, slots=True)
class Violation:
    """Record that does not fit the schema, and why. `record` is its number in the file.

    `feature` is None if the payload is not an Example.
    """

    record: int
    feature: str | None
    detail: str


def find_violations(
    schema: Schema,
    block: RecordBlock,
    *,
    below: Collection[FeatureKey] = (),
    limit: int | None = None,
) -> Iterator[Violation]:
    """Yield the violations in a block, in order, with one reason per feature.

    The block must not change until the last violation, or `limit` of them, have been consumed.
    `below` has the keys of features that records of an overlay must leave to its base.
    """
    return islice(_find_violations(schema, block, below), limit)


def _find_violations(
    schema: Schema, block: RecordBlock, below: Collection[FeatureKey]
) -> Iterator[Violation]:
    if schema.payload == "opaque":
        return
    known = {feature.key for feature in schema.features}
    left = [(0, len(block.starts), list(schema.features))]
    while left:
        first, last, suspects = left.pop()
        starts, lengths = block.starts[first:last], block.lengths[first:last]
        try:
            facts = kernel.facts(block.data, starts, lengths)
        except ExampleError as error:
            bad = first + error.record
            if bad > first:
                left += [(bad, last, suspects), (first, bad, suspects)]
                continue
            # In halves: the kernel checks all spans first, which would add up if all records were
            # bad.
            middle = (bad + 1 + last) // 2
            left += [(middle, last, suspects), (bad + 1, middle, suspects)]
            detail = f"{error.detail}, at byte {error.offset} of the payload"
            yield Violation(block.record + bad, error.feature, detail)
            continue
        verdict = _check_facts(known, suspects, facts, last - first)
        for key in verdict.misfits.keys() & below:
            verdict.misfits[key] = "is in its base too, and must not be in both"
        if verdict.misfits and last - first > 1:
            # A feature that fits all these records is not checked again in parts of them.
            suspects = [f for f in suspects if f.key in verdict.misfits or f in verdict.undecided]
            middle = (first + last) // 2
            left += [(middle, last, suspects), (first, middle, suspects)]
            continue
        bad_records = [(0, key, detail) for key, detail in verdict.misfits.items()]
        if verdict.undecided:
            columns = [_column(feature) for feature in verdict.undecided]
            decoded = kernel.decode(block.data, starts, lengths, columns)
            for feature, buffers in zip(verdict.undecided, decoded, strict=True):
                bad_records += [
                    (record, feature.key, detail)
                    for record, detail in _bad_records(feature, buffers)
                ]
        for record, (_, name), detail in sorted(bad_records):
            yield Violation(block.record + first + record, name, detail)


def _column(feature: Feature) -> Column:
    return Column(feature.name, feature.kind, "ragged" if feature.sequence else "variable")


@dataclass(slots=True)
class _Verdict:
    """Result of checking facts: features that do not fit, and features left undecided."""

    misfits: dict[FeatureKey, str] = field(default_factory=dict)
    undecided: list[Feature] = field(default_factory=list)


def _check_facts(
    known: set[FeatureKey], suspects: list[Feature], facts: list[FeatureFacts], records: int
) -> _Verdict:
    verdict = _Verdict()
    by_key: dict[FeatureKey, list[FeatureFacts]] = {}
    for fact in facts:
        key = (fact.sequence, fact.name)
        by_key.setdefault(key, []).append(fact)
        if key not in known:
            side = "in the feature_lists, " if fact.sequence else ""
            verdict.misfits[key] = f"{side}not in the schema"
    for feature in suspects:
        own_facts = by_key.get(feature.key, [])
        if len(own_facts) == 1 and _is_plain_fit(feature, own_facts[0], records):
            continue
        misfit = _find_mismatch(feature, own_facts, records)
        if misfit is not None:
            verdict.misfits[feature.key] = misfit
        elif any(_undecided(feature, fact) for fact in own_facts):
            verdict.undecided.append(feature)
    return verdict


def _is_plain_fit(feature: Feature, fact: FeatureFacts, records: int) -> bool:
    """Return True if a feature with a single value in each record certainly fits.

    Most features of most schemas are of this form, and wide records have many of them.
    """
    meaning = feature.meaning
    return (
        fact.kind == feature.kind
        and fact.present == records
        and not feature.shape
        and fact.lengths == (1, 1)
        and (not fact.nans or feature.nan)
        and (meaning is None or (fact.utf8 and type(meaning) is Text))
    )


def _find_mismatch(feature: Feature, facts: list[FeatureFacts], records: int) -> str | None:
    """Return why a feature certainly does not fit. The text also applies to one record."""
    if feature.required and sum(fact.present for fact in facts) < records:
        return "is missing, and is required"
    for fact in facts:
        if fact.kind not in {feature.kind, None}:
            return f"holds {fact.kind} values, not {feature.kind}"
    return next(filter(None, (_misfit_of_values(feature, fact) for fact in facts)), None)


def _misfit_of_values(feature: Feature, fact: FeatureFacts) -> str | None:
    for count in fact.lengths or ():  # the smallest and the largest, which both occur
        if not shapes.holds(feature.shape, count):
            return _wrong_count(feature, count)
    if fact.nans and not feature.nan:
        return "holds NaN"
    return _misfit_of_meaning(feature.meaning, fact)


def _misfit_of_meaning(meaning: LogicalType | None, fact: FeatureFacts) -> str | None:
    if isinstance(meaning, Text | Category) and not fact.utf8:
        return "holds bytes that are not UTF-8 text"
    if isinstance(meaning, Category) and meaning.labels is not None:
        for number in (fact.low, fact.high):
            if number is not None and not 0 <= number < len(meaning.labels):
                return f"holds a number outside of 0 to {len(meaning.labels) - 1}, its labels"
    if isinstance(meaning, Array):
        for size in fact.sizes or ():
            if not meaning.holds(size):
                return _wrong_size(meaning, size)
    return None


def _wrong_count(feature: Feature, count: int) -> str:
    expected = shapes.unit(feature.shape)
    multiple = "" if shapes.is_fixed(feature.shape) else "a multiple of "
    step = " in a step" if feature.sequence else ""
    return f"holds {format_count(count, 'value')}{step}, not {multiple}{expected}"


def _wrong_size(meaning: Array, size: int) -> str:
    return f"holds {format_count(size, 'byte')}, and {meaning} takes {meaning.size_shown}"


def _undecided(feature: Feature, fact: FeatureFacts) -> bool:
    """Return True if values between the extremes may not fit, although the extremes do."""
    meaning = feature.meaning
    if fact.sizes is not None and (
        isinstance(meaning, Image)
        or (isinstance(meaning, Category) and meaning.labels is not None)
        or (isinstance(meaning, Array) and fact.sizes[0] < fact.sizes[1] and meaning.unit_bytes > 1)
    ):
        return True
    return (
        fact.lengths is not None
        and fact.lengths[0] < fact.lengths[1]
        and shapes.unit(feature.shape) > 1
    )


def _bad_records(feature: Feature, buffers: ColumnBuffers) -> Iterator[tuple[int, str]]:
    """Yield the positions of records with values that do not fit, and the first reason."""
    lists = buffers.rows if buffers.steps is None else buffers.steps
    counts = np.diff(lists)
    wrong_lists = counts % shapes.unit(feature.shape) != 0
    details = {
        owner: _wrong_count(feature, int(counts[index]))
        for index, owner in _owners(buffers, wrong_lists, of_values=False)
    }
    for index, owner in _owners(buffers, _wrong_values(feature, buffers), of_values=True):
        details.setdefault(owner, _wrong_value(feature, buffers, index))
    yield from details.items()


def _owners(
    buffers: ColumnBuffers, wrong: NDArray[np.bool_], *, of_values: bool
) -> Iterator[tuple[int, int]]:
    """Yield the position of the first wrong value or list of each record, and the record."""
    indices = np.flatnonzero(wrong)
    owners = indices
    if of_values and buffers.steps is not None:
        owners = np.searchsorted(buffers.steps, owners, "right") - 1
    if of_values or buffers.steps is not None:
        owners = np.searchsorted(buffers.rows, owners, "right") - 1
    each, firsts = np.unique(owners, return_index=True)
    yield from zip(indices[firsts].tolist(), each.tolist(), strict=True)


def _wrong_values(feature: Feature, buffers: ColumnBuffers) -> NDArray[np.bool_]:
    """Mark the values that contradict the feature's logical type."""
    meaning = feature.meaning
    if buffers.sizes is None:
        return np.zeros(0, np.bool_)
    if isinstance(meaning, Array):
        wrong: NDArray[np.bool_] = np.diff(buffers.sizes) % meaning.unit_bytes != 0
        return wrong
    values = to_arrow(buffers).values if buffers.steps is None else to_arrow(buffers).values.values
    if isinstance(meaning, Image):
        fits = pc.starts_with(values, pattern=SIGNATURES[meaning.encoding])
    elif isinstance(meaning, Category) and meaning.labels is not None:
        known = pa.array([label.encode() for label in meaning.labels], pa.binary())
        fits = pc.is_in(values, value_set=known)
    else:
        return np.zeros(0, np.bool_)
    return ~np.asarray(fits)


def _wrong_value(feature: Feature, buffers: ColumnBuffers, index: int) -> str:
    meaning = feature.meaning
    if isinstance(meaning, Array) and buffers.sizes is not None:
        return _wrong_size(meaning, int(buffers.sizes[index + 1] - buffers.sizes[index]))
    if isinstance(meaning, Image):
        return f"holds bytes that do not begin as a {meaning.encoding} file does"
    return "holds a text that is none of its labels"
