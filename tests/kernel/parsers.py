"""What protobuf and each of TensorFlow's parsers read from a payload, in one comparable form.

TensorFlow must only be given payloads that the validator has accepted: some others end the
process. Its calls are slow, so payloads that can share a feature spec are parsed together.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from shardline.kernel.types import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

Items = list[bytes] | list[int]
"""The values of a list; floats by their bits."""
Feature = tuple[Kind, Items]
_DTYPES = {"bytes": tf.string, "float": tf.float32, "int64": tf.int64}
_DEFAULTS: dict[str, Any] = {"bytes": b"-", "float": 7.0, "int64": 7}
_MOST_NAMES = 40


@dataclass(frozen=True, slots=True)
class Content:
    """What a payload says. The names in `unset` are there without a kind: they say nothing."""

    context: dict[str, Feature]
    lists: dict[str, list[Feature]]
    unset: frozenset[str] = field(default=frozenset(), compare=False)


def comparable(values: Any) -> Items:  # noqa: ANN401 - whatever the parsers give
    """Values as Python's, floats as bits. Reading a signalling NaN may make it a quiet one."""
    array = np.asarray(values).reshape(-1)
    if array.dtype == np.float32:
        bits: NDArray[np.uint32] = array.view(np.uint32)
        return [int(b) for b in np.where(np.isnan(array), bits | 0x00400000, bits)]
    return list(array.tolist())


def _read(feature: Any) -> Feature | None:  # noqa: ANN401 - a protobuf message
    which = feature.WhichOneof("kind")
    if which is None:
        return None
    kind: Kind = which.removesuffix("_list")
    values = getattr(feature, which).value
    return kind, comparable(np.array(values, np.float32)) if kind == "float" else list(values)


def read_by_protobuf(payload: bytes) -> Content:
    """The content that protobuf finds. Raises what it raises, ValueError for an unset step."""
    message = tf.train.SequenceExample.FromString(payload)
    as_example = tf.train.Example.FromString(payload)
    context = {name: _read(value) for name, value in message.context.feature.items()}
    lists = {
        name: [_read(step) for step in steps.feature]
        for name, steps in message.feature_lists.feature_list.items()
    }
    if context != {name: _read(value) for name, value in as_example.features.feature.items()}:
        raise ValueError("an Example and a SequenceExample's context read differently")
    if any(None in steps for steps in lists.values()):
        raise ValueError("a step without a kind")
    unset = frozenset(name for name, feature in context.items() if feature is None)
    found = {name: feature for name, feature in context.items() if feature is not None}
    return Content(found, lists, unset)  # type: ignore[arg-type]


@dataclass(slots=True)
class Group:
    """Payloads that one feature spec fits, by their place in the list they came from."""

    context: dict[str, Any] = field(default_factory=dict)
    lists: dict[str, Any] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)

    def takes(self, context: dict[str, Any], lists: dict[str, Any]) -> bool:
        """Add the needs of a payload if they go with those of the others."""
        for mine, theirs in ((self.context, context), (self.lists, lists)):
            if any(mine.get(name) not in (None, need) for name, need in theirs.items() if need):
                return False
            if len(mine.keys() | theirs.keys()) > _MOST_NAMES:
                return False
        for mine, theirs in ((self.context, context), (self.lists, lists)):
            for name, need in theirs.items():
                mine[name] = mine.get(name) or need
        return True


def grouped(
    contents: Sequence[Content],
    need_of: Callable[[Feature], Any],
    steps_need_of: Callable[[list[Feature]], Any],
) -> list[Group]:
    """Put payloads together whose features need the same spec under the same name."""
    groups: list[Group] = []
    for place, content in enumerate(contents):
        context = {name: need_of(feature) for name, feature in content.context.items()}
        context |= dict.fromkeys(content.unset)
        lists = {name: steps_need_of(steps) for name, steps in content.lists.items()}
        if False in context.values() or False in lists.values():
            continue
        for group in groups:
            if group.takes(context, lists):
                break
        else:
            group = Group()
            if not group.takes(context, lists):
                continue
            groups.append(group)
        group.members.append(place)
    return groups


def _kind(feature: Feature) -> str:
    return feature[0]


def _steps_kind(steps: list[Feature]) -> str | None:
    return steps[0][0] if steps else None


def _any_kind(name: str) -> Kind:
    """The kind to ask for where a feature is unset in all payloads: each kind for some names."""
    kinds: tuple[Kind, ...] = ("int64", "bytes", "float")
    return kinds[len(name) % 3]


def _width(feature: Feature) -> Any:  # noqa: ANN401 - False where no fixed length will do
    return (feature[0], len(feature[1])) if feature[1] else False


