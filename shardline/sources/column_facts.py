"""What the values of a column say about its feature, without writing records of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.kernel.types import FeatureFacts

if TYPE_CHECKING:
    from shardline.schema.schema import Feature


def column_facts(feature: Feature, array: pa.Array) -> FeatureFacts | None:
    """Return the facts of a column that is fitted to its feature; None if it has no value.

    They are those of the records that the column becomes, without ranges of values and of sizes.
    `utf8` is only right for features that mean text: other bytes are not looked at.
    """
    present = len(array) - array.null_count
    if not present:
        return None
    values, lengths = array, (1, 1)
    if pa.types.is_list(array.type):
        values = array.flatten()  # of the rows that are there
        counts = np.diff(np.asarray(array.offsets))
        if array.null_count:
            counts = counts[np.asarray(array.is_valid())]
        lengths = (int(counts.min()), int(counts.max()))
    return FeatureFacts(
        name=feature.name,
        sequence=False,
        kind=feature.kind,
        present=present,
        steps=None,
        lengths=lengths,
        low=None,
        high=None,
        nans=_nans(values) if feature.kind == "float" else 0,
        sizes=None,
        utf8=feature.kind != "bytes" or (feature.meaning is not None and _is_utf8(values)),
    )


def _nans(values: pa.Array) -> int:
    return int(pc.sum(pc.is_nan(values)).as_py() or 0)


def _is_utf8(values: pa.Array) -> bool:
    try:
        values.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
