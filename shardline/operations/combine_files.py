"""Combine standalone TFRecord files: write pairs of their records to a file."""

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
    validate_option_names,
)
from shardline.errors import CorruptFileError, ExampleError, InvalidArgumentError
from shardline.execution.threads import divide_workers, run_tasks
from shardline.hints import Hint, Option
from shardline.kernel.types import merge_facts
from shardline.operations.rebuild_files import WrittenFilesReport
from shardline.pairing.combine_spec import OPTIONS, CombineSpec, SpecOptions
from shardline.pairing.pair_batch import PairSides, count_matches
from shardline.pairing.pair_encoder import PairEncoder
from shardline.pairing.pair_features import get_name_growth
from shardline.pairing.pair_grid import PairEstimate, PairGrid, estimate_extent, validate_budget
from shardline.pairing.pair_side import StandaloneFile, UnitGroup, number_units
from shardline.pairing.spec_binding import bind_plain_spec, bind_spec
from shardline.schema.file_schema import FileSchema, infer_features, schema_of
from shardline.schema.schema import Key, Schema
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
    from shardline.pairing.pair_batch import PairBatch
    from shardline.pairing.pair_side import NumberedUnit
    from shardline.pairing.spec_binding import BoundCombineSpec
    from shardline.tfrecord.reader import Limits
    from shardline.tfrecord.record_block import RecordBlock

    Paths: TypeAlias = Path | str | Sequence[Path | str]


class CombineFilesOptions(SpecOptions, total=False):
    """Keyword arguments of `combine_files`, besides those that only execute the plan.

    Attributes:
        limits: Limits of what is read.
        workers: Number of threads. By default one per core.
    """

    limits: Limits
    workers: int | None


def combine_files(
    left: Paths,
    right: Paths,
    output: Path | str,
    *,
    compression: Compression | str = Compression.NONE,
    budget_bytes: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[CombineFilesOptions],
) -> WrittenFilesReport:
    """Write the pairs of the records of files to a file, in the order of two nested loops.

    All files are read once before, to name the features and to estimate the output.

    Args:
        left: One or several files, whose records are the outer loop.
        right: One or several files.
        output: The file to write.
        compression: "none" or "gzip".
        budget_bytes: Limit of the bytes to write. By default the free disk space, at most 100 GB.
        overwrite: Replace an existing output.
        progress: Called with the number of written pairs and the estimated number of all pairs.
        **options: See `CombineFilesOptions` and `CombineSpec`.

    Raises:
        BudgetError: If there is more to write than the budget allows.
        CorruptFileError: If a record is corrupt. No output is left.

    Example:
        combine_files("left.tfrecord", "right.tfrecord", "pairs.tfrecord", on="id")
    """
    validate_option_names(combine_files, options, OPTIONS, CombineFilesOptions.__annotations__)
    output, parsed = parse_local_path(output, "output"), parse_compression(compression)
    with DurableFile(output, overwrite=overwrite) as file:
        plan = plan_combine_files(left, right, **options)
        return plan.write(file, output, parsed, budget_bytes=budget_bytes, progress=progress)


def plan_combine_files(
    left: Paths,
    right: Paths,
    *,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    **options: Unpack[SpecOptions],
) -> CombineFilesPlan:
    """Plan `combine_files`, to look at or to execute. Reads the files."""
    validate_option_names(plan_combine_files, options, OPTIONS)
    spec = CombineSpec.of(**options).settle()
    paths = [_list_paths(side) for side in (left, right)]
    is_same = list(map(resolve_path, paths[0])) == list(map(resolve_path, paths[1]))
    if spec.unordered and not is_same:
        raise InvalidArgumentError(
            "unordered: both sides must be the same files in the same order",
            code="conflicting-arguments",
            hint=Hint.of("name the same files for both sides, or leave out ", Option("unordered")),
        )
    count = workers or os.cpu_count() or 1
    left_side = _scan_side(paths[0], limits, count)
    right_side = left_side if is_same else _scan_side(paths[1], limits, count)
    spec = _simplify_spec(spec, left_side, right_side)
    schema = None
    if spec.on or spec.functions:
        left_schema = schema_of(left_side.schema)
        right_schema = _make_key_schema(spec, left_schema)
        if right_side.schema.records:
            right_schema = schema_of(right_side.schema)
        bound, schema = bind_spec(spec, left_schema, right_schema)
    else:
        bound = bind_plain_spec(spec, left_side.keys, right_side.keys)
    bound.validate_side_names()
    return CombineFilesPlan(bound, (left_side, right_side), limits, count, schema)


def _simplify_spec(spec: CombineSpec, left: _ScannedSide, right: _ScannedSide) -> CombineSpec:
    """Return the spec, without the options that read features if there are no pairs."""
    if left.schema.records and (right.schema.records or spec.how == "left"):
        return spec
    return replace(spec, on=(), how="inner", where=None, udfs=())


def _make_key_schema(spec: CombineSpec, left: Schema) -> Schema:
    """Return the schema of a right side without records: the key features of the left."""
    keys = ((left.find(name, sequence=False), other) for name, other in spec.on)
    return Schema(tuple(replace(key, name=other) for key, other in keys if key is not None))


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
    """Files of a side, with their inferred schema and the bytes of their payloads."""

    units: tuple[NumberedUnit, ...]
    schema: FileSchema
    payload_bytes: int

    @property
    def keys(self) -> list[Key]:
        return [(feature.sequence, feature.name) for feature in self.schema.features]


