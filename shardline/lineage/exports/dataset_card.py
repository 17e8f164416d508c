"""What the data does not tell of itself: under which terms it may be used, and where it is told."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from shardline.lineage.exports.snapshot_files import format_removed_files, list_removed_files
from shardline.provenance.consumers import list_all_consumers
from shardline.provenance.entry_text import format_entry
from shardline.readers.arrow import to_arrow
from shardline.schema import shapes
from shardline.schema.logical_types import Category, Image, Text
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardline.lineage.exports.snapshot_files import RemovedFile
    from shardline.log.entry import Entry
    from shardline.log.snapshot import StoredSnapshot
    from shardline.provenance.log_index import LogIndex
    from shardline.schema.schema import Feature


@dataclass(frozen=True, slots=True)
class DatasetTerms:
    """What the owner of a dataset says of it, for a card or a Croissant file; all may be empty."""

    license: str = ""
    url: str = ""
    creator: str = ""
    citation: str = ""


NO_TERMS = DatasetTerms()


_MEANS_SOMETHING = re.compile(r"([\\`*_{}\[\]<>#|~&!$])")


def escape_markdown(value: object) -> str:
    """A foreign text in a line of Markdown: nothing in it means anything."""
    line = " ".join(str(value).split())
    printable = "".join(one if one.isprintable() else "�" for one in line)
    return _MEANS_SOMETHING.sub(r"\\\1", printable)


def format_markdown_table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """A table, whose cells are Markdown."""
    headings = list(headings)
    yield f"| {' | '.join(headings)} |"
    yield f"|{'|'.join('---' for _ in headings)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def format_yaml(told: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """A mapping as YAML; texts and numbers are written as JSON, which YAML contains."""
    for name, value in told.items():
        key = json.dumps(name) if name.isdigit() else name
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from format_yaml(value, f"{indent}  ")
        elif isinstance(value, list):
            yield f"{indent}{key}:"
            for one in value:
                yield from _format_yaml_item(one, indent)
        else:
            yield f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}"


def _format_yaml_item(one: object, indent: str) -> Iterator[str]:
    if not isinstance(one, dict):
        yield f"{indent}- {json.dumps(one, ensure_ascii=False)}"
        return
    first, *rest = format_yaml(one, f"{indent}  ")
    yield f"{indent}- {first.strip()}"
    yield from rest


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """How often each label of a feature is there.

    `labels` are the declared ones, with how often each is there. Values that are not declared may
    be anything, a person's name too: of them only is told how many different ones there are
    (`others`), and how often they are there (`of_others`).
    """

    feature: str
    labels: dict[str, int]
    missing: int = 0
    others: int = 0
    of_others: int = 0


def list_categories(snapshot: StoredSnapshot) -> list[Feature]:
    """The features of a snapshot that are categories, those of the feature_lists left out."""
    features = snapshot.schema.features
    return [one for one in features if isinstance(one.meaning, Category) and not one.sequence]


def count_labels(snapshot: StoredSnapshot) -> list[LabelCounts]:
    """The labels of each category; all records are read, if there is a category at all."""
    features = list_categories(snapshot)
    if not features:
        return []
    found: list[dict[object, int]] = [{} for _ in features]
    for batch in to_arrow(snapshot, [feature.name for feature in features]):
        for column, counts in zip(batch.columns, found, strict=True):
            for one in pc.value_counts(_flatten_column(column)).to_pylist():
                counts[one["values"]] = counts.get(one["values"], 0) + one["counts"]
    return [_make_label_counts(*both) for both in zip(features, found, strict=True)]


def _flatten_column(column: pa.Array) -> pa.Array:
    while pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    return column


def _make_label_counts(feature: Feature, counts: dict[object, int]) -> LabelCounts:
    labels = feature.meaning.labels if isinstance(feature.meaning, Category) else None
    missing = counts.pop(None, 0)
    declared = {
        label: counts.pop(place if feature.kind == "int64" else label, 0)
        for place, label in enumerate(labels or ())
    }
    return LabelCounts(feature.name, declared, missing, len(counts), sum(counts.values()))


_SHOWN_ENTRIES = 20
_SHOWN_RUN = 12
_SHOWN_GONE = 50


def format_missing_files(snapshot: StoredSnapshot, gone: Sequence[RemovedFile]) -> Iterator[str]:
    """Which files were erased or given to vacuum, and what can be read instead."""
    own = {one.shard.name for one in gone if one.version == snapshot.version}
    lost = sum(shard.records for shard in snapshot.shards if shard.name in own)
    files = format_count(len(gone), "file")
    yield from ("## What is gone", "")
    was, them = ("was", "it") if len(gone) == 1 else ("were", "them")
    yield (
        f"{files} of those that this snapshot needs {was} erased or given to vacuum"
        + (
            f", {lost:,} of its {format_count(snapshot.records, 'record')} with {them}"
            if own
            else ""
        )
        + f": {format_removed_files(gone)}. What follows is what the log tells. `shardline status "
        f"{snapshot.version}` tells which snapshot can be read now."
    )
    yield ""
    rows = (
        (one.version, f"`{one.shard.name}`", f"{one.shard.records:,}", one.why)
        for one in gone[:_SHOWN_GONE]
    )
    yield from format_markdown_table(("version", "file", "records", "what happened"), rows)
    left = len(gone) - _SHOWN_GONE
    if left > 0:
        yield from ("", f"And {format_count(left, 'more file')}: `shardline log` tells of them.")
    yield ""


def format_history(index: LogIndex, snapshot: StoredSnapshot) -> Iterator[str]:
    """What was done to the version up to the snapshot, the newest last."""
    changes = _list_changes(index, snapshot)
    yield from ("## History", "")
    left = len(changes) - _SHOWN_ENTRIES
    if left > 0:
        yield from (f"The last {_SHOWN_ENTRIES} of {len(changes):,} changes.", "")
    headings = ("snapshot", "time (UTC)", "what", "records then", "by")
    yield from format_markdown_table(headings, map(_format_history_row, changes[-_SHOWN_ENTRIES:]))
    yield ""


def _list_changes(index: LogIndex, snapshot: StoredSnapshot) -> list[Entry]:
    told = index.entries(snapshot.version)
    return [one for one in told if one.changes_data and one.snapshot <= snapshot.number]


def _format_history_row(entry: Entry) -> tuple[str, ...]:
    run = entry.maker.run
    return (
        f"{entry.snapshot}",
        f"{entry.time:%Y-%m-%d %H:%M}",
        escape_markdown(format_entry(entry, with_operation=True)),
        f"{entry.totals.records:,}",
        f"run {escape_markdown(run[:_SHOWN_RUN])}" if run else "",
    )


def format_lineage(index: LogIndex, snapshot: StoredSnapshot) -> Iterator[str]:
    """What the snapshot was made from, and each of its fields."""
    derived = [one for one in _list_changes(index, snapshot) if one.inputs]
    if not derived:
        return
    entry = derived[-1]
    yield from ("## Made from", "")
    for one in dict.fromkeys(entry.inputs):
        yield f"- {one.shown}@{one.snapshot} (entry `{one.entry}`)"
    yield ""
    origins = index.origins(entry)
    if origins:
        rows = (
            (
                escape_markdown(feature),
                origin.how,
                escape_markdown(", ".join(f"{version}: {name}" for version, name in origin.of)),
                escape_markdown(origin.by),
            )
            for feature, origin in origins.items()
        )
        yield from format_markdown_table(("field", "is", "from", "by"), rows)
        yield ""


_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
    (1_000_000_000, "100M<n<1B"),
)
_DTYPES = {"int64": "int64", "float": "float32", "bytes": "binary"}
_SHOWN_LABELS = 100


def format_dataset_card(
    index: LogIndex,
    snapshot: StoredSnapshot,
    *,
    about: DatasetTerms = NO_TERMS,
    counts: Sequence[LabelCounts] | None = None,
) -> str:
    """The card of a snapshot. `counts` are of its labels; None if they were not counted.

    Of a snapshot with files that are gone it tells which, and not how to read it.
    """
    gone = list_removed_files(index, snapshot)
    lines = [
        "---",
        *format_yaml(_get_header(snapshot, about)),
        "---",
        "",
        f"# {snapshot.version}, snapshot {snapshot.number}",
        "",
        *_format_intro(snapshot, gone),
        *(format_missing_files(snapshot, gone) if gone else ()),
        "## Fields",
        "",
        *_format_fields(snapshot),
        *_format_labels(counts),
        *_format_checks(index, snapshot),
        *format_history(index, snapshot),
        *format_lineage(index, snapshot),
        *_format_consumers(index, snapshot),
        *(() if gone else _format_reading(snapshot)),
        *_format_terms(about),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _get_header(snapshot: StoredSnapshot, about: DatasetTerms) -> dict[str, Any]:
    dataset, _, version = snapshot.version.partition("/")
    told: dict[str, Any] = {"pretty_name": f"{dataset} {version}"}
    if about.license:
        told["license"] = about.license
    told["size_categories"] = [
        next((name for most, name in _SIZES if snapshot.records < most), "n>1B")
    ]
    told["tags"] = ["tfrecord", "shardline"]
    features = [{"name": one.name, **_get_feature_kind(one)} for one in snapshot.schema.features]
    told["dataset_info"] = {
        **({"features": features} if features else {}),
        "splits": [
            {"name": "train", "num_bytes": snapshot.bytes, "num_examples": snapshot.records}
        ],
        "dataset_size": snapshot.bytes,
    }
    return told


def _get_feature_kind(feature: Feature) -> dict[str, Any]:
    """What Hugging Face calls a feature's kind: of a list `sequence`, of one value `dtype`."""
    kind: Any = _get_dtype(feature)
    for _ in range(len(feature.shape) - 1 + feature.sequence):
        kind = {"sequence": kind}
    return {"sequence" if feature.shape or feature.sequence else "dtype": kind}


