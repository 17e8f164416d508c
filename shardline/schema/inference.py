"""What records show of their features, and the schema that this suggests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.errors import SchemaMismatchError
from shardline.hints import Hint
from shardline.schema.schema import Feature, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardline.kernel.types import FeatureFacts, Kind


@dataclass(frozen=True, slots=True)
class FeatureSchema:
    """One feature as all records together show it.

    `kinds` has more than one entry where records disagree, and none where no record had a value
    to tell. `length` is the number of values each list has, None if it varies. For a feature of
    the feature_lists, `steps` is the same for the number of steps.
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
        """Whether every record has the feature."""
        return self.present == self.records

    @property
    def kind(self) -> str:
        """The kind, or what stands in for it where there is not exactly one."""
        return "|".join(self.kinds) or "unknown"

    @property
    def shape(self) -> str:
        """The shape in short: `[]` one value, `[8]` eight, `[?]` any number; steps come first."""
        inner = "[?]" if self.length is None else "[]" if self.length == 1 else f"[{self.length}]"
        if not self.sequence:
            return inner
        steps = self.steps or (0, 0)
        first = str(steps[0]) if steps[0] == steps[1] else "?"
        return f"[{first}]" if inner == "[]" else f"[{first}, {inner[1:]}"


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The schema of one file, or of several together (then `file` is empty)."""

    file: str
    records: int
    features: tuple[FeatureSchema, ...]


def features_of(facts: Iterable[FeatureFacts], records: int) -> Iterator[FeatureSchema]:
    """Each feature as the facts of all these records show it, in order."""
    grouped: dict[tuple[bool, str], list[FeatureFacts]] = {}
    for fact in facts:
        grouped.setdefault((fact.sequence, fact.name), []).append(fact)
    for (sequence, name), group in sorted(grouped.items()):
        together = group[0]
        for fact in group[1:]:
            together = together.merged(fact)
        lengths = together.lengths
        yield FeatureSchema(
            name=name,
            sequence=sequence,
            kinds=tuple(sorted(fact.kind for fact in group if fact.kind)),
            length=lengths[0] if lengths and lengths[0] == lengths[1] else None,
            lengths=lengths,
            steps=together.steps,
            present=together.present,
            records=records,
            low=together.low,
            high=together.high,
            nans=together.nans,
            sizes=together.sizes,
            utf8=together.utf8,
        )


def schema_of(found: FileSchema) -> Schema:
    """The schema that exactly these records suggest, and that all of them fit.

    What they mean cannot be seen, so no feature has a meaning. Raises SchemaMismatchError where
    a feature has two kinds, or none that could be told.
    """
    features = tuple(declared(feature) for feature in found.features)
    sequence = any(feature.sequence for feature in features)
    return Schema(features, "sequence_example" if sequence else "example")


def declared(found: FeatureSchema) -> Feature:
    """The feature that these records suggest."""
    if len(found.kinds) > 1:
        raise SchemaMismatchError(
            f"feature {found.name!r} has values of several kinds: {', '.join(found.kinds)}",
            code="mixed-kinds",
            hint=Hint.of("rewrite the records so that the feature has a single kind"),
            feature=found.name,
        )
    if not found.kinds:
        raise SchemaMismatchError(
            f"feature {found.name!r}: unknown kind, since no record has a step",
            code="unknown-kind",
            hint=Hint.of("declare the schema by hand"),
            feature=found.name,
        )
    return Feature(
        name=found.name,
        kind=found.kinds[0],
        # Lists that are all empty say nothing of a length to come.
        shape=(found.length or None,) if found.length != 1 else (),
        required=found.required,
        sequence=found.sequence,
        nan=found.nans > 0,
    )
