"""The versions of a root, each opened once, and what their logs tell of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.log.version import StoredVersion
from shardline.provenance.discovery import find_all_versions, find_versions
from shardline.provenance.feature_origins import FieldOrigin, field_origins
from shardline.storage import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shardline.log.entry import Entry
    from shardline.log.snapshot import StoredSnapshot
    from shardline.storage import Store


class Catalog:
    """Every version of a root. Logs are read when they are first asked for, and kept."""

    def __init__(self, root: Store | Path | str) -> None:
        self.store = open_store(root)
        self._versions: dict[str, StoredVersion] = {}
        self._entries: dict[str, tuple[Entry, ...]] = {}

    def names(self, dataset: str | None = None) -> list[str]:
        """The versions that have a log, of one dataset or of all, in order."""
        return [name for name in self.found(dataset) if self.version(name).log.exists(1)]

    def found(self, dataset: str | None = None) -> list[str]:
        """The versions that have a folder for a log, whatever is left in it."""
        if dataset is None:
            return find_all_versions(self.store)
        return [f"{dataset}/{name}" for name in find_versions(self.store, dataset)]

    def version(self, name: str) -> StoredVersion:
        """A version, which may not be there."""
        if name not in self._versions:
            self._versions[name] = StoredVersion(self.store, name)
        return self._versions[name]

    def entries(self, name: str) -> tuple[Entry, ...]:
        """All entries of a version's log; DamagedLogError if one cannot be read."""
        if name not in self._entries:
            self._entries[name] = tuple(self.version(name).log.entries(1))
        return self._entries[name]

    def made_by(self, name: str, snapshot: int) -> Entry:
        """The entry that made a snapshot."""
        version = self.version(name)
        return version.log.entry(version.snapshot(snapshot).entry)

    def origins_of(self, snapshot: StoredSnapshot) -> Mapping[str, FieldOrigin]:
        """Where each feature of a snapshot comes from; none, if its records were appended."""
        version, number = self.version(snapshot.version), snapshot.number
        timeline = version.state.timeline
        while number:
            entry = version.log.entry(timeline.moment(number).entry)
            if entry.inputs or entry.operation == "append":
                return self.origins(entry)
            number = int(timeline.column("made_from")[number - 1])
        return {}

    def origins(self, entry: Entry) -> Mapping[str, FieldOrigin]:
        """Where each feature of a version comes from, by the entry that made a snapshot of it."""
        schemas = [self.version(one.shown).schema for one in entry.inputs]
        return field_origins(entry, schemas)
