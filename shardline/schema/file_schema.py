"""Schemas of standalone files: what all records show, and how files differ."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from shardline import kernel
from shardline.arguments import parse_local_paths
from shardline.errors import CorruptFileError, ExampleError, SchemaMismatchError
from shardline.execution.threads import divide_workers, run_tasks
from shardline.hints import Hint
from shardline.kernel.types import FactsKey, FeatureFacts, merge_facts
from shardline.schema.schema import Feature, Schema
from shardline.tfrecord.examples import build_example_error
from shardline.tfrecord.parallel import map_blocks
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from shardline.kernel.types import FeatureFacts, Kind
    from shardline.tfrecord.record_block import RecordBlock


@dataclass(frozen=True, slots=True)
class FeatureSchema:
    """Feature as observed in all records.

    `kinds` has several entries if records disagree, and none if no record has a value. `length` is
    the number of values per list, or None if it varies. For a feature of the feature_lists, `steps`
    is the range of the number of steps.
    """

    name: str
    sequence: bool
    kinds: tuple[Kind, ...]
    length: int | None
    lengths: tuple[int, int] | None
    steps: tuple[int, int] | None
    present: int
    records: int
    low: float | None
    high: float | None
    nans: int
    sizes: tuple[int, int] | None
    utf8: bool

    @property
    def required(self) -> bool:
        """Return True if every record has the feature."""
        return self.present == self.records

    @property
    def kind(self) -> str:
        """Kind, several kinds joined with `|`, or `unknown`."""
        return "|".join(self.kinds) or "unknown"

    @property
    def shape(self) -> str:
        """Compact shape: `[]` one value, `[8]` eight, `[?]` any number. Steps come first."""
        inner = "[?]" if self.length is None else "[]" if self.length == 1 else f"[{self.length}]"
        if not self.sequence:
            return inner
        steps = self.steps or (0, 0)
        first = str(steps[0]) if steps[0] == steps[1] else "?"
        return f"[{first}]" if inner == "[]" else f"[{first}, {inner[1:]}"


@dataclass(frozen=True, slots=True)
class FileSchema:
    """Schema of one file, or of several files (`file` is then empty)."""

    file: str
    records: int
    features: tuple[FeatureSchema, ...]


def infer_features(facts: Iterable[FeatureFacts], records: int) -> Iterator[FeatureSchema]:
    """Yield the features observed in these records, in order."""
    grouped: dict[tuple[bool, str], list[FeatureFacts]] = {}
    for fact in facts:
        grouped.setdefault((fact.sequence, fact.name), []).append(fact)
    for (sequence, name), group in sorted(grouped.items()):
        merged = group[0]
        for fact in group[1:]:
            merged = merged.merged(fact)
        lengths = merged.lengths
        yield FeatureSchema(
            name=name,
            sequence=sequence,
            kinds=tuple(sorted(fact.kind for fact in group if fact.kind)),
            length=lengths[0] if lengths and lengths[0] == lengths[1] else None,
            lengths=lengths,
            steps=merged.steps,
            present=merged.present,
            records=records,
            low=merged.low,
            high=merged.high,
            nans=merged.nans,
            sizes=merged.sizes,
            utf8=merged.utf8,
        )


def schema_of(file_schema: FileSchema) -> Schema:
    """Return the schema that these records suggest. All of them fit it.

    Logical types cannot be observed, so no feature has a meaning. Raises SchemaMismatchError for a
    feature with two kinds, or without a known kind.
    """
    features = tuple(build_schema(feature) for feature in file_schema.features)
    sequence = any(feature.sequence for feature in features)
    return Schema(features, "sequence_example" if sequence else "example")


def build_schema(feature: FeatureSchema) -> Feature:
    """Return the feature that these records suggest."""
    if len(feature.kinds) > 1:
        raise SchemaMismatchError(
            f"feature {feature.name!r} has values of several kinds: {', '.join(feature.kinds)}",
            code="mixed-kinds",
            hint=Hint.of("rewrite the records so that the feature has a single kind"),
            feature=feature.name,
        )
    if not feature.kinds:
        raise SchemaMismatchError(
            f"feature {feature.name!r}: unknown kind, since no record has a step",
            code="unknown-kind",
            hint=Hint.of("declare the schema by hand"),
            feature=feature.name,
        )
    return Feature(
        name=feature.name,
        kind=feature.kinds[0],
        # Empty lists do not predict a length.
        shape=(feature.length or None,) if feature.length != 1 else (),
        required=feature.required,
        sequence=feature.sequence,
        nan=feature.nans > 0,
    )


__all__ = [
    "FeatureDifference",
    "FeatureSchema",
    "FileSchema",
    "SchemaReport",
    "feature_spec",
    "infer_schema",
    "schema_of",
]

_TF_DTYPES = {"bytes": "tf.string", "float": "tf.float32", "int64": "tf.int64"}


@dataclass(frozen=True, slots=True)
class FeatureDifference:
    """Feature that differs between files, with its form in each."""

    name: str
    sequence: bool
    what: tuple[str, ...]
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """Schema of all files together, the schema of each file, and their differences."""

    merged: FileSchema
    files: list[FileSchema]
    differences: list[FeatureDifference]


def infer_schema(
    paths: Sequence[Path | str],
    *,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[Path, int], None] | None = None,
) -> SchemaReport:
    """Read every record of every file in parallel, and infer the features.

    Raises CorruptFileError for a corrupt record or a payload that is not an Example.
    """
    named = parse_local_paths(paths)
    each = divide_workers(len(named), workers)

    def gather(path: Path) -> tuple[int, dict[FactsKey, FeatureFacts]]:
        report = None if progress is None else partial(progress, path)
        return _gather_facts(path, limits, each, report)

    records = 0
    merged: dict[FactsKey, FeatureFacts] = {}
    files: list[FileSchema] = []
    for path, (count, facts) in zip(named, run_tasks(gather, named, workers=workers), strict=True):
        files.append(FileSchema(str(path), count, tuple(infer_features(facts.values(), count))))
        merge_facts(merged, facts.values())
        records += count
    whole = FileSchema("", records, tuple(infer_features(merged.values(), records)))
    return SchemaReport(whole, files, list(_differences(whole, files)))


def _gather_facts(
    path: Path, limits: Limits, workers: int, progress: Callable[[int], None] | None
) -> tuple[int, dict[FactsKey, FeatureFacts]]:
    def gather(block: RecordBlock) -> tuple[int, list[FeatureFacts]]:
        try:
            return len(block.starts), kernel.facts(block.data, block.starts, block.lengths)
        except ExampleError as error:
            fault = build_example_error(block, error.record, error)
            raise CorruptFileError.of(path, fault) from None

    records = 0
    facts: dict[FactsKey, FeatureFacts] = {}
    for count, block_facts in map_blocks(
        path, gather, limits=limits, workers=workers, progress=progress
    ):
        records += count
        merge_facts(facts, block_facts)
    return records, facts


def _differences(whole: FileSchema, files: Sequence[FileSchema]) -> Iterator[FeatureDifference]:
    """Yield features that are missing or differ in kind, shape or presence between files.

    A file without records has no features and differs from no other file.
    """
    files_with_records = [file for file in files if file.records]
    by_file = {
        file.file: {(f.sequence, f.name): f for f in file.features} for file in files_with_records
    }
    for feature in whole.features:
        by_name = {
            name: features.get((feature.sequence, feature.name))
            for name, features in by_file.items()
        }
        aspects = [
            aspect
            for aspect, values in (
                ("missing", {own is None for own in by_name.values()}),
                ("kind", {own.kind for own in by_name.values() if own}),
                ("shape", {own.shape for own in by_name.values() if own}),
                ("presence", {own.required for own in by_name.values() if own}),
            )
            if len(values) > 1
        ]
        if aspects:
            yield FeatureDifference(
                feature.name,
                feature.sequence,
                tuple(aspects),
                {name: _describe_feature(own) for name, own in by_name.items()},
            )


def _describe_feature(feature: FeatureSchema | None) -> str:
    if feature is None:
        return "missing"
    return f"{feature.kind} {feature.shape} {'required' if feature.required else 'optional'}"


def feature_spec(schema: FileSchema) -> str:
    """Return the schema as Python code for `tf.io.parse_example` and similar parsers."""
    sequence = any(feature.sequence for feature in schema.features)
    blocks = [("context_features" if sequence else "features", False)]
    blocks += [("sequence_features", True)] if sequence else []
    lines: list[str] = []
    for title, of_sequence in blocks:
        lines.append(f"{title} = {{")
        lines += [
            f"    {_quoted(feature.name)}: {spec},"
            for feature in schema.features
            if feature.sequence == of_sequence and (spec := _spec(feature))
        ]
        lines += [
            f"    # {_quoted(feature.name)}: {feature.kind}, which no one parser can read"
            for feature in schema.features
            if feature.sequence == of_sequence and not _spec(feature)
        ]
        lines.append("}")
    return "\n".join(lines) + "\n"


def _spec(feature: FeatureSchema) -> str | None:
    if len(feature.kinds) != 1:
        return None
    dtype = _TF_DTYPES[feature.kinds[0]]
    if feature.length is None or not feature.length or not feature.required:
        return f"tf.io.VarLenFeature({dtype})"
    shape = "[]" if feature.length == 1 else f"[{feature.length}]"
    if feature.sequence:
        return f"tf.io.FixedLenSequenceFeature({shape}, {dtype})"
    return f"tf.io.FixedLenFeature({shape}, {dtype})"


def _quoted(name: str) -> str:
    """Return a name as a Python literal. JSON escapes are valid and allow no line breaks."""
    return json.dumps(name, ensure_ascii=False)
