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
from shardline.pairing.combine_spec import (
    bind_plain_spec,
    bind_spec,
    make_spec,
    validate_option_names,
)
from shardline.pairing.pair_batch import PairSides, count_matches
from shardline.pairing.pair_encoder import PairEncoder
from shardline.pairing.pair_features import get_name_growth
from shardline.pairing.pair_grid import PairEstimate, PairGrid, estimate_extent, validate_budget
from shardline.pairing.pair_side import StandaloneFile, UnitGroup, number_units
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
    from shardline.pairing.combine_spec import BoundCombineSpec, CombineSpec, SpecOptions
    from shardline.pairing.pair_batch import PairBatch
    from shardline.pairing.pair_side import NumberedUnit
    from shardline.tfrecord.reader import Limits
    from shardline.tfrecord.record_block import RecordBlock
    from shardline.tfrecord.writer import WrittenFile

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
        work = _plan_files(left, right, limits, workers, options)
        try:
            validate_budget(str(out), work.estimate, budget_bytes, out.parent, of_files=True)
            written = work.write(RecordSink(file, packing, hashed=False), out.parent, progress)
        finally:
            work.recipe.close()
    return WrittenFilesReport((out,), written.records, written.bytes, packing)


@dataclass(frozen=True, slots=True)
class CombineFilesPlan:
    """What combining files would do: the records on either side, and how many pairs.

    `features` are the names in a pair, but for those that `fields` make; `schema` is that of the
    pairs, None where no kinds had to be known.
    """

    left: int
    right: int
    estimate: PairEstimate
    features: tuple[str, ...]
    schema: Schema | None = None


def plan_combine_files(
    left: Paths,
    right: Paths,
    *,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    **options: Unpack[SpecOptions],
) -> CombineFilesPlan:
    """Tell what `combine_files` would write. The files are read, and nothing is written."""
    validate_option_names(plan_combine_files, options)
    work = _plan_files(left, right, limits, workers, options)
    work.recipe.close()
    names = work.recipe.names
    features = [*names.left.values(), *names.right.values()]
    return CombineFilesPlan(
        work.left.found.records,
        work.right.found.records,
        work.estimate,
        tuple(name for name in features if name is not None),
        work.schema,
    )


def _plan_files(
    left: Paths, right: Paths, limits: Limits, workers: int | None, options: SpecOptions
) -> _CombineFilesRun:
    """Look at the files, and refuse what cannot be combined."""
    rule = make_spec(**options)
    sides = [_list_paths(paths) for paths in (left, right)]
    same = list(map(resolve_path, sides[0])) == list(map(resolve_path, sides[1]))
    if rule.once and not same:
        raise InvalidArgumentError(
            "once: both sides must be the same files in the same order",
            code="conflicting-arguments",
            hint=Hint.of("name the same files for both sides, or leave out ", Option("once")),
        )
    count = workers or os.cpu_count() or 1
    of_left = _scan_side(sides[0], limits, count)
    of_right = of_left if same else _scan_side(sides[1], limits, count)
    rule = _simplify_spec(rule, of_left, of_right)
    schema = None
    if rule.on or rule.where is not None or rule.fields:
        known = schema_of(of_left.found)
        other = (
            schema_of(of_right.found) if of_right.found.records else _make_key_schema(rule, known)
        )
        recipe, schema = bind_spec(rule, known, other)
    else:
        recipe = bind_plain_spec(rule, of_left.keys, of_right.keys)
    recipe.refuse_same_names()
    return _CombineFilesRun(recipe, of_left, of_right, limits, count, schema)


def _simplify_spec(rule: CombineSpec, left: _ScannedSide, right: _ScannedSide) -> CombineSpec:
    """The rule, or if no pair can come of it, one that asks no records for a feature."""
    if left.found.records and (right.found.records or rule.how == "left"):
        return rule
    return replace(rule, on=(), how="inner", where=None, fields=())


def _make_key_schema(rule: CombineSpec, left: Schema) -> Schema:
    """What a right side without records is taken to have: the keys by which it is matched."""
    found = ((left.find(name, sequence=False), other) for name, other in rule.on)
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
class _CombineFilesRun:
    recipe: BoundCombineSpec
    left: _ScannedSide
    right: _ScannedSide
    limits: Limits
    workers: int
    schema: Schema | None

    @property
    def rule(self) -> CombineSpec:
        return self.recipe.rule

    @cached_property
    def grid(self) -> PairGrid:
        """All files of a side count as one unit."""
        names = self.recipe.names
        extents = [
            (estimate_extent(side.found.records, side.payloads, get_name_growth(of_side)),)
            for side, of_side in ((self.left, names.left), (self.right, names.right))
        ]
        return PairGrid(extents[0], extents[1], self.rule.once)

    @cached_property
    def estimate(self) -> PairEstimate:
        """How many pairs there will be, and how many bytes."""
        rule, grid = self.rule, self.grid
        pairs = grid.pairs
        if rule.on and rule.limit is None:
            right = [UnitGroup(self.right.units)]
            pairs = sum(count_matches(self.left.units, right, self.recipe, self.limits))
        for most in (rule.limit, rule.sample):
            pairs = pairs if most is None else min(pairs, most)
        most = rule.where is not None or bool(rule.on and rule.limit is not None)
        return PairEstimate(pairs, grid.bytes_of(pairs), most)

    def write(
        self, sink: RecordSink, folder: Path, progress: Callable[[int, int], None] | None
    ) -> WrittenFile:
        """Write all pairs."""
        laying = PairEncoder(self.recipe, self.limits.max_record_bytes, self.workers)
        with ExitStack() as stack:
            for framed in laying.records(self._lots(stack, folder), self.rule.limit):
                sink.add(framed.data, framed.starts, framed.lengths)
                if progress is not None:
                    progress(sink.records, self.estimate.pairs)
        return sink.finish()

    def _lots(self, stack: ExitStack, folder: Path) -> Iterator[PairBatch]:
        right = [UnitGroup(self.right.units)]
        sides = PairSides(self.left.units, right, self.recipe, self.limits, stack, folder)
        if self.rule.sample is None:
            return sides.lots()
        places = self.grid.sample(self.rule.sample, self.rule.seed)
        return sides.sampled(*self.grid.locate(places))