def _scan_side(paths: Sequence[Path], limits: Limits, workers: int) -> _ScannedSide:
    file_workers = divide_workers(len(paths), workers)

    def scan_file(path: Path) -> tuple[int, int, dict[FactsKey, FeatureFacts]]:
        def scan_block(block: RecordBlock) -> tuple[int, int, list[FeatureFacts]]:
            try:
                facts = kernel.facts(block.data, block.starts, block.lengths)
            except ExampleError as error:
                fault = build_example_error(block, error.record, error)
                raise CorruptFileError.of(path, fault) from None
            return len(block.starts), int(block.lengths.sum()), facts

        records = payload_bytes = 0
        merged: dict[FactsKey, FeatureFacts] = {}
        for count, size, facts in map_blocks(path, scan_block, limits=limits, workers=file_workers):
            records += count
            payload_bytes += size
            merge_facts(merged, facts)
        return records, payload_bytes, merged

    scanned = list(run_tasks(scan_file, paths, workers=workers))
    merged: dict[FactsKey, FeatureFacts] = {}
    for _, _, facts in scanned:
        merge_facts(merged, facts.values())
    counts = [count for count, _, _ in scanned]
    files = [StandaloneFile(str(path)) for path in paths]
    return _ScannedSide(
        number_units(zip(files, counts, strict=True)),
        FileSchema("", sum(counts), tuple(infer_features(merged.values(), sum(counts)))),
        sum(size for _, size, _ in scanned),
    )


@dataclass(frozen=True)
class CombineFilesPlan:
    """A planned combination of files, to look at or to execute.

    `schema` is that of the pairs, None if no option reads features.
    """

    _bound: BoundCombineSpec
    _sides: tuple[_ScannedSide, _ScannedSide]
    _limits: Limits
    _workers: int
    schema: Schema | None = None

    @property
    def spec(self) -> CombineSpec:
        """Options of the pairs."""
        return self._bound.spec

    @property
    def left(self) -> int:
        """Number of left records."""
        return self._sides[0].schema.records

    @property
    def right(self) -> int:
        """Number of right records."""
        return self._sides[1].schema.records

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features of a pair, without new ones."""
        names = self._bound.names
        listed = (*names.left.values(), *names.right.values())
        return tuple(name for name in listed if name is not None)

    @cached_property
    def _grid(self) -> PairGrid:
        """Grid of a single unit on each side, with all files."""
        names = self._bound.names
        left, right = (
            (estimate_extent(side.schema.records, side.payload_bytes, get_name_growth(names)),)
            for side, names in zip(self._sides, (names.left, names.right), strict=True)
        )
        return PairGrid(left, right, self.spec.unordered)

    @cached_property
    def estimate(self) -> PairEstimate:
        """Number of pairs, and estimated bytes."""
        spec, grid = self.spec, self._grid
        pairs = grid.pairs
        if spec.on and spec.limit is None:
            left, right = self._sides
            groups = [UnitGroup(right.units)]
            pairs = sum(count_matches(left.units, groups, self._bound, self._limits))
        for limit in (spec.limit, spec.sample):
            pairs = pairs if limit is None else min(pairs, limit)
        is_upper_bound = spec.where is not None or bool(spec.on and spec.limit is not None)
        return PairEstimate(pairs, grid.bytes_of(pairs), is_upper_bound)

    def execute(
        self,
        output: Path,
        *,
        compression: Compression | str = Compression.NONE,
        budget_bytes: int | None = None,
        overwrite: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> WrittenFilesReport:
        """Write the planned pairs to a file; see `combine_files`."""
        parsed = parse_compression(compression)
        with DurableFile(output, overwrite=overwrite) as file:
            return self.write(file, output, parsed, budget_bytes=budget_bytes, progress=progress)

    def write(
        self,
        file: DurableFile,
        output: Path,
        compression: Compression,
        *,
        budget_bytes: int | None,
        progress: Callable[[int, int], None] | None,
    ) -> WrittenFilesReport:
        """Write the planned pairs to an open file, which will be `output`."""
        validate_budget(str(output), self.estimate, budget_bytes, output.parent, of_files=True)
        sink = RecordSink(file, compression, hashed=False)
        encoder = PairEncoder(self._bound, self._limits.max_record_bytes, self._workers)
        try:
            with ExitStack() as stack:
                batches = self._list_batches(stack, output.parent)
                for framed in encoder.encode_frames(batches, self.spec.limit):
                    sink.add(framed.data, framed.starts, framed.lengths)
                    if progress is not None:
                        progress(sink.records, self.estimate.pairs)
            written = sink.finish()
        finally:
            self._bound.close()
        return WrittenFilesReport((output,), written.records, written.bytes, compression)

    def _list_batches(self, stack: ExitStack, folder: Path) -> Iterator[PairBatch]:
        left, right = self._sides
        groups = [UnitGroup(right.units)]
        sides = PairSides(left.units, groups, self._bound, self._limits, stack, folder)
        if self.spec.sample is None:
            return sides.list_batches()
        positions = self._grid.sample(self.spec.sample, self.spec.seed or 0)
        return sides.list_batches(self._grid.locate(positions))