def _get_dtype(feature: Feature) -> Any:  # noqa: ANN401 - a name, or what tells the labels
    meaning = feature.meaning
    if isinstance(meaning, Image):
        return "image"
    if isinstance(meaning, Category) and meaning.labels and feature.kind == "int64":
        names = {str(number): label for number, label in enumerate(meaning.labels)}
        return {"class_label": {"names": names}}
    text_like = isinstance(meaning, Text | Category) and feature.kind == "bytes"
    return "string" if text_like else _DTYPES[feature.kind]


def _format_intro(snapshot: StoredSnapshot, gone: Sequence[RemovedFile]) -> Iterator[str]:
    if snapshot.schema.doc.strip():
        yield from (escape_markdown(snapshot.schema.doc), "")
    state = "rejected" if snapshot.rejected else "not published"
    state = "published" if snapshot.published else state
    if gone:
        state += f"; {format_removed_files(gone)}"
    yield from format_markdown_table(
        ("what", "is"),
        (
            ("records", f"{snapshot.records:,}"),
            ("bytes", f"{snapshot.bytes:,}{_format_uncounted(snapshot)}"),
            ("shards", f"{len(snapshot.shards):,}"),
            ("made", f"{snapshot.time:%Y-%m-%d %H:%M} UTC"),
            ("state", state),
            ("records are", f"`{snapshot.schema.payload}`"),
            ("content digest", f"`{snapshot.content}`"),
            ("schema fingerprint", f"`{snapshot.schema.fingerprint}`"),
        ),
    )
    yield ""


