"""The materializations in a Dagster instance, as plain data for an audit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from shardline.errors import DagsterRecordMissingError
from shardline.hints import Hint
from shardline.lineage.audit.dagster_record import RecordedMaterialization

_BATCH_SIZE = 1000
_DATA_VERSION = "dagster/data_version"
_STORAGE_KEYS = frozenset({"storage", "event_log_storage"})
"""Keys of a dagster.yaml that place the records outside DAGSTER_HOME."""


def open_instance(home: Path) -> dg.DagsterInstance:
    """Open the instance of a DAGSTER_HOME.

    Raises DagsterRecordMissingError where Dagster would create an instance.
    """
    config = home / "dagster.yaml"
    told = yaml.safe_load(config.read_text(encoding="utf-8")) if config.is_file() else None
    elsewhere = isinstance(told, dict) and not _STORAGE_KEYS.isdisjoint(told)
    if not elsewhere and not (home / "history").is_dir():
        raise DagsterRecordMissingError(
            f"{home}: no Dagster records, neither a history folder nor storage in dagster.yaml",
            hint=Hint.of("name the DAGSTER_HOME of the instance that made the datasets"),
            path=home,
        )
    return dg.DagsterInstance.from_config(str(home))


class InstanceRecords:
    """The records of a Dagster instance."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._keys = {key.to_user_string(): key for key in sorted(instance.get_asset_keys())}

    def assets(self) -> list[str]:
        """Return the asset keys, sorted, as `prefix/name`."""
        return list(self._keys)

    def materializations(self, asset: str) -> Iterator[RecordedMaterialization]:
        """Return the materializations of an asset that name a snapshot, oldest first."""
        return _list_materializations(self._instance, self._keys[asset])

    def has_run(self, run: str) -> bool:
        """Return True if the instance has a run with this id."""
        return self._instance.has_run(run)


def _list_materializations(
    instance: dg.DagsterInstance, key: dg.AssetKey
) -> Iterator[RecordedMaterialization]:
    """The materializations of an asset that tell of a snapshot, oldest first."""
    cursor: str | None = None
    while True:
        page = instance.fetch_materializations(
            key, limit=_BATCH_SIZE, cursor=cursor, ascending=True
        )
        for record in page.records:
            event = _parse_materialization(record.asset_materialization, record.timestamp)
            if event is not None:
                yield event
        if not page.has_more:
            return
        cursor = page.cursor


def _parse_materialization(
    made: dg.AssetMaterialization | None, time: float
) -> RecordedMaterialization | None:
    if made is None:
        return None
    told: dict[str, Any] = {name: value.value for name, value in made.metadata.items()}
    snapshot = told.get("snapshot")
    if not isinstance(snapshot, int):
        return None
    content = (made.tags or {}).get(_DATA_VERSION) or told.get("digest") or ""
    return RecordedMaterialization(
        snapshot,
        told.get("entry") if isinstance(told.get("entry"), int) else None,
        str(content),
        told.get("entry_digest"),
        str(told.get("dagster/uri") or ""),
        tuple(_parse_parents(made.metadata.get("parents"))),
        time,
    )


def _parse_parents(table: Any) -> Iterator[tuple[str, int, str]]:  # noqa: ANN401 - any metadata
    for record in getattr(table, "records", ()):
        row = record.data
        if {"version", "snapshot", "digest"} <= row.keys():
            yield str(row["version"]), int(row["snapshot"]), str(row["digest"])
