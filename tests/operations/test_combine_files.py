"""Pairs of loose files: the same set, order and content as two nested loops make, in few bytes."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.errors import (
    BudgetError,
    ColumnError,
    CorruptFileError,
    FileExistsAlreadyError,
    InvalidArgumentError,
    InvalidRecordsError,
    SchemaMismatchError,
    UnknownArgumentError,
)
from shardline.hints import Option
from shardline.operations.combine_files import combine_files, plan_combine_files
from shardline.pairing.combine_spec import CombineSpec
from shardline.pairing.pair_batch import PairSides
from shardline.pairing.pair_encoder import PairEncoder
from shardline.pairing.pair_side import StandaloneFile, UnitGroup, number_units
from shardline.pairing.spec_binding import bind_spec
from shardline.schema.file_schema import infer_schema, schema_of
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits
from shardline.tfrecord.writer import write_records
from tests.errors import raises
from tests.kernel.frames import framed
from tests.operations.combinations import (
    canonicals,
    each_two,
    lefts,
    nested,
    pair,
    refused_pairs,
    rights,
)
from tests.tfrecord.samples import (
    example_of,
    flipped,
    read_by_tensorflow,
    records_of,
    sequence_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.kernel.types import Framed

PREFIX: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "l_", "right_prefix": "r_"}
PREFIXES = ("l_", "r_")

values = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    st.lists(st.binary(max_size=200), min_size=1, max_size=3),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=3),
)
features = st.dictionaries(st.sampled_from(["x", "y", "größe", "n" * 120]), values, max_size=3)
steps = st.lists(st.lists(st.integers(0, 300), max_size=3), max_size=3)
examples = features.map(lambda found: example_of(**found))
sequences = st.builds(
    lambda context, lists: sequence_of(context, **lists),
    features,
    st.dictionaries(st.sampled_from(["x", "frames"]), steps, max_size=2),
)
files = st.lists(
    st.tuples(
        st.lists(examples | sequences, max_size=4), st.sampled_from(["none", "gzip", "zlib"])
    ),
    min_size=1,
    max_size=3,
)


def written(folder: Path, name: str, sides: Sequence[tuple[list[bytes], str]]) -> list[Path]:
    """Files of these records, packed in these ways."""
    paths = [folder / f"{name}{number}" for number in range(len(sides))]
    for path, (records, packed) in zip(paths, sides, strict=True):
        write_records(path, records, compression=packed, overwrite=True)
    return paths


def side(folder: Path, name: str, *contents: Sequence[bytes]) -> list[Path]:
    """Plain files of these records."""
    return written(folder, name, [(list(records), "none") for records in contents])


def pairs(folder: Path, left: list[Path], right: list[Path], **options: Any) -> list[bytes]:  # noqa: ANN401 - as they come
    """What is in the file that is made, as protobuf writes it."""
    out = folder / "out"
    report = combine_files(left, right, out, overwrite=True, **options)
    found = records_of(out)
    assert (report.files, report.records, report.bytes) == (
        (out,),
        len(found),
        out.stat().st_size,
    )
    return canonicals(found)


@settings(max_examples=25)
@given(files, files)
def test_pairs_are_the_nested_loops_pairs_in_order_and_content(
    left: list[tuple[list[bytes], str]], right: list[tuple[list[bytes], str]]
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        sides = written(folder, "left", left), written(folder, "right", right)
        expected = nested(
            itertools.chain(*(records for records, _ in left)),
            list(itertools.chain(*(records for records, _ in right))),
            PREFIXES,
        )
        assert pairs(folder, *sides, **PREFIX) == expected
        assert read_by_tensorflow(folder / "out") == records_of(folder / "out")
        assert pairs(folder, *sides, **PREFIX, limit=3, compression="gzip") == expected[:3]
        assert pairs(folder, *sides, **PREFIX, sample=10**6) == expected
        some = pairs(folder, *sides, **PREFIX, sample=5, seed=1)
        assert len(some) == min(5, len(expected))
        rest = iter(expected)
        assert all(one in rest for one in some)
        twice = pairs(folder, sides[0], sides[0], **PREFIX, unordered=True)
        records = list(itertools.chain(*(records for records, _ in left)))
        assert twice == each_two(records, PREFIXES)
        assert sorted(one.name for one in folder.iterdir() if one.name.startswith(".")) == []


def laid(
    left: list[Path],
    right: list[Path],
    *,
    lot: int,
    memory: int,
    **options: Any,  # noqa: ANN401 - as they come
) -> list[bytes]:
    """The pairs, made in lots of `lot` bytes with `memory` bytes of the right in memory."""
    found = [infer_schema(paths) for paths in (left, right)]
    schemas = [schema_of(one.merged) for one in found]
    bound, _ = bind_spec(CombineSpec.of(**PREFIX, **options), schemas[0], schemas[1])
    units = [
        number_units((StandaloneFile(file.file), file.records) for file in one.files)
        for one in found
    ]
    with ExitStack() as stack:
        sides = PairSides(
            units[0],
            [UnitGroup(units[1])],
            bound,
            DEFAULT_LIMITS,
            stack,
            batch_bytes=lot,
            memory_bytes=memory,
        )
        encoder = PairEncoder(bound, DEFAULT_LIMITS.max_record_bytes, 2)
        made = list(encoder.encode_frames(sides.list_batches()))
    assert all(len(one.data) <= 3 * lot or len(one.starts) == 1 for one in made)
    return [payload for one in made for payload in payloads(one)]


def payloads(made: Framed) -> list[bytes]:
    return canonicals(
        made.data[start : start + length]
        for start, length in zip(made.starts.tolist(), made.lengths.tolist(), strict=True)
    )


@pytest.mark.parametrize("memory", [0, 10**6], ids=["spooled", "in memory"])
@pytest.mark.parametrize("lot", [1, 300, 5000, 10**6])
def test_neither_lots_nor_spools_make_a_difference(tmp_path: Path, lot: int, memory: int) -> None:
    large = [example_of(a=1, text=b"x" * 3000), *lefts(3, 9), example_of(a=2, text=b"y" * 900)]
    left = side(tmp_path, "left", lefts(0, 3), large)
    right = side(tmp_path, "right", rights(0, 5), [], [example_of(b=5, word=b"z" * 2000)])
    whole = [*lefts(0, 3), *large], [*rights(0, 5), example_of(b=5, word=b"z" * 2000)]
    assert laid(left, right, lot=lot, memory=memory) == nested(*whole, PREFIXES)
    assert laid(left, left, lot=lot, memory=memory, unordered=True) == each_two(whole[0], PREFIXES)
    matched = laid(left, right, lot=lot, memory=memory, on={"a": "b"}, how="left")
    numbers = [0, 1, 2, 1, 3, 4, 5, 6, 7, 8, 2]
    assert matched == [
        pair(one, whole[1][number] if number < 6 else None, PREFIXES)
        for one, number in zip(whole[0], numbers, strict=True)
    ]


def test_a_right_side_over_many_windows_is_read_again_for_each_record(tmp_path: Path) -> None:
    big = [example_of(b=number, word=bytes([number]) * 400_000) for number in range(20)]
    left, right = side(tmp_path, "left", lefts(0, 3)), side(tmp_path, "right", big)
    assert laid(left, right, lot=10**6, memory=10**6) == nested(lefts(0, 3), big, PREFIXES)
    chosen = laid(left, right, lot=10**6, memory=10**6, on={"a": "b"})
    assert chosen == [pair(one, big[at], PREFIXES) for at, one in enumerate(lefts(0, 3))]


def test_the_plan_tells_pairs_exactly_and_bytes_nearly(tmp_path: Path) -> None:
    left, right = side(tmp_path, "left", lefts(0, 40)), side(tmp_path, "right", rights(0, 30))
    plan = plan_combine_files(left, right, **PREFIX)
    assert (plan.left, plan.right, plan.schema) == (40, 30, None)
    assert plan.features == ("l_a", "l_text", "r_b", "r_word")
    made = combine_files(left, right, tmp_path / "out", **PREFIX)
    assert (plan.estimate.pairs, plan.estimate.most) == (made.records, False)
    assert abs(plan.estimate.bytes - made.bytes) < 0.02 * made.bytes
    once = plan_combine_files(left, left, **PREFIX, unordered=True)
    made = combine_files(left, left, tmp_path / "twice", **PREFIX, unordered=True)
    assert once.estimate.pairs == made.records == 780
    assert abs(once.estimate.bytes - made.bytes) < 0.02 * made.bytes
    assert plan_combine_files(left, right, **PREFIX, limit=7).estimate.pairs == 7
    assert plan_combine_files(left, right, **PREFIX, sample=8).estimate.pairs == 8
    matched = plan_combine_files(left, right, on={"a": "b"})
    assert (matched.estimate.pairs, matched.estimate.most) == (30, False)
    assert matched.schema is not None
    limited = plan_combine_files(left, right, on={"a": "b"}, limit=50)
    assert (limited.estimate.pairs, limited.estimate.most) == (50, True)


def test_more_than_the_budget_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    left, right = side(tmp_path, "left", lefts(0, 40)), side(tmp_path, "right", rights(0, 30))
    with raises(BudgetError, "budget-exceeded", pairs=1200) as caught:
        combine_files(left, right, tmp_path / "out", budget_bytes=1000)
    assert caught.value.bytes > 1000
    hint = caught.value.hint
    assert hint is not None
    options = [part.keyword for part in hint.parts if isinstance(part, Option)]
    assert options == ["budget_bytes", "limit", "sample", "on"]  # virtual is for versions
    assert sorted(one.name for one in tmp_path.iterdir()) == ["left0", "right0"]
    with raises(InvalidArgumentError, "out-of-range"):
        combine_files(left, right, tmp_path / "out", budget_bytes=0)
    assert combine_files(left, right, tmp_path / "out", budget_bytes=10**6).records == 1200


@pytest.mark.parametrize("which", ["left", "right"])
def test_damage_names_file_record_and_offset_and_leaves_nothing(tmp_path: Path, which: str) -> None:
    sides = {"left": lefts(0, 3), "right": rights(0, 3)}
    for name, records in sides.items():
        (tmp_path / name).write_bytes(framed(*records))
    bad = tmp_path / which
    offset = len(framed(sides[which][0]))
    bad.write_bytes(flipped(bad.read_bytes(), 8 * (offset + 14)))
    with pytest.raises(CorruptFileError, match="shardline salvage") as caught:
        combine_files(tmp_path / "left", tmp_path / "right", tmp_path / "out")
    error = caught.value
    assert (error.path, error.record, error.offset) == (str(bad), 1, offset)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["left", "right"]


def test_a_record_that_is_no_example_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "left").write_bytes(framed(lefts(0, 1)[0], b"no example"))
    (tmp_path / "right").write_bytes(framed(*rights(0, 1)))
    with raises(CorruptFileError, "invalid-example", record=1, path=str(tmp_path / "left")):
        combine_files(tmp_path / "left", tmp_path / "right", tmp_path / "out")


def test_pairs_over_the_largest_record_are_refused(tmp_path: Path) -> None:
    left = side(tmp_path, "left", [example_of(a=1), example_of(a=b"x" * 80)])
    right = side(tmp_path, "right", [example_of(b=b"y" * 80)])
    with raises(InvalidRecordsError, "record-too-large") as caught:
        combine_files(left, right, tmp_path / "out", limits=Limits(max_record_bytes=150))
    assert refused_pairs(caught.value) == [(1, 0)]
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_there_is_overwritten_only_if_asked(tmp_path: Path) -> None:
    left, right = side(tmp_path, "left", lefts(0, 2)), side(tmp_path, "right", rights(0, 2))
    out = tmp_path / "out"
    out.write_bytes(b"precious")
    with pytest.raises(FileExistsAlreadyError):
        combine_files(left, right, out)
    assert out.read_bytes() == b"precious"
    assert combine_files(left, right, out, overwrite=True).records == 4


def test_progress_hears_of_pairs(tmp_path: Path) -> None:
    left, right = side(tmp_path, "left", lefts(0, 5)), side(tmp_path, "right", rights(0, 4))
    heard: list[tuple[int, int]] = []
    combine_files(
        str(left[0]), str(right[0]), tmp_path / "out", progress=lambda *told: heard.append(told)
    )
    assert heard[-1] == (20, 20)


@pytest.mark.parametrize(
    ("options", "code", "subject"),
    [
        ({"on_collision": "merge"}, "invalid-choice", "invalid on_collision 'merge'"),
        ({"on_collision": "prefix"}, "missing-argument", "on_collision"),
        ({"left_prefix": "a_"}, "conflicting-arguments", "on_collision"),
        ({"how": "outer"}, "invalid-choice", "invalid how 'outer'"),
        ({"how": "left"}, "missing-argument", "how"),
        ({"limit": 0}, "out-of-range", "limit"),
        ({"limit": "3"}, "invalid-type", "limit"),
        ({"limit": True}, "invalid-type", "limit"),
        ({"sample": 1.5}, "invalid-type", "sample"),
        ({"sample": 1, "seed": "x"}, "invalid-type", "seed"),
        ({"sample": 1, "seed": -1}, "out-of-range", "seed"),
        ({"on": 3}, "invalid-type", "on"),
        ({"on": ["a", 3]}, "invalid-type", "on"),
        ({"on": {"a": None}}, "invalid-type", "on"),
        ({"sample": -1}, "out-of-range", "sample"),
        ({"sample": 1, "limit": 1}, "conflicting-arguments", "sample"),
        ({"sample": 1, "on": ["a"]}, "conflicting-arguments", "sample"),
        ({"unordered": True}, "conflicting-arguments", "unordered"),
        ({"unordered": True, "on": "a", "how": "left"}, "conflicting-arguments", "unordered"),
    ],
)
def test_options_that_say_nothing_sensible_are_refused(
    tmp_path: Path, options: dict[str, Any], code: str, subject: str
) -> None:
    left, right = side(tmp_path, "left", lefts(0, 2)), side(tmp_path, "right", rights(0, 2))
    with raises(InvalidArgumentError, code) as caught:
        combine_files(left, right, tmp_path / "out", **options)
    assert str(caught.value).split(": ")[0] == subject
    with raises(InvalidArgumentError, "missing-argument"):
        combine_files([], right, tmp_path / "out")


def test_options_that_are_none_are_refused_with_those_that_are(tmp_path: Path) -> None:
    left, right = side(tmp_path, "left", lefts(0, 2)), side(tmp_path, "right", rights(0, 2))
    unknown: dict[str, Any] = {"On": "a"}
    with raises(UnknownArgumentError, "unknown-argument") as caught:
        combine_files(left, right, tmp_path / "out", **unknown)
    assert caught.value.hint is not None
    assert Option("on") in caught.value.hint.parts
    unknown = {"over_write": True}
    with raises(UnknownArgumentError, "unknown-argument") as caught:
        combine_files(left, right, tmp_path / "out", **unknown)
    assert caught.value.hint is not None
    assert Option("overwrite") in caught.value.hint.parts
    assert "on, how," in str(caught.value)
    unknown = {"xyz": 1}
    with raises(UnknownArgumentError, "unknown-argument", hint=None) as caught:
        plan_combine_files(left, right, **unknown)
    assert str(caught.value).startswith("plan_combine_files: ")
    assert not (tmp_path / "out").exists()


def test_the_keys_of_loose_files_must_have_one_kind(tmp_path: Path) -> None:
    left = side(tmp_path, "left", [example_of(a=1), example_of(a=b"one")])
    right = side(tmp_path, "right", rights(0, 2))
    with pytest.raises(SchemaMismatchError, match=r"feature 'a' .*bytes"):
        combine_files(left, right, tmp_path / "out", on={"a": "b"})
    assert combine_files(left, right, tmp_path / "out").records == 4


EMPTY: dict[str, tuple[str, dict[str, Any], int]] = {
    "all pairs": ("right", {}, 0),
    "matched with nothing": ("right", {"on": "a"}, 0),
    "nothing to match": ("left", {"on": "a", "how": "left"}, 0),
    "no match for any": ("right", {"on": "a", "how": "left"}, 3),
    "no match for any, with another name for the key": (
        "right", {"on": {"a": "b"}, "how": "left"}, 3,
    ),
    "no match for any, with prefixes": (
        "right", {"on": "a", "how": "left", "on_collision": "prefix", "right_prefix": "b_"}, 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", EMPTY)
def test_a_file_without_records_has_no_match_for_any_key(tmp_path: Path, what: str) -> None:
    which, options, count = EMPTY[what]
    records, empty = side(tmp_path, "records", lefts(0, 3)), side(tmp_path, "empty", [])
    both = (records, empty) if which == "right" else (empty, records)
    assert pairs(tmp_path, *both, **options) == canonicals(lefts(0, 3)[:count])
    plan = plan_combine_files(*both, **options)
    assert (plan.estimate.pairs, plan.estimate.bytes > 0) == (count, count > 0)


def test_a_file_that_gets_other_features_while_it_is_combined_is_refused(tmp_path: Path) -> None:
    left, right = side(tmp_path, "left", lefts(0, 2)), side(tmp_path, "right", rights(0, 2))
    schema = [schema_of(infer_schema(paths).merged) for paths in (left, right)]
    bound, _ = bind_spec(CombineSpec(), schema[0], schema[1])
    side(tmp_path, "left", [*lefts(0, 1), example_of(new=1)])
    (unit,) = number_units([(StandaloneFile(str(left[0])), 2)])
    with pytest.raises(ColumnError, match="left0") as caught:
        list(unit.parts(bound.names.left, DEFAULT_LIMITS))
    assert (caught.value.record, caught.value.feature) == (1, "new")