def _format_uncounted(snapshot: StoredSnapshot) -> str:
    """What is not counted, of a snapshot whose records do not lie in its own files alone."""
    return "" if _is_plain(snapshot) else " (without the files of other versions that it needs)"


def _is_plain(snapshot: StoredSnapshot) -> bool:
    return not any(shard.base or shard.virtual for shard in snapshot.shards)


def _format_fields(snapshot: StoredSnapshot) -> Iterator[str]:
    features = snapshot.schema.features
    if not features:
        yield from ("The records are opaque: no schema tells what is in them.", "")
        return
    rows = (
        (
            f"{escape_markdown(one.name)}{' (per step)' if one.sequence else ''}",
            one.kind,
            escape_markdown(shapes.format_shape(one.shape)),
            "yes" if one.required else "no",
            "" if one.meaning is None else escape_markdown(one.meaning),
            escape_markdown(one.doc),
        )
        for one in features
    )
    yield from format_markdown_table(
        ("field", "kind", "shape", "required", "meaning", "about"), rows
    )
    yield ""


def _format_labels(counts: Sequence[LabelCounts] | None) -> Iterator[str]:
    for one in counts or ():
        yield from (f"## Records by {escape_markdown(one.feature)}", "")
        total = max(sum(one.labels.values()) + one.of_others + one.missing, 1)
        listed = list(one.labels.items())[:_SHOWN_LABELS]
        rows = [
            (escape_markdown(label), f"{count:,}", f"{count / total:.1%}")
            for label, count in listed
        ]
        left = sum(count for _, count in list(one.labels.items())[_SHOWN_LABELS:])
        if left:
            rows.append((f"{len(one.labels) - _SHOWN_LABELS} more", f"{left:,}", ""))
        if one.others:
            rows.append((f"{one.others:,} not declared", f"{one.of_others:,}", ""))
        if one.missing:
            rows.append(("none", f"{one.missing:,}", ""))
        yield from format_markdown_table(("label", "times", "share"), rows)
        yield ""


