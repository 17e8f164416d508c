"""Infer the schema of TFRecord files from all their records, and show where files differ."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from shardline import kernel
from shardline.errors import DamagedFileError, ExampleError
from shardline.execution.threads import run_tasks, workers_per_task
from shardline.kernel.types import FactsKey, FeatureFacts, merge_facts
from shardline.paths import local_paths
from shardline.schema.inference import FeatureSchema, FileSchema, features_of, schema_of
from shardline.tfrecord.examples import example_fault
from shardline.tfrecord.parallel import map_blocks
from shardline.tfrecord.reader import DEFAULT_LIMITS, Block, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = [
    "Difference",
    "FeatureSchema",
    "FileSchema",
    "SchemaReport",
    "feature_spec",
    "infer_schema",
    "schema_of",
]

_TF_DTYPES = {"bytes": "tf.string", "float": "tf.float32", "int64": "tf.int64"}


@dataclass(frozen=True, slots=True)
class Difference:
    """A feature that is not the same in all files: how each of them has it."""

    name: str
    sequence: bool
    what: tuple[str, ...]
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """The schema of all files together, of each, and where they differ."""

    merged: FileSchema
    files: list[FileSchema]
    differences: list[Difference]


def infer_schema(
    paths: Sequence[Path | str],
    *,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[Path, int], None] | None = None,
) -> SchemaReport:
    """Read every record of every file, side by side, and tell what features there are.

    Raises DamagedFileError at a damaged record or a payload that is no Example.
    """
    named = local_paths(paths)
    each = workers_per_task(len(named), workers)

    def gather(path: Path) -> tuple[int, dict[FactsKey, FeatureFacts]]:
        tell = None if progress is None else partial(progress, path)
        return _gather_facts(path, limits, each, tell)

    records = 0
    merged: dict[FactsKey, FeatureFacts] = {}
    files: list[FileSchema] = []
    for path, (count, facts) in zip(named, run_tasks(gather, named, workers=workers), strict=True):
        files.append(FileSchema(str(path), count, tuple(features_of(facts.values(), count))))
        merge_facts(merged, facts.values())
        records += count
    whole = FileSchema("", records, tuple(features_of(merged.values(), records)))
    return SchemaReport(whole, files, list(_differences(whole, files)))


def _gather_facts(
    path: Path, limits: Limits, workers: int, progress: Callable[[int], None] | None
) -> tuple[int, dict[FactsKey, FeatureFacts]]:
    def gather(block: Block) -> tuple[int, list[FeatureFacts]]:
        try:
            return len(block.starts), kernel.facts(block.data, block.starts, block.lengths)
        except ExampleError as error:
            fault = example_fault(block, error.record, error)
            raise DamagedFileError.of(path, fault) from None

    records = 0
    facts: dict[FactsKey, FeatureFacts] = {}
    for count, found in map_blocks(path, gather, limits=limits, workers=workers, progress=progress):
        records += count
        merge_facts(facts, found)
    return records, facts


def _differences(whole: FileSchema, files: Sequence[FileSchema]) -> Iterator[Difference]:
    """Features that are missing, or of another kind, shape or presence, in some file with records.

    An empty file says nothing about features and differs from none.
    """
    told = [file for file in files if file.records]
    by_file = {file.file: {(f.sequence, f.name): f for f in file.features} for file in told}
    for feature in whole.features:
        found = {
            name: features.get((feature.sequence, feature.name))
            for name, features in by_file.items()
        }
        what = [
            word
            for word, values in (
                ("missing", {one is None for one in found.values()}),
                ("kind", {one.kind for one in found.values() if one}),
                ("shape", {one.shape for one in found.values() if one}),
                ("presence", {one.required for one in found.values() if one}),
            )
            if len(values) > 1
        ]
        if what:
            yield Difference(
                feature.name,
                feature.sequence,
                tuple(what),
                {name: _told(one) for name, one in found.items()},
            )


def _told(feature: FeatureSchema | None) -> str:
    if feature is None:
        return "missing"
    return f"{feature.kind} {feature.shape} {'required' if feature.required else 'optional'}"


def feature_spec(schema: FileSchema) -> str:
    """The schema as Python text for `tf.io.parse_example` and its kin, ready to paste."""
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
    """A name as Python text: JSON's escapes are Python's, and nothing can end the line."""
    return json.dumps(name, ensure_ascii=False)
