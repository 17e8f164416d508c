"""The steps of a record, and the places it went to, as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.cli.errors import render_hint
from shardline.provenance.steps import SourceRow, Step
from shardline.text import counted, escaped, human_bytes, listed, when

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shardline.hints import Hint
    from shardline.lineage.trace_down import Descendants
    from shardline.provenance.feature_origins import FieldOrigin
    from shardline.provenance.steps import Fate, Making, Place, Spread, Unknown

_SIDES = ("left", "right")


def step_lines(step: Step) -> Iterator[str]:
    """A record and what it was made of, one below the other; the two records of a pair indented.

    Not by recursion: a record that was rebuilt each day has come a long way.
    """
    waiting: list[tuple[str, Step | SourceRow | Unknown, str]] = [("", step, "")]
    while waiting:
        indent, one, side = waiting.pop()
        if not isinstance(one, Step):
            yield f"{indent}{side}{_leaf(one)}"
            continue
        erased = _erased_words(one, first=one is step)
        yield f"{indent}{side}{one.version}@{one.snapshot} record {one.record}{erased}"
        reused = f"; reused in entry {one.reused}" if one.reused is not None else ""
        yield f"{indent}│ {making_words(one.made)}{reused}"
        yield f"{indent}│ record {one.shard_record} of {one.shard}"
        yield from (f"{indent}│ {line}" for line in _field_lines(one.fields))
        if one.fate is not None and not one.erased:
            yield f"{indent}│ {_given_up(one.fate)}"
        if one.remark:
            yield f"{indent}│ {escaped(one.remark)}"
        pair = len(one.of) > 1
        for at, other in reversed(list(enumerate(one.of))):
            waiting.append((indent + "  " * pair, other, f"{_SIDES[at]}: " if pair else ""))


def _erased_words(step: Step, *, first: bool) -> str:
    """That a record was erased, or the first of all is of one that was."""
    if step.fate is not None and step.erased:
        return f": ERASED in entry {step.fate.entry}, {when(step.fate.time)}; {_file(step.fate)}"
    of = next((one for one in step.steps if one.erased), None) if first else None
    if of is None:
        return ""
    return f": made of {of.version}@{of.snapshot} record {of.record}, which was ERASED"


def _given_up(fate: Fate) -> str:
    if fate.operation == "erase":
        return f"its shard was given up in entry {fate.entry} for erased records; {_file(fate)}"
    return f"its shard went to vacuum in entry {fate.entry}; {_file(fate)}"


def _file(fate: Fate) -> str:
    return "its file is there until vacuum deletes it" if fate.there else "its file is deleted"


def making_words(made: Making) -> str:
    """`append, entry 4, 2026-11-16 04:00, run 1a2b, code 9f3e`."""
    told = [escaped(made.operation), f"entry {made.entry}", when(made.time)]
    told += [f"run {escaped(made.maker.run)}"] if made.maker.run else []
    told += [f"code {escaped(made.maker.code)}"] if made.maker.code else []
    return ", ".join(told)


def _field_lines(fields: Mapping[str, FieldOrigin]) -> Iterator[str]:
    """Which features were taken over as they are, and where the others come from."""
    kept = [name for name, one in fields.items() if one.how == "kept"]
    several = len({version for one in fields.values() for version, _ in one.of}) > 1
    if kept:
        yield f"kept: {escaped(listed(kept))}"
    for name, one in fields.items():
        if one.how != "kept":
            names = [f"{pair[0]}:{pair[1]}" if several else pair[1] for pair in one.of]
            word = "of" if one.how == "computed" else "from"
            of = f" {word} {escaped(listed(names))}" if names else ""
            by = f" by {escaped(one.by)}" if one.by else ""
            yield f"{escaped(name)}: {one.how}{by}{of}"


def _leaf(leaf: SourceRow | Unknown) -> str:
    if not isinstance(leaf, SourceRow):
        return f"not known: {escaped(leaf.why)}{_hint(leaf.hint)}"
    source = leaf.source
    told = f"{escaped(source.shown)}, {leaf.where}"
    if source.sha256 is not None and source.size is not None:
        told += f" ({human_bytes(source.size)}, sha256 {source.sha256[:12]}…)"
    if leaf.refused:
        told += f"; {counted(leaf.refused, 'row')} before it went to quarantine"
    elif leaf.without_record:
        told += f"; {counted(leaf.without_record, 'row')} before it gave no record"
    return told


def spread_lines(found: Descendants, all_of_it: str) -> Iterator[str]:
    """What was made of a record: how much of it each version has, then the first of each."""
    versions = found.versions
    yield "records that are it, or were made of it, by version:"
    yield from _table(versions)
    for one in versions:
        yield ""
        yield one.version
        for place in found.places(one.version):
            yield f"  {_place(place)}"
        if one.listed < one.ever:
            yield f"  … and {one.ever - one.listed:,} more: {all_of_it}"


def _table(versions: Sequence[Spread]) -> Iterator[str]:
    """A row for each version, then who saw any of it."""
    gaps = any(one.gaps for one in versions)
    rows = [("version", "now", "ever", *(["gaps"] if gaps else []), "snapshots")]
    for one in versions:
        held = listed(map(_span, one.held)) if one.held else "none"
        counts = [f"{one.now:,}", f"{one.ever:,}", *([f"{one.gaps:,}"] if gaps else [])]
        rows.append((one.version, *counts, held))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *counts, last in rows:
        numbers = (f"{cell:>{width}}" for cell, width in zip(counts, widths[1:-1], strict=True))
        yield "  ".join((f"{first:{widths[0]}}", *numbers, last))
    for one in versions:
        for name in one.consumers:
            yield f"seen by {escaped(name)} of {one.version}"


def _place(place: Place) -> str:
    made = making_words(place.made)
    if place.record is None:
        why = escaped(place.why)
        named = "" if place.shard in place.why else f" ({place.shard})"
        return f"{made}: {why}{named}{_hint(place.hint)}"
    others = [_span(span) for span in place.held]
    held = f", in snapshots {listed(others)}" if others != [f"{place.snapshot}"] else ""
    return f"{place.version}@{place.snapshot} record {place.record}{held}; {made}"


def _hint(hint: Hint | None) -> str:
    return "" if hint is None else f"; {render_hint(hint)}"


def _span(span: tuple[int, int]) -> str:
    return f"{span[0]}" if span[0] == span[1] else f"{span[0]} to {span[1]}"
