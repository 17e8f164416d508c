"""What each reader should make of a record's content, told in plain nested lists.

Nothing here asks the code under test: content is cut by shapes and read by NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import tensorflow as tf

from shardline.schema.schema import Array, Category, Text
from tests.log.schemas import size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.schema.schema import Feature, Schema, Shape
    from tests.log.schemas import Content


def nested(values: list[Any], shape: Shape) -> Any:  # noqa: ANN401 - nested lists
    """The values cut by a shape."""
    if not shape:
        return values[0]
    step = size(shape[1:])
    return [nested(values[at : at + step], shape[1:]) for at in range(0, len(values), step)]


def lists_of(feature: Feature, content: Content) -> list[list[Any]] | None:
    """The lists that a record has of a feature: one, or one for each step; None if it has none."""
    if feature.sequence:
        return content.lists[feature.name][1] if feature.name in content.lists else None
    return [content.context[feature.name][1]] if feature.name in content.context else None


def as_array(meaning: Array, value: bytes) -> Any:  # noqa: ANN401 - nested lists
    """The numbers of a raw array."""
    dtype = ml_dtypes.bfloat16 if meaning.dtype == "bfloat16" else np.dtype(meaning.dtype)
    flat = np.frombuffer(value, dtype)
    if meaning.dtype == "bool":
        flat = np.frombuffer(value, np.uint8) != 0
    return flat.reshape([-1 if length is None else length for length in meaning.shape]).tolist()


def in_tensorflow(feature: Feature, content: Content) -> Any:  # noqa: ANN401 - nested lists
    """The feature in a parsed record: what is missing is empty."""
    lists = lists_of(feature, content) or []
    meaning = feature.meaning
    if isinstance(meaning, Array):
        lists = [[as_array(meaning, value) for value in values] for values in lists]
    if feature.sequence:
        return [nested(values, feature.shape) for values in lists]
    if feature.required and None not in feature.shape:
        return nested(lists[0], feature.shape)
    return nested(lists[0], (None, *feature.shape[1:])) if lists else []


def in_arrow(feature: Feature, content: Content) -> Any:  # noqa: ANN401 - nested lists
    """The feature in a record batch: what is missing is None, and text is text."""
    lists = lists_of(feature, content)
    if lists is None:
        return None
    if feature.kind == "bytes" and isinstance(feature.meaning, Text | Category):
        lists = [[value.decode() for value in values] for values in lists]
    cut = [nested(values, feature.shape) for values in lists]
    return cut if feature.sequence else cut[0]


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever readers give
    """Tensors, arrays and cells as nested lists; floats by what they show, so that NaN is NaN."""
    if isinstance(value, tf.RaggedTensor):
        return plain(value.to_list())
    if isinstance(value, tf.Tensor):
        return plain(value.numpy())
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return repr(value) if isinstance(value, float) else value


def expected_of(
    schema: Schema,
    contents: Iterable[Content],
    form: Any,  # noqa: ANN401 - one of the above
) -> list[dict[tuple[bool, str], Any]]:
    """What a reader should give for each record, by the keys of the features."""
    return [
        {feature.key: plain(form(feature, content)) for feature in schema.features}
        for content in contents
    ]
