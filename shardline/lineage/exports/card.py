"""A dataset card: one page of Markdown that tells people what a snapshot is, and what it is not.

It begins with the YAML header that Hugging Face reads. Nothing in it is taken from the records but
how many have each declared label.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardline.lineage.exports.about import NOTHING_SAID
from shardline.lineage.exports.card_history import history, lineage, what_is_gone
from shardline.lineage.exports.gone import gone_files, words_for
from shardline.lineage.exports.markdown import table, text, yaml
from shardline.provenance.consumers import all_consumers
from shardline.schema import shapes
from shardline.schema.logical_types import Category, Image, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.lineage.exports.about import About
    from shardline.lineage.exports.counts import LabelCounts
    from shardline.lineage.exports.gone import GoneFile
    from shardline.log.snapshot import StoredSnapshot
    from shardline.provenance.catalog import Catalog
    from shardline.schema.schema import Feature

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


def dataset_card(
    catalog: Catalog,
    snapshot: StoredSnapshot,
    *,
    about: About = NOTHING_SAID,
    counts: Sequence[LabelCounts] | None = None,
) -> str:
    """The card of a snapshot. `counts` are of its labels; None if they were not counted.

    Of a snapshot with files that are gone it tells which, and not how to read it.
    """
    gone = gone_files(catalog, snapshot)
    lines = [
        "---",
        *yaml(_header(snapshot, about)),
        "---",
        "",
        f"# {snapshot.version}, snapshot {snapshot.number}",
        "",
        *_intro(snapshot, gone),
        *(what_is_gone(snapshot, gone) if gone else ()),
        "## Fields",
        "",
        *_fields(snapshot),
        *_labels(counts),
        *_checks(catalog, snapshot),
        *history(catalog, snapshot),
        *lineage(catalog, snapshot),
        *_consumers(catalog, snapshot),
        *(() if gone else _reading(snapshot)),
        *_terms(about),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _header(snapshot: StoredSnapshot, about: About) -> dict[str, Any]:
    dataset, _, version = snapshot.version.partition("/")
    told: dict[str, Any] = {"pretty_name": f"{dataset} {version}"}
    if about.license:
        told["license"] = about.license
    told["size_categories"] = [
        next((name for most, name in _SIZES if snapshot.records < most), "n>1B")
    ]
    told["tags"] = ["tfrecord", "shardline"]
    features = [{"name": one.name, **_kind(one)} for one in snapshot.schema.features]
    told["dataset_info"] = {
        **({"features": features} if features else {}),
        "splits": [
            {"name": "train", "num_bytes": snapshot.bytes, "num_examples": snapshot.records}
        ],
        "dataset_size": snapshot.bytes,
    }
    return told


def _kind(feature: Feature) -> dict[str, Any]:
    """What Hugging Face calls a feature's kind: of a list `sequence`, of one value `dtype`."""
    kind: Any = _dtype(feature)
    for _ in range(len(feature.shape) - 1 + feature.sequence):
        kind = {"sequence": kind}
    return {"sequence" if feature.shape or feature.sequence else "dtype": kind}


def _dtype(feature: Feature) -> Any:  # noqa: ANN401 - a name, or what tells the labels
    meaning = feature.meaning
    if isinstance(meaning, Image):
        return "image"
    if isinstance(meaning, Category) and meaning.labels and feature.kind == "int64":
        names = {str(number): label for number, label in enumerate(meaning.labels)}
        return {"class_label": {"names": names}}
    text_like = isinstance(meaning, Text | Category) and feature.kind == "bytes"
    return "string" if text_like else _DTYPES[feature.kind]


def _intro(snapshot: StoredSnapshot, gone: Sequence[GoneFile]) -> Iterator[str]:
    if snapshot.schema.doc.strip():
        yield from (text(snapshot.schema.doc), "")
    state = "rejected" if snapshot.rejected else "not published"
    state = "published" if snapshot.published else state
    if gone:
        state += f"; {words_for(gone)}"
    yield from table(
        ("what", "is"),
        (
            ("records", f"{snapshot.records:,}"),
            ("bytes", f"{snapshot.bytes:,}{_alone(snapshot)}"),
            ("shards", f"{len(snapshot.shards):,}"),
            ("made", f"{snapshot.time:%Y-%m-%d %H:%M} UTC"),
            ("state", state),
            ("records are", f"`{snapshot.schema.payload}`"),
            ("content digest", f"`{snapshot.content}`"),
            ("schema fingerprint", f"`{snapshot.schema.fingerprint}`"),
        ),
    )
    yield ""