def _format_checks(index: LogIndex, snapshot: StoredSnapshot) -> Iterator[str]:
    yield from ("## Checks", "")
    needed = (*snapshot.checks.shard, *snapshot.checks.snapshot)
    if not needed:
        yield from ("Its version requires no checks: it counts as published without any.", "")
        return
    state = index.version(snapshot.version).state
    stays, moment = state.stays.at(snapshot.number), state.timeline.moment(snapshot.number)
    rows = []
    for check in snapshot.checks.shard:
        bit = 1 << state.bits.get(check, 31)
        passed = sum(bool(stay.passed & bit) for stay in stays)
        rows.append(
            (escape_markdown(check), "each shard", f"passed on {passed:,} of {len(stays):,}")
        )
    for check in snapshot.checks.snapshot:
        bit = 1 << state.bits.get(check, 31)
        word = "passed" if moment.passed & bit else "failed" if moment.failed & bit else "not run"
        rows.append((escape_markdown(check), "the snapshot", word))
    yield from format_markdown_table(("check", "on", "result"), rows)
    yield ""


def _format_consumers(index: LogIndex, snapshot: StoredSnapshot) -> Iterator[str]:
    known = list_all_consumers(snapshot.version, index.entries(snapshot.version))
    read = [one for one in known if one.snapshot == snapshot.number]
    if not read:
        return
    yield from ("## Read by", "")
    rows = (
        (
            escape_markdown(one.name),
            escape_markdown(one.run),
            escape_markdown(one.commit),
            f"{one.since:%Y-%m-%d}",
        )
        for one in read
    )
    yield from format_markdown_table(("consumer", "run", "commit", "since"), rows)
    yield ""


def _format_reading(snapshot: StoredSnapshot) -> Iterator[str]:
    yield from ("## How to read it", "", "```python", "from shardline import Version", "")
    yield f'snapshot = Version(ROOT, "{snapshot.version}").snapshot({snapshot.number})'
    yield "dataset = snapshot.to_tf()      # or to_arrow(), to_pandas()"
    yield from ("```", "")
    if _is_plain(snapshot):
        yield (
            "Each shard is a plain TFRecord file: `shardline files "
            f"{snapshot}` lists what to hand to `tf.data.TFRecordDataset`."
        )
    else:
        yield (
            "Its records lie in several files each, or are made when they are read: "
            f"`shardline export {snapshot} FILE` writes them to one plain TFRecord file."
        )
    yield (
        f"`shardline verify {snapshot}` checks every byte; so does `sha256sum -c` with what "
        f"`shardline describe {snapshot} --as sha256sums` writes."
    )
    yield ""


def _format_terms(about: DatasetTerms) -> Iterator[str]:
    told = {
        "License": about.license,
        "By": about.creator,
        "Page": about.url,
        "To cite it": about.citation,
    }
    if any(told.values()):
        yield from ("## Terms", "")
        yield from (f"- {name}: {escape_markdown(value)}" for name, value in told.items() if value)
