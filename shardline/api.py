"""Public classes: a root of datasets, versions with the verbs, snapshots with the readers.

A method that has the name of an operation or reader is that function, imported on first use: its
options are documented there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

from shardline.lazy import LazyMethod
from shardline.log.snapshot import StoredSnapshot
from shardline.log.version import StoredVersion
from shardline.storage import open_store
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from shardline.execution.executor import Executor, ProgressListener
    from shardline.lineage.audit.audit_report import AuditReport
    from shardline.lineage.trace_step import TraceStep
    from shardline.log.snapshot import SnapshotDiff
    from shardline.operations.append import append as _append
    from shardline.operations.check import check_version as _check_version
    from shardline.operations.combine import combine as _combine
    from shardline.operations.combine import plan_combine as _plan_combine
    from shardline.operations.erase import EraseReport
    from shardline.operations.erase import erase as _erase
    from shardline.operations.erase import plan_erase as _plan_erase
    from shardline.operations.export import export as _export
    from shardline.operations.extend import extend as _extend
    from shardline.operations.migrate import migrate as _migrate
    from shardline.operations.rebuild import rebuild as _rebuild
    from shardline.operations.rejected_sources import dismiss as _dismiss
    from shardline.operations.rejected_sources import open_sources as _open_sources
    from shardline.operations.repair import repair as _repair
    from shardline.operations.status import get_status as _get_status
    from shardline.operations.vacuum import vacuum as _vacuum
    from shardline.operations.verify_version import verify_version as _verify_version
    from shardline.readers.arrow import to_arrow as _to_arrow
    from shardline.readers.pandas import to_pandas as _to_pandas
    from shardline.readers.take import take as _take
    from shardline.readers.tf import to_tf as _to_tf
    from shardline.storage import RootLocation
    from shardline.udf import UDF


class Snapshot(StoredSnapshot):
    """Immutable state of a version after one commit.

    Its length is its number of records. `published` and `rejected` are as of when it was opened.
    """

    if TYPE_CHECKING:
        to_tf = _to_tf
        to_arrow = _to_arrow
        to_pandas = _to_pandas
        take = _take
    else:
        to_tf = LazyMethod("shardline.readers.tf", "to_tf")
        to_arrow = LazyMethod("shardline.readers.arrow", "to_arrow")
        to_pandas = LazyMethod("shardline.readers.pandas", "to_pandas")
        take = LazyMethod("shardline.readers.take", "take")

    def __len__(self) -> int:
        return self.records

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        state = "published" if self.published else "rejected" if self.rejected else "unpublished"
        return f"<Snapshot {self}: {self.records:,} records, {state}>"

    def files(self) -> list[str]:
        """List the shards in order, as local paths or as URIs.

        They are plain TFRecord files: `tf.data.TFRecordDataset(s.files(), s.compression)`. No file
        is checked, so read published snapshots only.

        Raises:
            UnreadableSnapshotError: if shards are overlays or virtual, which hold no whole records.
        """
        from shardline.readers.shard_file import list_plain_files  # noqa: PLC0415

        return [file.path for file in list_plain_files(self)]

    @property
    def compression(self) -> str:
        """Compression of all shards as TensorFlow spells it: "", "GZIP" or "ZLIB".

        Raises:
            UnreadableSnapshotError: if shards differ in compression, are overlays or virtual.
        """
        from shardline.readers.shard_file import get_common_compression  # noqa: PLC0415

        return get_common_compression(self)

    def consumed_by(self, name: str, *, run: str = "", commit: str = "") -> Self:
        """Register a consumer, such as a training job, and return the snapshot.

        The log records the consumer, and vacuum keeps the snapshot until the consumer is released.
        To register the same consumer again changes nothing.

        Example:
            `version.published().consumed_by("digits-cnn", run="42").to_tf()`

        Raises:
            TombstonedShardError: if vacuum is about to delete the shards.
        """
        from shardline.provenance.consumers import register  # noqa: PLC0415

        version = Version(self.store, self.version, run=run, code=commit)
        register(version, self.number, name, run=run, commit=commit)
        return self

    def diff(self, other: StoredSnapshot) -> SnapshotDiff:
        """Compare the shards and the schema with those of a newer snapshot."""
        from shardline.log.snapshot import diff  # noqa: PLC0415

        return diff(self, other)

    def trace(self, record: int) -> TraceStep:
        """Trace a record to the source rows that it comes from."""
        from shardline.lineage.trace import trace  # noqa: PLC0415
        from shardline.provenance.log_index import LogIndex  # noqa: PLC0415

        return trace(LogIndex(self.store), self, record)


class Version(StoredVersion):
    """Version of a dataset: `shardline.open("data")["digits/v1"]`.

    A version does not have to exist: the first append, or `create`, creates it.
    """

    snapshot_type = Snapshot

    if TYPE_CHECKING:
        append = _append
        extend = _extend
        migrate = _migrate
        combine = _combine
        plan_combine = _plan_combine
        rebuild = _rebuild
        repair = _repair
        check = _check_version
        verify = _verify_version
        export = _export
        status = _get_status
        open_sources = _open_sources
        dismiss = _dismiss
    else:
        append = LazyMethod("shardline.operations.append", "append")
        extend = LazyMethod("shardline.operations.extend", "extend")
        migrate = LazyMethod("shardline.operations.migrate", "migrate")
        combine = LazyMethod("shardline.operations.combine", "combine")
        plan_combine = LazyMethod("shardline.operations.combine", "plan_combine")
        rebuild = LazyMethod("shardline.operations.rebuild", "rebuild")
        repair = LazyMethod("shardline.operations.repair", "repair")
        check = LazyMethod("shardline.operations.check", "check_version")
        verify = LazyMethod("shardline.operations.verify_version", "verify_version")
        export = LazyMethod("shardline.operations.export", "export")
        status = LazyMethod("shardline.operations.status", "get_status")
        open_sources = LazyMethod("shardline.operations.rejected_sources", "open_sources")
        dismiss = LazyMethod("shardline.operations.rejected_sources", "dismiss")

    def __repr__(self) -> str:
        return f"<Version {self.name} in {self.store.uri}>"

    def latest(self) -> Snapshot:
        """Return the latest snapshot, published or not."""
        return cast("Snapshot", super().latest())

    def published(self) -> Snapshot:
        """Return the latest published snapshot: the one to read."""
        return cast("Snapshot", super().published())

    def snapshot(self, number: int) -> Snapshot:
        """Return a snapshot by its number."""
        return cast("Snapshot", super().snapshot(number))

    def tagged(self, tag: str) -> Snapshot:
        """Return the snapshot that has a tag."""
        return cast("Snapshot", super().tagged(tag))

    def at(self, time: datetime) -> Snapshot:
        """Return the snapshot that was the latest at a time. A time without a zone is in UTC."""
        return cast("Snapshot", super().at(time))

    def find(self, which: str | int = "latest") -> Snapshot:
        """Return a snapshot by "latest", "published", a number, a tag or a time."""
        return cast("Snapshot", super().find(which))

    def erase(
        self,
        *,
        where: str | UDF | None = None,
        key: str | None = None,
        values: Sequence[int | str | bytes] = (),
        request: str = "",
        quarantine: bool = False,
        check: bool = True,
        limits: Limits = DEFAULT_LIMITS,
        executor: Executor | None = None,
        progress: ProgressListener | None = None,
    ) -> EraseReport:
        """Erase records from all versions of the dataset of this version. See `Root.erase`."""
        return Root(self.store).erase(
            self.log.dataset,
            where=where,
            key=key,
            values=values,
            request=request,
            quarantine=quarantine,
            check=check,
            limits=limits,
            executor=executor,
            progress=progress,
        )


class Root:
    """Datasets below one folder or object-store prefix.

    `root["digits/v1"]` is a version, iteration yields the names of all versions.
    """

    if TYPE_CHECKING:
        erase = _erase
        plan_erase = _plan_erase
        vacuum = _vacuum
    else:
        erase = LazyMethod("shardline.operations.erase", "erase")
        plan_erase = LazyMethod("shardline.operations.erase", "plan_erase")
        vacuum = LazyMethod("shardline.operations.vacuum", "vacuum")

    def __init__(self, location: RootLocation, *, run: str = "", code: str = "") -> None:
        self.store = open_store(location)
        self._run = run
        self._code = code

    def __repr__(self) -> str:
        return f"<Root {self.store.uri}>"

    def __getitem__(self, name: str) -> Version:
        return Version(self.store, name, run=self._run, code=self._code)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self[name].exists

    def __iter__(self) -> Iterator[str]:
        from shardline.provenance.catalog import find_all_versions  # noqa: PLC0415

        return iter(find_all_versions(self.store))

    def datasets(self) -> list[str]:
        """List the names of the datasets."""
        from shardline.provenance.catalog import find_datasets  # noqa: PLC0415

        return find_datasets(self.store)

    def audit(self, **options: Any) -> AuditReport:  # noqa: ANN401 - documented there
        """Verify the whole history of all versions.

        The options are those of `shardline.lineage.audit.root_audit.audit`.
        """
        from shardline.lineage.audit.root_audit import audit  # noqa: PLC0415
        from shardline.provenance.log_index import LogIndex  # noqa: PLC0415

        return audit(LogIndex(self.store), **options)


def open(  # noqa: A001 - used as `shardline.open`, like `gzip.open`
    location: RootLocation, *, run: str = "", code: str = ""
) -> Root:
    """Open a root: a local folder, or a URI such as `s3://bucket/prefix`.

    Args:
        location: The folder, URI or store. A folder that does not exist is created by a commit.
        run: Name of the run that commits, recorded in each log entry.
        code: Revision of the code that commits, recorded in each log entry.
    """
    return Root(location, run=run, code=code)
