"""Audit of files other than shards: receipts, row maps, quarantine files and sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from shardline.errors import ShardlineError
from shardline.hints import Command, Hint
from shardline.lineage.audit.name_audit import has_known_parameters
from shardline.log.model import RECEIPT, REFUSED, ROWS, get_sidecar_shard, sidecar_path
from shardline.log.parameters import AppendParameters, EntryParameters, RepairParameters
from shardline.pairing.combine_spec import has_pair_selection
from shardline.sidecars.receipt import parse_receipt
from shardline.sidecars.row_map import RowMap, RowMapError
from shardline.sources import open_source
from shardline.tfrecord.hashing import hash_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.lineage.audit.audit_report import Finding, Severity
    from shardline.lineage.audit.audited_logs import AuditedLog, AuditedLogs, AuditedShard
    from shardline.log.entry import Entry
    from shardline.log.model import Source
    from shardline.sidecars.receipt import Receipt
    from shardline.sources.source_format import SourceFormat

_TRACES_RECORDS = "traces cannot find the input records of its records"
_FINDS_SHARDS = "it only helped to find an existing shard again"
_RECEIPT_LOSSES = {
    "append": "traces cannot find the source rows of its records",
    "extend": _TRACES_RECORDS,
    "migrate": _TRACES_RECORDS,
    "erase": _TRACES_RECORDS,
    "rebuild": _FINDS_SHARDS,
    "combine": _FINDS_SHARDS,
}
"""What the loss of a receipt means, by the operation that wrote the shard."""
_OVERLAY_LOSS = "it listed the records without new features, if there were any"
_ROW_MAP_SUBJECTS = {
    "combine": "input pairs",
    "repair": "records of the corrupt shard",
    "append": "source rows",
}
"""What a row map numbers, by the operation that wrote the shard."""

_RESTORE = Hint.of("restore the file from a copy of the root: nothing else depends on it")
_RESTORE_MAP = Hint.of("restore the row map from a copy of the root: nothing else depends on it")
_RESTORE_PAIRS = Hint.of(
    _RESTORE_MAP,
    "; without a copy, combine into a new version, whose shards get row maps: this version reuses "
    "its shards unchanged",
)
_RESTORE_RECEIPT = Hint.of(
    "restore the receipt from a copy of the root: traces need it to find the rows of records"
)
_CHANGED = Hint.of(
    "find out who wrote it, and restore the file from a copy of the root: traces, repairs and "
    "erasures do not use it"
)
_STALE = Hint.of("run the erase again: it finishes what was stopped")
_ERASED_SOURCE = Hint.of("nothing to do if the source was changed for that erasure")


def find_missing_sidecars(log: AuditedLog, logs: AuditedLogs) -> Iterator[Finding]:
    """Find missing receipts and quarantine files."""
    for entry in log.data:
        if entry.operation in _RECEIPT_LOSSES and has_known_parameters(entry):
            yield from _find_missing_receipts(log, entry, logs)
    yield from _find_missing_quarantine(log, logs)


def _find_missing_receipts(log: AuditedLog, entry: Entry, logs: AuditedLogs) -> Iterator[Finding]:
    files = logs.files(log.dataset, "shards")
    for added in entry.added:
        shard = added.shard
        removed = log.replay.get_tombstone(shard.name) is not None
        if shard.virtual or removed or f"{shard.name}{RECEIPT}" in files:
            continue
        if not logs.is_in_doubt(log, log, "whether vacuum deleted shards and their receipts"):
            loss = _RECEIPT_LOSSES[entry.operation] if shard.base is None else _OVERLAY_LOSS
            yield log.make_finding(
                "missing-receipt",
                f"entry {entry.number}, shard {shard.name}",
                f"receipt not found: {loss}",
                _RESTORE,
                entry.number,
                severity="warning",
            )


def _find_missing_quarantine(log: AuditedLog, logs: AuditedLogs) -> Iterator[Finding]:
    files = logs.files(log.dataset, "quarantine")
    missing = [
        (entry, file)
        for entry in log.data
        for rows in entry.read(EntryParameters).quarantine
        for file in rows.files
        if file.rpartition("/")[2] not in files
    ]
    erased = _get_erased_files(log, logs) if missing else set()
    for entry, file in missing:
        if file not in erased and not _has_unreadable_erasures(log, logs):
            yield log.make_finding(
                "missing-quarantine",
                f"entry {entry.number}, {file}",
                "quarantine file not found: the rejected rows are unknown",
                _RESTORE,
                entry.number,
                severity="warning",
            )


def _get_erased_files(log: AuditedLog, logs: AuditedLogs) -> set[str]:
    """Return the texts in all erasures of the dataset, which name the erased files."""
    texts: set[str] = set()
    for name in logs.names():
        other = logs.get(name) if name.startswith(f"{log.dataset}/") else None
        for entry in other.data if other is not None else ():
            if entry.operation == "erase":
                texts.update(_iter_texts(entry.parameters))
    return texts


def _has_unreadable_erasures(log: AuditedLog, logs: AuditedLogs) -> bool:
    """Return True if a corrupt log of the dataset may contain an erasure."""
    others = [logs.get(name) for name in logs.names()]
    question = "whether an erasure deleted quarantine files"
    return any(
        logs.is_in_doubt(log, other, question)
        for other in others
        if other is not None and other.dataset == log.dataset
    )


def _iter_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iter_texts(item)


def find_changed_sources(
    log: AuditedLog, logs: AuditedLogs, *, read: bool, since: int
) -> Iterator[Finding]:
    """Find missing and changed source files; with `read`, by their content.

    Only the last source from a path counts. A source with erased records gives a note.
    """
    erasures = _get_source_erasures(log)
    landed: dict[str, tuple[Entry, Source]] = {}
    for entry in log.data:
        if entry.operation == "append":
            for source in entry.sources:
                if source.path is not None:
                    landed[source.path] = (entry, source)
    for path, (entry, source) in landed.items():
        if entry.number < since:
            continue
        kind, detail = _check_source(path, entry, source, read=read)
        question = f"whether another source landed from {path} since"
        if not kind or (kind == "changed-source" and logs.is_in_doubt(log, log, question)):
            continue
        severity: Severity = "warning"
        skip = Command.of("audit", log.name, "--no-sources")
        hint = Hint.of("restore it to keep sources; to audit without sources, run ", skip)
        if source.key in erasures:
            severity, hint = "note", _ERASED_SOURCE
            detail += f", after entry {erasures[source.key]} erased some of its records"
        subject = f"entry {entry.number}, source {path}"
        yield log.make_finding(kind, subject, detail, hint, entry.number, severity=severity)


def _get_source_erasures(log: AuditedLog) -> dict[str, int]:
    """Map the key of each source with erased records to the erasing entry."""
    return {
        row.shard.source: entry.number
        for entry in log.data
        if entry.operation == "erase"
        for name in entry.tombstones
        for row in log.replay.named.get(name, ())
        if row.shard.source is not None
    }


def _check_source(path: str, entry: Entry, source: Source, *, read: bool) -> tuple[str, str]:
    """Return the kind and the detail of a finding, empty if the source is unchanged."""
    missing = "missing-source", "source not found"
    changed = "changed-source", "source changed since the append"
    is_remote = "://" in path
    if not is_remote:
        file = Path(path)
        if not file.is_absolute():
            return "", ""  # Relative to an unknown folder.
        if not file.exists():
            return missing
        if file.is_file() and file.stat().st_size != source.size:
            return changed
    if not read:
        return "", ""
    parameters = entry.read(AppendParameters)
    try:
        identity = open_source(
            path if is_remote else Path(path),
            format=cast("SourceFormat | None", parameters.format),
            salvage=parameters.salvage,
        ).identity()
    except (ShardlineError, OSError):
        return missing
    return ("", "") if identity == source else changed


def find_shard_sidecar_faults(
    shard: AuditedShard, logs: AuditedLogs, *, read: bool = True
) -> Iterator[Finding]:
    """Find corrupt receipts and row maps of a shard; without `read`, only missing row maps."""
    name = shard.shard.name
    if shard.shard.virtual:
        return
    receipt = None
    if read and f"{name}{RECEIPT}" in logs.files(shard.log.dataset, "shards"):
        (data,) = logs.store.read_many([f"{shard.path}{RECEIPT}"])
        receipt = parse_receipt(data)
        # The receipt of an attempt under a random name has the same digest, but that name.
        if receipt is None or receipt.shard is None or receipt.shard.sha256 != shard.shard.sha256:
            detail = "receipt is corrupt, or for another shard"
            yield shard.make_finding("wrong-receipt", detail, _RESTORE_RECEIPT, severity="warning")
            return
        yield from _compare_sidecar(shard.log, logs, f"{name}{RECEIPT}")
    findings = list(_audit_row_map(shard, logs, receipt, read=read))
    yield from findings
    if read and not findings:
        yield from _compare_sidecar(shard.log, logs, f"{name}{ROWS}")


def find_sidecar_mismatches(log: AuditedLog, logs: AuditedLogs) -> Iterator[Finding]:
    """Compare the sidecars that no audited shard covers with their committed digests.

    These are quarantine files, and the sidecars of deleted or empty shards. Traces and erasures
    use them.
    """
    for name in log.sidecars:
        if name.endswith(REFUSED) or not log.replay.has_shard(get_sidecar_shard(name)):
            yield from _compare_sidecar(log, logs, name)


def _compare_sidecar(log: AuditedLog, logs: AuditedLogs, name: str) -> Iterator[Finding]:
    """Compare a sidecar with its committed digests. A missing one has a finding of its own."""
    committed = log.sidecars.get(name, ())
    path = sidecar_path(log.dataset, name)
    folder = path.split("/")[1]
    if not committed or name not in logs.files(log.dataset, folder):
        return
    digest = hash_object(logs.store, path)
    entry, latest = committed[-1]
    if digest is None or digest == latest:
        return
    subject = f"shard {get_sidecar_shard(name)}"
    if folder == "quarantine":
        subject = f"entry {entry}, {path}"
    if any(digest == earlier for _, earlier in committed):
        detail = f"{name} is older than entry {entry}: an erase was interrupted"
        yield log.make_finding("stale-sidecar", subject, detail, _STALE, entry, severity="warning")
        return
    detail = f"{name} differs from the file that entry {entry} committed"
    yield log.make_finding("changed-sidecar", subject, detail, _CHANGED, entry)


def _audit_row_map(
    shard: AuditedShard, logs: AuditedLogs, receipt: Receipt | None, *, read: bool
) -> Iterator[Finding]:
    entry = shard.landing
    if entry is None or not _needs_row_map(shard, entry, receipt):
        return
    is_paired = entry.operation == "combine"
    hint = _RESTORE_PAIRS if is_paired else _RESTORE_MAP
    loss = f"the {_ROW_MAP_SUBJECTS[entry.operation]} of its records are unknown"
    name = shard.shard.name
    if f"{name}{ROWS}" not in logs.files(shard.log.dataset, "shards"):
        # Vacuum keeps row maps, but an erasure in the corrupt part of the log may delete them.
        if not logs.is_in_doubt(shard.log, shard.log, f"whether {name} is still retained"):
            detail = f"row map not found: {loss}"
            yield shard.make_finding("missing-row-map", detail, hint, severity="warning")
        return
    row_map = RowMap(logs.store, f"{shard.path}{ROWS}", shard.shard.records, 1 + is_paired)
    try:
        for _ in row_map.blocks() if read else ():
            pass
    except RowMapError as error:
        yield shard.make_finding("damaged-row-map", f"{error}: {loss}", hint, severity="warning")


def _needs_row_map(shard: AuditedShard, entry: Entry, receipt: Receipt | None) -> bool:
    """Return True if the origin of records does not follow from the entry and the receipt."""
    if not shard.shard.records:
        return False
    if entry.operation == "combine":
        return has_known_parameters(entry) and has_pair_selection(entry.parameters)
    if entry.operation == "repair":
        return entry.read(RepairParameters).is_salvage
    is_from_source = entry.operation == "append" and shard.shard.source is not None
    return is_from_source and receipt is not None and not receipt.is_countable(shard.shard.records)