def _steps_width(steps: list[Feature]) -> Any:  # noqa: ANN401 - False where none will do
    widths = {len(items) for _, items in steps}
    if not steps:
        return None
    return (steps[0][0], widths.pop()) if len(widths) == 1 and 0 not in widths else False


Complaint = tuple[str, int, str]
"""Which parser, which payload, and what it read."""


def disagreements(payloads: Sequence[bytes], contents: Sequence[Content]) -> Iterator[Complaint]:
    """Every payload that some TensorFlow parser reads otherwise than protobuf did."""
    for group in grouped(contents, _kind, _steps_kind):
        group.context = {name: need or _any_kind(name) for name, need in group.context.items()}
        mine = [payloads[i] for i in group.members]
        said = [contents[i] for i in group.members]
        for parser, check in _BY_KIND.items():
            for at, what in _complaints(check, group, mine, said):
                yield parser, group.members[at], what
    for group in grouped(contents, _width, _steps_width):
        group.context = {n: need or (_any_kind(n), 2) for n, need in group.context.items()}
        mine = [payloads[i] for i in group.members]
        said = [contents[i] for i in group.members]
        for parser, check in _BY_WIDTH.items():
            for at, what in _complaints(check, group, mine, said):
                yield parser, group.members[at], what


Check = "Callable[[Group, list[bytes], list[Content]], Iterator[tuple[int, str]]]"


def _complaints(
    check: Any,  # noqa: ANN401 - a Check
    group: Group,
    payloads: list[bytes],
    contents: list[Content],
) -> Iterator[tuple[int, str]]:
    """Run a check; where TensorFlow refuses a batch, find out which payload it refuses."""
    try:
        yield from list(check(group, payloads, contents))
    except tf.errors.OpError as error:
        if len(payloads) == 1:
            yield 0, f"refused: {type(error).__name__}"
            return
        half = len(payloads) // 2
        yield from _complaints(check, group, payloads[:half], contents[:half])
        for at, what in _complaints(check, group, payloads[half:], contents[half:]):
            yield at + half, what


def _items(feature: Feature | None) -> Items:
    return [] if feature is None else feature[1]


def _differ(read: Any, said: Any) -> Iterator[tuple[int, str]]:  # noqa: ANN401 - nested lists
    for at, (mine, theirs) in enumerate(zip(read, said, strict=True)):
        if mine != theirs:
            yield at, f"read {mine!r} where protobuf reads {theirs!r}"


def _nested(tensor: Any, depth: int) -> Any:  # noqa: ANN401 - a tensor into nested lists
    """A ragged tensor of `depth` dimensions as nested lists of comparable values."""
    if depth == 1:
        return comparable(tensor.numpy())
    inner = _nested(tensor.values, depth - 1)
    splits = tensor.row_splits.numpy().tolist()
    return [inner[a:b] for a, b in itertools.pairwise(splits)]


def _sparse(tensor: Any) -> list[tuple[list[int], Any]]:  # noqa: ANN401 - a SparseTensor
    values = comparable(tensor.values.numpy())
    return list(zip(tensor.indices.numpy().tolist(), values, strict=True))


def _sparse_rows(tensor: Any, rows: int) -> list[list[tuple[list[int], Any]]]:  # noqa: ANN401
    cut: list[list[tuple[list[int], Any]]] = [[] for _ in range(rows)]
    for (row, *rest), value in _sparse(tensor):
        cut[row].append((rest, value))
    return cut


def _rows_of(content: list[Content], name: str) -> list[Items]:
    return [_items(c.context.get(name)) for c in content]


def _steps_of(contents: list[Content], name: str) -> list[list[Items]]:
    return [[items for _, items in c.lists.get(name, [])] for c in contents]


def _indexed(items: Items) -> list[tuple[list[int], Any]]:
    return [([i], value) for i, value in enumerate(items)]


def _indexed_steps(steps: list[Items]) -> list[tuple[list[int], Any]]:
    return [([t, i], value) for t, items in enumerate(steps) for i, value in enumerate(items)]


def _specs(needs: dict[str, Any], make: Any) -> dict[str, Any]:  # noqa: ANN401 - tf.io specs
    return {name: make(_DTYPES[need or "int64"]) for name, need in needs.items()}


def _var(dtype: Any) -> Any:  # noqa: ANN401
    return tf.io.VarLenFeature(dtype)


def _ragged(dtype: Any) -> Any:  # noqa: ANN401
    return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)


def _var_batched(
    group: Group, payloads: list[bytes], contents: list[Content]
) -> Iterator[tuple[int, str]]:
    if not group.context:
        return
    parsed = tf.io.parse_example(payloads, _specs(group.context, _var))
    for name in group.context:
        said = [_indexed(items) for items in _rows_of(contents, name)]
        yield from _differ(_sparse_rows(parsed[name], len(payloads)), said)