def _alone(snapshot: StoredSnapshot) -> str:
    """What is not counted, of a snapshot whose records do not lie in its own files alone."""
    return "" if _is_plain(snapshot) else " (without the files of other versions that it needs)"


def _is_plain(snapshot: StoredSnapshot) -> bool:
    return not any(shard.base or shard.virtual for shard in snapshot.shards)


def _fields(snapshot: StoredSnapshot) -> Iterator[str]:
    features = snapshot.schema.features
    if not features:
        yield from ("The records are opaque: no schema tells what is in them.", "")
        return
    rows = (
        (
            f"{text(one.name)}{' (per step)' if one.sequence else ''}",
            one.kind,
            text(shapes.shown(one.shape)),
            "yes" if one.required else "no",
            "" if one.meaning is None else text(one.meaning),
            text(one.doc),
        )
        for one in features
    )
    yield from table(("field", "kind", "shape", "required", "meaning", "about"), rows)
    yield ""


def _labels(counts: Sequence[LabelCounts] | None) -> Iterator[str]:
    for one in counts or ():
        yield from (f"## Records by {text(one.feature)}", "")
        total = max(sum(one.labels.values()) + one.of_others + one.missing, 1)
        listed = list(one.labels.items())[:_SHOWN_LABELS]
        rows = [(text(label), f"{count:,}", f"{count / total:.1%}") for label, count in listed]
        left = sum(count for _, count in list(one.labels.items())[_SHOWN_LABELS:])
        if left:
            rows.append((f"{len(one.labels) - _SHOWN_LABELS} more", f"{left:,}", ""))
        if one.others:
            rows.append((f"{one.others:,} not declared", f"{one.of_others:,}", ""))
        if one.missing:
            rows.append(("none", f"{one.missing:,}", ""))
        yield from table(("label", "times", "share"), rows)
        yield ""


def _checks(catalog: Catalog, snapshot: StoredSnapshot) -> Iterator[str]:
    yield from ("## Checks", "")
    needed = (*snapshot.checks.shard, *snapshot.checks.snapshot)
    if not needed:
        yield from ("Its version requires no checks: it counts as published without any.", "")
        return
    state = catalog.version(snapshot.version).state
    stays, moment = state.stays.at(snapshot.number), state.timeline.moment(snapshot.number)
    rows = []
    for check in snapshot.checks.shard:
        bit = 1 << state.bits.get(check, 31)
        passed = sum(bool(stay.passed & bit) for stay in stays)
        rows.append((text(check), "each shard", f"passed on {passed:,} of {len(stays):,}"))
    for check in snapshot.checks.snapshot:
        bit = 1 << state.bits.get(check, 31)
        word = "passed" if moment.passed & bit else "failed" if moment.failed & bit else "not run"
        rows.append((text(check), "the snapshot", word))
    yield from table(("check", "on", "result"), rows)
    yield ""


def _consumers(catalog: Catalog, snapshot: StoredSnapshot) -> Iterator[str]:
    known = all_consumers(snapshot.version, catalog.entries(snapshot.version))
    read = [one for one in known if one.snapshot == snapshot.number]
    if not read:
        return
    yield from ("## Read by", "")
    rows = (
        (text(one.name), text(one.run), text(one.commit), f"{one.since:%Y-%m-%d}") for one in read
    )
    yield from table(("consumer", "run", "commit", "since"), rows)
    yield ""


def _reading(snapshot: StoredSnapshot) -> Iterator[str]:
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


def _terms(about: About) -> Iterator[str]:
    told = {
        "License": about.license,
        "By": about.creator,
        "Page": about.url,
        "To cite it": about.citation,
    }
    if any(told.values()):
        yield from ("## Terms", "")
        yield from (f"- {name}: {text(value)}" for name, value in told.items() if value)
