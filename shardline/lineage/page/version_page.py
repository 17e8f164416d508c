"""The part of the report page about a version: its snapshots, sizes and features."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import ShardlineError
from shardline.lineage.check_results import iter_check_results
from shardline.lineage.page.page_model import (
    MAX_NAME,
    PageCheckResult,
    PageCommitInfo,
    PageEvent,
    PageFeature,
    PageHistory,
    PageSnapshot,
    VersionPage,
    format_second,
    sanitize_text,
)
from shardline.log.entry import Entry
from shardline.log.publication import list_published
from shardline.log.state import RESERVED_CHECKS
from shardline.operations.verify_log import read_log_history
from shardline.provenance.entry_text import format_entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shardline.lineage.page.page_model import PageChange, PublicationStatus
    from shardline.log.state import State
    from shardline.provenance.feature_origin import FeatureOrigin
    from shardline.provenance.log_index import LogIndex
    from shardline.schema.schema import Feature, Schema

_MAX_EVENTS = 12
_MAX_SOURCES = 4
_MAX_PINS = 40
_BUCKETS = 48


@dataclass(frozen=True, slots=True)
class VersionLog:
    """The readable entries of a version. A corrupt log has no `state`, and a `problem`."""

    name: str
    entries: Sequence[Entry]
    state: State | None
    problem: str = ""

    @classmethod
    def read(cls, index: LogIndex, name: str) -> VersionLog:
        """Read the log of a version, as much of it as can be read."""
        version = index.version(name)
        try:
            return cls(name, index.entries(name), version.state)
        except ShardlineError as error:
            history = read_log_history(version.log)
            entries = [entry for entry in history if isinstance(entry, Entry)][::-1]
            return cls(name, entries, None, sanitize_text(error))

    def get_statuses(self) -> dict[int, PublicationStatus]:
        """Return the publication status of each snapshot."""
        rejected = {entry.rejects for entry in self.entries if entry.rejects is not None}
        published = list_published(self.state) if self.state and self.state.snapshot else None
        statuses: dict[int, PublicationStatus] = {}
        for entry in self.entries:
            number = entry.snapshot
            if not entry.changes_data:
                continue
            if number in rejected:
                statuses[number] = "rejected"
            elif published is None:
                statuses[number] = "unknown"
            else:
                statuses[number] = "published" if published[number - 1] else "waiting"
        return statuses


def build_version_page(
    index: LogIndex, log: VersionLog, previous: str | None, max_snapshots: int
) -> VersionPage:
    """Build the page of a version.

    Args:
        index: The logs of the root.
        log: The log of the version.
        previous: The version of the dataset before it, for a version without inputs.
        max_snapshots: How many snapshots to list, the latest.
    """
    entries, state = log.entries, log.state
    if not entries:
        return VersionPage(log.name, problem=log.problem)
    last = entries[-1]
    statuses = log.get_statuses()
    schema = next((entry.schema for entry in reversed(entries) if entry.schema is not None), None)
    compared, features = (
        ((), ()) if schema is None else _compare_features(index, schema, entries, previous)
    )
    operations = Counter(
        sanitize_text(entry.operation, 80) for entry in entries if entry.changes_data
    )
    checks = () if state is None else (*state.checks.shard, *state.checks.snapshot)
    tags, pins = ({}, {}) if state is None else (state.tags, state.pins)
    return VersionPage(
        log.name,
        problem=log.problem,
        created=format_second(entries[0].time),
        changed=format_second(last.time),
        entries=len(entries),
        snapshots=last.snapshot,
        published_snapshots=sum(status == "published" for status in statuses.values()),
        published=last.published,
        status=statuses.get(last.snapshot, "unknown"),
        records=last.totals.records,
        bytes=last.totals.bytes,
        shards=last.totals.shards,
        payload="" if schema is None else schema.payload,
        doc="" if schema is None else sanitize_text(schema.doc),
        fingerprint=last.fingerprint or "",
        checks=tuple(sanitize_text(check, 80) for check in checks),
        tags=tuple((sanitize_text(name), tag.snapshot or 0) for name, tag in sorted(tags.items())),
        pins=tuple(
            (sanitize_text(name), pin.snapshot or 0, sanitize_text(pin.reason))
            for name, pin in sorted(pins.items())[:_MAX_PINS]
        ),
        operations=tuple(operations.most_common()),
        compared=compared,
        features=features,
        history=_build_history(log, statuses, max_snapshots),
    )


def _build_history(
    log: VersionLog, statuses: Mapping[int, PublicationStatus], max_snapshots: int
) -> PageHistory:
    commits: dict[PageCommitInfo, int] = {}
    changes = [entry for entry in log.entries if entry.changes_data]
    listed = changes[-max_snapshots:]
    events = _group_events(log.entries, commits, listed[0].number if listed else 0)
    failures = {
        (attestation.check, subject): attestation.detail
        for entry in log.entries
        for attestation in entry.attestations
        if not attestation.passed and attestation.check not in RESERVED_CHECKS
        for subject in (
            attestation.shards if attestation.content is None else (attestation.content,)
        )
    }
    snapshots = [
        PageSnapshot(
            entry.snapshot,
            entry.number,
            format_second(entry.time),
            sanitize_text(entry.operation, MAX_NAME),
            format_entry(entry),
            statuses[entry.snapshot],
            entry.totals.records,
            entry.totals.bytes,
            entry.totals.shards,
            entry.content or "",
            entry.digest,
            commit=_get_commit_index(commits, entry),
            inputs=tuple((source.label, source.snapshot) for source in entry.inputs),
            sources=tuple(
                sanitize_text(source.label, MAX_NAME) for source in entry.sources[:_MAX_SOURCES]
            ),
            more_sources=max(len(entry.sources) - _MAX_SOURCES, 0),
            refs=tuple(_iter_refs(log.state, entry.snapshot)),
            checks=tuple(_iter_page_checks(log.state, entry.snapshot, failures)),
            events=tuple(events[entry.snapshot][:_MAX_EVENTS]),
            more_events=max(len(events[entry.snapshot]) - _MAX_EVENTS, 0),
        )
        for entry in listed
    ]
    first_events = events[0][:_MAX_EVENTS] if len(listed) == len(changes) else ()
    return PageHistory(
        tuple(commits),
        tuple(first_events),
        tuple(reversed(snapshots)),
        tuple(_sample_sizes(changes, statuses)),
    )


def _group_events(
    entries: Sequence[Entry], commits: dict[PageCommitInfo, int], first: int
) -> dict[int, list[PageEvent]]:
    """Group the entries without a snapshot by the snapshot before them.

    Leaves out entries between the first snapshot and entry `first`.
    """
    events: dict[int, list[PageEvent]] = defaultdict(list)
    published = None
    for entry in entries:
        moved, published = entry.published != published, entry.published
        if entry.changes_data or (entry.snapshot and entry.number <= first):
            continue
        text = format_entry(entry)
        if moved:
            label = f"snapshot {published}" if published else "nothing"
            text += f"{'; ' if text else ''}published: {label}"
        event = PageEvent(
            entry.number,
            format_second(entry.time),
            sanitize_text(entry.operation, MAX_NAME),
            text,
            _get_commit_index(commits, entry),
        )
        events[entry.snapshot].append(event)
    return events


def _get_commit_index(commits: dict[PageCommitInfo, int], entry: Entry) -> int:
    info = entry.commit_info
    texts = (info.release, info.host, info.run, info.code)
    commit = PageCommitInfo(*(sanitize_text(text, MAX_NAME) for text in texts))
    return commits.setdefault(commit, len(commits))


def _iter_page_checks(
    state: State | None, number: int, failures: Mapping[tuple[str, str], str]
) -> Iterator[PageCheckResult]:
    for result in () if state is None else iter_check_results(state, number):
        detail = failures.get((result.check, result.first_failure), "")
        yield PageCheckResult(
            sanitize_text(result.check, MAX_NAME),
            result.outcome,
            (result.failed or result.missing) * result.on_shards,
            result.required,
            sanitize_text(detail),
        )


def _iter_refs(state: State | None, number: int) -> Iterator[str]:
    for kind, refs in () if state is None else (("tag", state.tags), ("pin", state.pins)):
        for name, ref in sorted(refs.items()):
            if ref.snapshot == number:
                yield f"{kind} {sanitize_text(name, MAX_NAME)}"


def _sample_sizes(
    changes: Sequence[Entry], statuses: Mapping[int, PublicationStatus]
) -> Iterator[tuple[int, int, int, int, str]]:
    """Sample a few hundred snapshots, with the largest and smallest of each stretch."""
    chosen = {0} if changes else set()
    for bucket in np.array_split(np.arange(len(changes)), min(_BUCKETS, max(len(changes), 1))):
        indexes: list[int] = bucket.tolist()
        for size in (lambda i: changes[i].totals.records, lambda i: changes[i].totals.bytes):
            chosen |= {min(indexes, key=size), max(indexes, key=size)} if indexes else set()
        chosen |= set(indexes[-1:])
    for index in sorted(chosen):
        entry = changes[index]
        yield (
            int(entry.time.timestamp()),
            entry.totals.records,
            entry.totals.bytes,
            entry.snapshot,
            statuses[entry.snapshot][0],
        )


def _compare_features(
    index: LogIndex, schema: Schema, entries: Sequence[Entry], previous: str | None
) -> tuple[tuple[str, ...], tuple[PageFeature, ...]]:
    """Compare features with those of the latest inputs, or without inputs of `previous`.

    Returns the versions of the comparison, and the features, removed ones last.
    """
    derivation = next((entry for entry in reversed(entries) if entry.inputs), None)
    inputs = () if derivation is None else derivation.inputs
    names = tuple(dict.fromkeys(source.label for source in inputs))
    unchanged = tuple(_make_feature(feature, "kept") for feature in schema.features)
    try:
        origins = {} if derivation is None else index.get_origins(derivation)
        schemas = {name: index.version(name).schema for name in names}
        previous_schema = None if previous is None else index.version(previous).schema
    except (ShardlineError, LookupError, TypeError, ValueError, AttributeError):
        return (), unchanged  # The entry or a version of the comparison is corrupt.
    if origins:
        derived = _iter_derived_features(schema, origins, schemas)
        return names, (*derived, *_iter_removed_features(origins, schemas))
    if previous is None or previous_schema is None:
        return (), unchanged
    return (previous,), tuple(_iter_changed_features(schema, previous_schema))


def _iter_derived_features(
    schema: Schema, origins: Mapping[str, FeatureOrigin], schemas: Mapping[str, Schema]
) -> Iterator[PageFeature]:
    declared = {
        (name, feature.name): str(feature)
        for name, upstream in schemas.items()
        for feature in upstream.features
    }
    for feature in schema.features:
        origin = origins.get(feature.name)
        if origin is None:
            yield _make_feature(feature, "added")
            continue
        previous = declared.get(origin.upstream[0], "") if len(origin.upstream) == 1 else ""
        change = _classify_change(feature, origin, previous)
        differs = change in {"cast", "changed"} and previous != str(feature)
        yield _make_feature(feature, change, origin, previous if differs else "")


def _classify_change(feature: Feature, origin: FeatureOrigin, previous: str) -> PageChange:
    if origin.change == "computed" or not origin.upstream:
        return "added"
    if origin.change != "kept":
        return origin.change
    return "kept" if previous in {"", str(feature)} else "changed"


def _iter_removed_features(
    origins: Mapping[str, FeatureOrigin], schemas: Mapping[str, Schema]
) -> Iterator[PageFeature]:
    """Yield the features of inputs that the version has under no name."""
    taken = {
        pair
        for origin in origins.values()
        if origin.change != "computed"
        for pair in origin.upstream
    }
    for name, schema in schemas.items():
        for feature in schema.features:
            if (name, feature.name) not in taken:
                source = (name, sanitize_text(feature.name, MAX_NAME))
                yield PageFeature(
                    source[1],
                    sanitize_text(feature),
                    "removed",
                    origin=(source,),
                    doc=sanitize_text(feature.doc),
                )


def _iter_changed_features(schema: Schema, previous: Schema) -> Iterator[PageFeature]:
    removed = {feature.key: feature for feature in previous.features}
    for feature in schema.features:
        other = removed.pop(feature.key, None)
        if other is None:
            yield _make_feature(feature, "added")
        elif str(other) == str(feature):
            yield _make_feature(feature, "kept")
        else:
            yield _make_feature(feature, "changed", previous=str(other))
    for feature in removed.values():
        yield _make_feature(feature, "removed")


def _make_feature(
    feature: Feature, change: PageChange, origin: FeatureOrigin | None = None, previous: str = ""
) -> PageFeature:
    pairs = () if origin is None else origin.upstream
    return PageFeature(
        sanitize_text(feature.name, MAX_NAME),
        sanitize_text(feature),
        change,
        None if origin is None else origin.change,
        tuple((version, sanitize_text(name, MAX_NAME)) for version, name in pairs),
        "" if origin is None else sanitize_text(origin.function),
        sanitize_text(previous),
        sanitize_text(feature.doc),
    )