def _ragged_batched(
    group: Group, payloads: list[bytes], contents: list[Content]
) -> Iterator[tuple[int, str]]:
    if not group.context:
        return
    parsed = tf.io.parse_example(payloads, _specs(group.context, _ragged))
    for name in group.context:
        yield from _differ(_nested(parsed[name], 2), _rows_of(contents, name))


def _padded_batched(
    group: Group, payloads: list[bytes], contents: list[Content]
) -> Iterator[tuple[int, str]]:
    """A dense tensor as long as the longest list, the others filled up with a default."""
    if not group.context:
        return
    specs = {
        name: tf.io.FixedLenSequenceFeature(
            [], _DTYPES[kind], allow_missing=True, default_value=_DEFAULTS[kind]
        )
        for name, kind in group.context.items()
    }
    parsed = tf.io.parse_example(payloads, specs)
    for name, kind in group.context.items():
        (default,) = comparable(tf.constant(_DEFAULTS[kind], _DTYPES[kind]).numpy())
        rows = _rows_of(contents, name)
        longest = max(map(len, rows))
        said = [[*items, *[default] * (longest - len(items))] for items in rows]
        yield from _differ([comparable(row) for row in parsed[name].numpy()], said)


def _one_by_one(payloads: list[bytes], parse: Any) -> Any:  # noqa: ANN401 - a tf.data pipeline
    """Parse each payload by itself, and give what came out side by side, ragged."""
    dataset = tf.data.Dataset.from_tensor_slices(payloads).map(parse)
    return next(iter(dataset.ragged_batch(len(payloads), row_splits_dtype=tf.int64)))


def _var_single(
    group: Group, payloads: list[bytes], contents: list[Content]
) -> Iterator[tuple[int, str]]:
    if not group.context:
        return
    specs = _specs(group.context, _var)

    def parse(payload: Any) -> Any:  # noqa: ANN401
        parsed = tf.io.parse_single_example(payload, specs)
        return {name: (p.values, p.indices[:, 0]) for name, p in parsed.items()}

    parsed = _one_by_one(payloads, parse)
    for name in group.context:
        values, indices = parsed[name]
        rows = _rows_of(contents, name)
        yield from _differ(_nested(values, 2), rows)
        yield from _differ(_nested(indices, 2), [list(range(len(items))) for items in rows])


def _ragged_single(
    group: Group, payloads: list[bytes], contents: list[Content]
) -> Iterator[tuple[int, str]]:
    if not group.context:
        return
    specs = _specs(group.context, _ragged)
    parsed = _one_by_one(payloads, lambda p: tf.io.parse_single_example(p, specs))
    for name in group.context:
        yield from _differ(_nested(parsed[name], 2), _rows_of(contents, name))


def _fixed_specs(group: Group) -> dict[str, Any]:
    return {
        name: tf.io.FixedLenFeature([width], _DTYPES[kind], [_DEFAULTS[kind]] * width)
        for name, (kind, width) in group.context.items()
    }


def _fixed_rows(group: Group, contents: list[Content], name: str) -> list[Items]:
    kind, width = group.context[name]
    default = comparable(tf.constant([_DEFAULTS[kind]] * width, _DTYPES[kind]).numpy())
    return [_items(c.context[name]) if name in c.context else default for c in contents]


def _fixed_batched(
    group: Group, payloads: list[bytes], contents: list[Content]
) -> Iterator[tuple[int, str]]:
    if not group.context:
        return
    parsed = tf.io.parse_example(payloads, _fixed_specs(group))
    for name in group.context:
        rows = [comparable(row) for row in parsed[name].numpy()]
        yield from _differ(rows, _fixed_rows(group, contents, name))


def _fixed_single(
    group: Group, payloads: list[bytes], contents: list[Content]
) -> Iterator[tuple[int, str]]:
    if not group.context:
        return
    specs = _fixed_specs(group)
    parsed = _one_by_one(payloads, lambda p: tf.io.parse_single_example(p, specs))
    for name in group.context:
        rows = [comparable(row) for row in parsed[name].numpy()]
        yield from _differ(rows, _fixed_rows(group, contents, name))


def _var_sequence_batched(
    group: Group, payloads: list[bytes], contents: list[Content]
) -> Iterator[tuple[int, str]]:
    if not group.context and not group.lists:
        return
    context, lists, _ = tf.io.parse_sequence_example(
        payloads, _specs(group.context, _var), _specs(group.lists, _var)
    )
    for name in group.context:
        said = [_indexed(items) for items in _rows_of(contents, name)]
        yield from _differ(_sparse_rows(context[name], len(payloads)), said)
    for name in group.lists:
        steps = [_indexed_steps(steps) for steps in _steps_of(contents, name)]
        yield from _differ(_sparse_rows(lists[name], len(payloads)), steps)


