"""Combine loose TFRecord files: all pairs of their records, in the order of two nested loops."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from shardline import kernel
from shardline.arguments import (
    parse_local_path,
    parse_local_paths,
    resolve_path,
    validate_files_differ,
)
from shardline.errors import CorruptFileError, ExampleError, InvalidArgumentError
from shardline.execution.threads import divide_workers, run_tasks
from shardline.hints import Hint, Option
from shardline.kernel.types import merge_facts
from shardline.operations.rebuild_files import WrittenFilesReport
from shardline.pairing.combine_spec import CombineSpec, validate_option_names
from shardline.pairing.pair_batch import PairSides, count_matches
from shardline.pairing.pair_encoder import PairEncoder
from shardline.pairing.pair_features import get_name_growth
from shardline.pairing.pair_grid import PairEstimate, PairGrid, estimate_extent, validate_budget
from shardline.pairing.pair_side import StandaloneFile, UnitGroup, number_units
from shardline.pairing.spec_binding import bind_plain_spec, bind_spec
from shardline.schema.file_schema import FileSchema, infer_features, schema_of
from shardline.schema.schema import Schema
from shardline.storage.durable_file import DurableFile
from shardline.tfrecord.compression import Compression, parse_compression
from shardline.tfrecord.examples import build_example_error
from shardline.tfrecord.parallel import map_blocks
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.tfrecord.writer import RecordSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import TypeAlias, Unpack

    from shardline.kernel.types import FactsKey, FeatureFacts
    from shardline.pairing.combine_spec import SpecOptions
    from shardline.pairing.pair_batch import PairBatch
    from shardline.pairing.pair_side import NumberedUnit
    from shardline.pairing.spec_binding import BoundCombineSpec
    from shardline.tfrecord.reader import Limits
    from shardline.tfrecord.record_block import RecordBlock

    Paths: TypeAlias = Path | str | Sequence[Path | str]


def combine_files(
    left: Paths,
    right: Paths,
    out: Path | str,
    *,
    compression: Compression | str = Compression.NONE,
    budget_bytes: int | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[SpecOptions],
) -> WrittenFilesReport:
    """Write each record of the left files together with each of the right ones, to one file.

    See `combine` for the options; here the order is that of two nested loops over all records of
    the left and all of the right. The files are read once more before, for the names of their
    features and to tell how much there is to write. `progress` hears how many pairs were written
    and how many there will be, or may be. Raises CorruptFileError at damage; nothing is left
    behind then.
    """
    validate_option_names(combine_files, options)
    out, packing = parse_local_path(out, "out"), parse_compression(compression)
    with DurableFile(out, overwrite=overwrite) as file:
        plan = plan_combine_files(left, right, limits=limits, workers=workers, **options)
        return plan.fill(file, out, packing, budget_bytes=budget_bytes, progress=progress)


def plan_combine_files(
    left: Paths,
    right: Paths,
    *,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    **options: Unpack[SpecOptions],
) -> CombineFilesPlan:
    """Plan a combination of files, to look at or to execute. The files are read."""
    validate_option_names(plan_combine_files, options)
    spec = CombineSpec.of(**options).settle()
    sides = [_list_paths(paths) for paths in (left, right)]
    same = list(map(resolve_path, sides[0])) == list(map(resolve_path, sides[1]))
    if spec.unordered and not same:
        raise InvalidArgumentError(
            "unordered: both sides must be the same files in the same order",
            code="conflicting-arguments",
            hint=Hint.of("name the same files for both sides, or leave out ", Option("unordered")),
        )
    count = workers or os.cpu_count() or 1
    of_left = _scan_side(sides[0], limits, count)
    of_right = of_left if same else _scan_side(sides[1], limits, count)
    spec = _simplify_spec(spec, of_left, of_right)
    schema = None
    if spec.on or spec.udfs:
        known = schema_of(of_left.found)
        other = (
            schema_of(of_right.found) if of_right.found.records else _make_key_schema(spec, known)
        )
        bound, schema = bind_spec(spec, known, other)
    else:
        bound = bind_plain_spec(spec, of_left.keys, of_right.keys)
    bound.validate_side_names()
    return CombineFilesPlan(bound, (of_left, of_right), limits, count, schema)


def _simplify_spec(spec: CombineSpec, left: _ScannedSide, right: _ScannedSide) -> CombineSpec:
    """Return the spec; if it has no pairs, without the options that read features."""
    if left.found.records and (right.found.records or spec.how == "left"):
        return spec
    return replace(spec, on=(), how="inner", where=None, fields=())


def _make_key_schema(spec: CombineSpec, left: Schema) -> Schema:
    """What a right side without records is taken to have: the keys by which it is matched."""
    found = ((left.find(name, sequence=False), other) for name, other in spec.on)
    return Schema(tuple(replace(key, name=other) for key, other in found if key is not None))


def _list_paths(paths: Paths) -> list[Path]:
    files = parse_local_paths(paths)
    if not files:
        raise InvalidArgumentError(
            "no files to combine: each side needs a file", code="missing-argument"
        )
    validate_files_differ(files)
    return files


@dataclass(frozen=True, slots=True)
class _ScannedSide:
    """What was found in the files of one side; `payloads` is how many bytes its records have."""

    units: tuple[NumberedUnit, ...]
    found: FileSchema
    payloads: int

    @property
    def keys(self) -> list[tuple[bool, str]]:
        return [(feature.sequence, feature.name) for feature in self.found.features]


def _scan_side(paths: Sequence[Path], limits: Limits, workers: int) -> _ScannedSide:
    each = divide_workers(len(paths), workers)

    def gather(path: Path) -> tuple[int, int, dict[FactsKey, FeatureFacts]]:
        def facts_of(block: RecordBlock) -> tuple[int, int, list[FeatureFacts]]:
            try:
                found = kernel.facts(block.data, block.starts, block.lengths)
            except ExampleError as error:
                fault = build_example_error(block, error.record, error)
                raise CorruptFileError.of(path, fault) from None
            return len(block.starts), int(block.lengths.sum()), found

        records = payloads = 0
        facts: dict[FactsKey, FeatureFacts] = {}
        for count, size, found in map_blocks(path, facts_of, limits=limits, workers=each):
            records += count
            payloads += size
            merge_facts(facts, found)
        return records, payloads, facts

    looked = list(run_tasks(gather, paths, workers=workers))
    merged: dict[FactsKey, FeatureFacts] = {}
    for _, _, facts in looked:
        merge_facts(merged, facts.values())
    counts = [count for count, _, _ in looked]
    files = [StandaloneFile(str(path)) for path in paths]
    return _ScannedSide(
        number_units(zip(files, counts, strict=True)),
        FileSchema("", sum(counts), tuple(infer_features(merged.values(), sum(counts)))),
        sum(size for _, size, _ in looked),
    )


@dataclass(frozen=True)
class CombineFilesPlan:
    """A planned combination of files: the records on either side, and the pairs to write.

    `schema` is that of the pairs, None if no option reads features.
    """

    _bound: BoundCombineSpec
    _sides: tuple[_ScannedSide, _ScannedSide]
    _limits: Limits
    _workers: int
    schema: Schema | None = None

    @property
    def spec(self) -> CombineSpec:
        """The options of the combination."""
        return self._bound.spec

    @property
    def left(self) -> int:
        """How many records the left has."""
        return self._sides[0].found.records

    @property
    def right(self) -> int:
        """How many records the right has."""
        return self._sides[1].found.records

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features of a pair, without those that `fields` make."""
        names = self._bound.names
        listed = (*names.left.values(), *names.right.values())
        return tuple(name for name in listed if name is not None)

    @cached_property
    def _grid(self) -> PairGrid:
        """All files of a side count as one unit."""
        names = self._bound.names
        extents = [
            (estimate_extent(side.found.records, side.payloads, get_name_growth(of_side)),)
            for side, of_side in zip(self._sides, (names.left, names.right), strict=True)
        ]
        return PairGrid(extents[0], extents[1], self.spec.unordered)

    @cached_property
    def estimate(self) -> PairEstimate:
        """How many pairs there will be, and how many bytes."""
        spec, grid = self.spec, self._grid
        pairs = grid.pairs
        if spec.on and spec.limit is None:
            left, right = self._sides
            groups = [UnitGroup(right.units)]
            pairs = sum(count_matches(left.units, groups, self._bound, self._limits))
        for most in (spec.limit, spec.sample):
            pairs = pairs if most is None else min(pairs, most)
        most = spec.where is not None or bool(spec.on and spec.limit is not None)
        return PairEstimate(pairs, grid.bytes_of(pairs), most)

    def execute(
        self,
        out: Path,
        *,
        compression: Compression | str = Compression.NONE,
        budget_bytes: int | None = None,
        overwrite: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> WrittenFilesReport:
        """Write the planned pairs to a file, as `combine_files` does."""
        packing = parse_compression(compression)
        with DurableFile(out, overwrite=overwrite) as file:
            return self.fill(file, out, packing, budget_bytes=budget_bytes, progress=progress)

    def fill(
        self,
        file: DurableFile,
        out: Path,
        packing: Compression,
        *,
        budget_bytes: int | None,
        progress: Callable[[int, int], None] | None,
    ) -> WrittenFilesReport:
        """Write the planned pairs to a file that is open and will be `out`."""
        validate_budget(str(out), self.estimate, budget_bytes, out.parent, of_files=True)
        sink = RecordSink(file, packing, hashed=False)
        encoder = PairEncoder(self._bound, self._limits.max_record_bytes, self._workers)
        try:
            with ExitStack() as stack:
                for framed in encoder.encode_frames(
                    self._list_batches(stack, out.parent), self.spec.limit
                ):
                    sink.add(framed.data, framed.starts, framed.lengths)
                    if progress is not None:
                        progress(sink.records, self.estimate.pairs)
            written = sink.finish()
        finally:
            self._bound.close()
        return WrittenFilesReport((out,), written.records, written.bytes, packing)

    def _list_batches(self, stack: ExitStack, folder: Path) -> Iterator[PairBatch]:
        left, right = self._sides
        groups = [UnitGroup(right.units)]
        sides = PairSides(left.units, groups, self._bound, self._limits, stack, folder)
        if self.spec.sample is None:
            return sides.list_batches()
        places = self._grid.sample(self.spec.sample, self.spec.seed or 0)
        return sides.list_batches(self._grid.locate(places))