def _ragged_sequence_batched(
    group: Group, payloads: list[bytes], contents: list[Content]
) -> Iterator[tuple[int, str]]:
    if not group.context and not group.lists:
        return
    context, lists, _ = tf.io.parse_sequence_example(
        payloads, _specs(group.context, _ragged), _specs(group.lists, _ragged)
    )
    for name in group.context:
        yield from _differ(_nested(context[name], 2), _rows_of(contents, name))
    for name in group.lists:
        yield from _differ(_nested(lists[name], 3), _steps_of(contents, name))


def _var_sequence_single(
    group: Group, payloads: list[bytes], contents: list[Content]
) -> Iterator[tuple[int, str]]:
    if not group.context and not group.lists:
        return
    specs, list_specs = _specs(group.context, _var), _specs(group.lists, _var)

    def parse(payload: Any) -> Any:  # noqa: ANN401
        context, lists = tf.io.parse_single_sequence_example(payload, specs, list_specs)
        return (
            {name: p.values for name, p in context.items()},
            {name: (p.values, p.indices) for name, p in lists.items()},
        )

    context, lists = _one_by_one(payloads, parse)
    for name in group.context:
        yield from _differ(_nested(context[name], 2), _rows_of(contents, name))
    for name in group.lists:
        values, indices = lists[name]
        cut = indices.row_splits.numpy().tolist()
        pairs = indices.flat_values.numpy().tolist()
        read = [
            list(zip(pairs[a:b], items, strict=True))
            for a, b, items in zip(cut, cut[1:], _nested(values, 2), strict=False)
        ]
        yield from _differ(read, [_indexed_steps(s) for s in _steps_of(contents, name)])


def _ragged_sequence_single(
    group: Group, payloads: list[bytes], contents: list[Content]
) -> Iterator[tuple[int, str]]:
    if not group.context and not group.lists:
        return
    specs, list_specs = _specs(group.context, _ragged), _specs(group.lists, _ragged)
    context, lists = _one_by_one(
        payloads, lambda p: tf.io.parse_single_sequence_example(p, specs, list_specs)
    )
    for name in group.context:
        yield from _differ(_nested(context[name], 2), _rows_of(contents, name))
    for name in group.lists:
        yield from _differ(_nested(lists[name], 3), _steps_of(contents, name))


def _fixed_steps_specs(group: Group) -> dict[str, Any]:
    return {
        name: tf.io.FixedLenSequenceFeature(
            [need[1] if need else 1], _DTYPES[need[0] if need else "int64"], allow_missing=True
        )
        for name, need in group.lists.items()
    }


def _fixed_sequence_batched(
    group: Group, payloads: list[bytes], contents: list[Content]
) -> Iterator[tuple[int, str]]:
    if not group.lists:
        return
    _, lists, counts = tf.io.parse_sequence_example(payloads, {}, _fixed_steps_specs(group))
    for name in group.lists:
        dense = lists[name].numpy()
        read = [
            [comparable(step) for step in row[:count]]
            for row, count in zip(dense, counts[name].numpy().tolist(), strict=True)
        ]
        yield from _differ(read, _steps_of(contents, name))


def _fixed_sequence_single(
    group: Group, payloads: list[bytes], contents: list[Content]
) -> Iterator[tuple[int, str]]:
    if not group.lists:
        return
    specs = _fixed_steps_specs(group)
    parsed = _one_by_one(payloads, lambda p: tf.io.parse_single_sequence_example(p, None, specs)[1])
    for name, need in group.lists.items():
        width = need[1] if need else 1
        tensor = parsed[name]
        flat = comparable(tensor.flat_values.numpy())
        rows = [flat[i : i + width] for i in range(0, len(flat), width)]
        cut = tensor.row_splits.numpy().tolist()
        read = [rows[a:b] for a, b in itertools.pairwise(cut)]
        yield from _differ(read, _steps_of(contents, name))


_BY_KIND = {
    "parse_example, VarLen": _var_batched,
    "parse_example, Ragged": _ragged_batched,
    "parse_example, padded": _padded_batched,
    "parse_single_example, VarLen": _var_single,
    "parse_single_example, Ragged": _ragged_single,
    "parse_sequence_example, VarLen": _var_sequence_batched,
    "parse_sequence_example, Ragged": _ragged_sequence_batched,
    "parse_single_sequence_example, VarLen": _var_sequence_single,
    "parse_single_sequence_example, Ragged": _ragged_sequence_single,
}
_BY_WIDTH = {
    "parse_example, FixedLen": _fixed_batched,
    "parse_single_example, FixedLen": _fixed_single,
    "parse_sequence_example, FixedLen": _fixed_sequence_batched,
    "parse_single_sequence_example, FixedLen": _fixed_sequence_single,
}
