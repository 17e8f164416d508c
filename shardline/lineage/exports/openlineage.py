"""The history of a root as OpenLineage events, written to a file or sent to a server.

The events are built from the classes of openlineage-python, so that no facet has a wrong name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, UUID, uuid5

from shardline.errors import InvalidNameError, PackageMissingError, UnavailableError
from shardline.hints import Hint
from shardline.log.model import Totals
from shardline.log.parameters import CombineParameters, ConsumerParameters
from shardline.log.state import RESERVED_CHECKS
from shardline.provenance.consumers import CONSUME
from shardline.release import __version__
from shardline.storage.durable_file import DurableFile
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent

    from shardline.log.entry import Entry
    from shardline.log.model import Attestation, Source
    from shardline.provenance.feature_origin import FeatureOrigin
    from shardline.provenance.log_index import LogIndex
    from shardline.schema.schema import Schema

PRODUCER = f"urn:shardline:{__version__}"
ENDPOINT = "api/v1/lineage"
_RUNS = uuid5(NAMESPACE_URL, "shardline entry")
_IN_PLACE_OPERATIONS = frozenset({"erase", "rebuild", "repair", "reject", "restore"})
_IDENTITY = frozenset({"kept", "renamed"})


@dataclass(frozen=True, slots=True)
class EntryEvents:
    """An entry and its start and complete events."""

    entry: Entry
    events: tuple[RunEvent, RunEvent]


@dataclass(frozen=True, slots=True)
class SentEvents:
    """Counts of the entries and events that were written or sent."""

    entries: int
    events: int


def get_run_id(entry: Entry) -> UUID:
    """Return the run id of an entry, which is always the same."""
    return uuid5(_RUNS, entry.digest)


def iter_events(
    index: LogIndex, names: Sequence[str] | None = None, *, namespace: str = ""
) -> Iterator[EntryEvents]:
    """Yield the events of versions in the order of time.

    Raises PackageMissingError without openlineage-python.

    Args:
        index: The logs of the root.
        names: The versions, by default all.
        namespace: The namespace of datasets and jobs, by default the URI of the root.
    """
    client = _import_client()
    facets = OpenLineageFacets(client, PRODUCER)
    uri = index.store.uri.rstrip("/")
    namespace = namespace or (uri if "://" in uri else Path(uri).as_uri())
    entries = [
        entry
        for name in (index.list_versions() if names is None else names)
        for entry in index.entries(name)
        if entry.changes_data or _has_attestations(entry) or entry.operation == CONSUME
    ]
    entries.sort(key=lambda entry: (entry.time, entry.dataset, entry.version, entry.number))
    for entry in entries:
        builder = _EventBuilder(index, facets, client, namespace, entry)
        yield EntryEvents(entry, builder.build_events())


def _has_attestations(entry: Entry) -> bool:
    return any(attestation.check not in RESERVED_CHECKS for attestation in entry.attestations)


@dataclass(frozen=True, slots=True)
class _OpenLineageClient:
    """The untyped modules of openlineage-python."""

    events: Any
    facets: Any


def _import_client() -> _OpenLineageClient:
    try:
        from openlineage.client import event_v2, facet_v2  # noqa: PLC0415 - optional
    except ImportError:
        raise PackageMissingError(
            "OpenLineage events need openlineage-python, which is not installed",
            hint=Hint.of("run `pip install 'shardline[lineage]'`"),
        ) from None
    return _OpenLineageClient(event_v2, facet_v2)


class OpenLineageFacets:
    """Builds the facets of runs, jobs and datasets."""

    def __init__(self, client: _OpenLineageClient, producer: str) -> None:
        self._classes = client.facets
        self._producer = producer

    def run(self, entry: Entry) -> dict[str, Any]:
        """Return the facets of a run: the entry, its writer and the code."""
        engine = self._classes.processing_engine_run.ProcessingEngineRunFacet(
            version=entry.commit_info.release,
            name="shardline",
            openlineageAdapterVersion=__version__,
            producer=self._producer,
        )
        consumer = entry.read(ConsumerParameters) if entry.operation == CONSUME else None
        values = {
            "dataset": entry.dataset,
            "version": entry.version,
            "entry": entry.number,
            "digest": entry.digest,
            "operation": entry.operation,
            "run": entry.commit_info.run if consumer is None else consumer.run,
            "code": entry.commit_info.code,
            "commit": None if consumer is None else consumer.commit,
        }
        known = {key: value for key, value in values.items() if value}
        facet = self._classes.RunFacet(producer=self._producer)
        return {
            "processing_engine": engine,
            "shardline_entry": facet.with_additional_properties(**known),
        }

    def job(self) -> dict[str, Any]:
        """Return the facets of a job."""
        kind = self._classes.job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="SHARDLINE", jobType="JOB", producer=self._producer
        )
        return {"jobType": kind}

    def version(self, schema: Schema, snapshot: int, content: str) -> dict[str, Any]:
        """Return the facets of a snapshot, with the content digest as version."""
        classes = self._classes.schema_dataset
        fields = [
            classes.SchemaDatasetFacetFields(
                name=feature.name,
                type=str(feature),
                description=feature.doc or None,
                ordinal_position=position,
            )
            for position, feature in enumerate(schema.features, start=1)
        ]
        number = self._classes.DatasetFacet(producer=self._producer).with_additional_properties(
            snapshot=snapshot, content=content, fingerprint=schema.fingerprint
        )
        return {
            "schema": classes.SchemaDatasetFacet(fields=fields, producer=self._producer),
            **self._dataset_version(content),
            "shardline_snapshot": number,
        }

    def source(self, source: Source) -> dict[str, Any]:
        """Return the facets of an appended file, none for a batch."""
        return {} if source.sha256 is None else self._dataset_version(source.sha256)

    def _dataset_version(self, version: str) -> dict[str, Any]:
        facet = self._classes.dataset_version_dataset.DatasetVersionDatasetFacet
        return {"version": facet(datasetVersion=version, producer=self._producer)}

    def input_statistics(self, **counts: int) -> dict[str, Any]:
        """Return the facets of the rows, bytes and files of an input."""
        facet = self._classes.input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        return {"inputStatistics": facet(producer=self._producer, **counts)}

    def output_statistics(self, entry: Entry) -> dict[str, Any]:
        """Return the facets of the rows, bytes and files that an entry added."""
        totals = Totals.of([added.shard for added in entry.added])
        facet = self._classes.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        return {"outputStatistics": facet(producer=self._producer, **_get_counts(totals))}

    def assertions(self, attestations: Iterable[Attestation]) -> dict[str, Any]:
        """Return the facets of check results."""
        classes = self._classes.data_quality_assertions_dataset
        assertions = [
            classes.Assertion(
                assertion=attestation.check,
                success=attestation.passed,
                name=attestation.check,
                severity="error",
                params={"shards": len(attestation.shards)}
                if attestation.shards
                else {"content": attestation.content},
            )
            for attestation in attestations
            if attestation.check not in RESERVED_CHECKS
        ]
        facet = classes.DataQualityAssertionsDatasetFacet
        return {"dataQualityAssertions": facet(assertions=assertions, producer=self._producer)}

    def columns(
        self, namespace: str, origins: Mapping[str, FeatureOrigin], entry: Entry
    ) -> dict[str, Any]:
        """Return the column lineage: the origin of each feature, and the join keys."""
        classes = self._classes.column_lineage_dataset
        fields = {
            feature: classes.Fields(inputFields=list(self._iter_input_fields(namespace, origin)))
            for feature, origin in origins.items()
        }
        facet = classes.ColumnLineageDatasetFacet(
            fields=fields,
            dataset=list(self._iter_join_fields(namespace, entry)),
            producer=self._producer,
        )
        return {"columnLineage": facet}

    def _iter_input_fields(self, namespace: str, origin: FeatureOrigin) -> Iterator[Any]:
        classes = self._classes.column_lineage_dataset
        transformation = classes.Transformation(
            type="DIRECT",
            subtype="IDENTITY" if origin.change in _IDENTITY else "TRANSFORMATION",
            description=origin.function or origin.change,
            masking=False,
        )
        for version, feature in origin.upstream:
            yield classes.InputField(namespace, version, feature, transformations=[transformation])

    def _iter_join_fields(self, namespace: str, entry: Entry) -> Iterator[Any]:
        classes = self._classes.column_lineage_dataset
        transformation = classes.Transformation(
            type="INDIRECT", subtype="JOIN", description="", masking=False
        )
        for pair in entry.read(CombineParameters).keys:
            for source, feature in zip(entry.inputs, pair, strict=True):
                yield classes.InputField(
                    namespace, source.label, feature, transformations=[transformation]
                )


def _get_counts(totals: Totals) -> dict[str, int]:
    return {"rowCount": totals.records, "size": totals.bytes, "fileCount": totals.shards}


@dataclass(frozen=True, slots=True)
class _EventBuilder:
    """Builds the events of an entry."""

    index: LogIndex
    facets: OpenLineageFacets
    client: _OpenLineageClient
    namespace: str
    entry: Entry

    def build_events(self) -> tuple[RunEvent, RunEvent]:
        classes = self.client.events
        shared = {
            "eventTime": self.entry.time.isoformat(),
            "producer": PRODUCER,
            "run": classes.Run(str(get_run_id(self.entry)), facets=self.facets.run(self.entry)),
            "job": classes.Job(self.namespace, self._get_job_name(), facets=self.facets.job()),
        }
        start = classes.RunEvent(eventType=classes.RunState.START, **shared)
        complete = classes.RunEvent(
            eventType=classes.RunState.COMPLETE,
            inputs=list(self._iter_inputs()),
            outputs=list(self._iter_outputs()),
            **shared,
        )
        return start, complete

    def _get_job_name(self) -> str:
        if self.entry.operation == CONSUME:
            return self.entry.read(ConsumerParameters).name or CONSUME
        return f"{self.entry.label}.{self.entry.operation}"

    def _iter_inputs(self) -> Iterator[InputDataset]:
        entry, name = self.entry, self.entry.label
        for source in dict.fromkeys(entry.inputs):
            yield self._make_snapshot_input(source.label, source.snapshot)
        if entry.operation == CONSUME and entry.pin is not None:
            yield self._make_snapshot_input(name, entry.pin.snapshot)
        elif _has_attestations(entry):
            number = self._get_checked_snapshot()
            yield self._make_snapshot_input(name, number, has_assertions=True)
        elif entry.operation in _IN_PLACE_OPERATIONS and not entry.inputs:
            yield self._make_snapshot_input(name, entry.restores or entry.snapshot - 1)
        if entry.operation == "append":
            yield from map(self._make_source_input, entry.sources)

    def _get_checked_snapshot(self) -> int:
        if self.entry.rejects is not None:
            return self.entry.rejects
        timeline, latest = (
            self.index.version(self.entry.label).state.snapshot_history,
            self.entry.snapshot,
        )
        numbers = (
            number
            for attestation in self.entry.attestations
            if attestation.content is not None
            for number in timeline.of_content(attestation.content)
            if number <= latest
        )
        return max(numbers, default=latest)

    def _make_snapshot_input(
        self, name: str, snapshot: int | None, *, has_assertions: bool = False
    ) -> InputDataset:
        facets, input_facets = {}, {}
        version = self.index.version(name)
        if snapshot and snapshot <= version.state.snapshot:
            snapshot_row = version.state.snapshot_history.get_row(snapshot)
            facets = self.facets.version(version.schema, snapshot, snapshot_row.content)
            input_facets = self.facets.input_statistics(**_get_counts(snapshot_row.totals))
        if has_assertions:
            input_facets |= self.facets.assertions(self.entry.attestations)
        dataset: InputDataset = self.client.events.InputDataset(
            self.namespace, name, facets=facets, inputFacets=input_facets
        )
        return dataset

    def _make_source_input(self, source: Source) -> InputDataset:
        namespace, name = _get_file_identity(source, self.namespace)
        size = source.size
        dataset: InputDataset = self.client.events.InputDataset(
            namespace,
            name,
            facets=self.facets.source(source),
            inputFacets={}
            if size is None
            else self.facets.input_statistics(size=size, fileCount=1),
        )
        return dataset

    def _iter_outputs(self) -> Iterator[OutputDataset]:
        entry = self.entry
        if not entry.changes_data:
            return
        schema = self.index.version(entry.label).schema
        facets = self.facets.version(schema, entry.snapshot, entry.content or "")
        origins = self.index.get_origins(entry)
        if origins:
            facets |= self.facets.columns(self.namespace, origins, entry)
        yield self.client.events.OutputDataset(
            self.namespace,
            entry.label,
            facets=facets,
            outputFacets=self.facets.output_statistics(entry),
        )


def _get_file_identity(source: Source, namespace: str) -> tuple[str, str]:
    """Return the OpenLineage name of a file: the store, and the path in it."""
    if source.path is None:
        return namespace, f"batch {source.batch}"
    scheme, separator, rest = source.path.partition("://")
    if not separator:
        return "file", source.path
    store, _, path = rest.partition("/")
    return ("file", f"/{path}") if scheme == "file" else (f"{scheme}://{store}", path)


def format_event_line(event: RunEvent) -> str:
    """Return an event as a line of JSON."""
    from openlineage.client.serde import Serde  # noqa: PLC0415 - optional

    return str(Serde.to_json(event)) + "\n"


def write_events(
    entry_events: Iterable[EntryEvents], path: Path, *, overwrite: bool = False
) -> SentEvents:
    """Write events to a file, one per line. Replaces a file, once complete, with `overwrite`."""
    entries = events = 0
    with DurableFile(path, overwrite=overwrite) as file:
        for pair in entry_events:
            file.write("".join(map(format_event_line, pair.events)).encode())
            entries, events = entries + 1, events + len(pair.events)
    return SentEvents(entries, events)


def send_events(entry_events: Iterable[EntryEvents], url: str, *, api_key: str = "") -> SentEvents:
    """Post events to a server in the order of time.

    Raises UnavailableError at the first rejected event. Runs keep their ids, so that all events
    can be sent again.

    Args:
        entry_events: The events.
        url: The address of the server, or with a path the endpoint.
        api_key: The key of the server.
    """
    from openlineage.client.transport.http import (  # noqa: PLC0415 - optional
        ApiKeyTokenProvider,
        HttpConfig,
        HttpTransport,
        TokenProvider,
    )
    from requests import RequestException  # noqa: PLC0415 - a dependency of it

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        # The part before an @ may contain a password.
        label = f"…@{url.rpartition('@')[2]}" if "@" in url else url
        raise InvalidNameError(
            f"invalid server address {label!r}: expected http:// or https:// without password",
            code="invalid-location",
            hint=Hint.of(
                "write an address such as https://marquez.example.org; set a key in "
                "OPENLINEAGE_API_KEY"
            ),
        )
    config = HttpConfig(
        url=f"{parts.scheme}://{parts.netloc}",
        endpoint=parts.path.strip("/") or ENDPOINT,
        auth=ApiKeyTokenProvider({"apiKey": api_key}) if api_key else TokenProvider({}),
    )
    # The answer to the last attempt is an answer, not a connection error.
    config.retry = {**config.retry, "raise_on_status": False}
    transport = HttpTransport(config)
    entries = events = 0
    try:
        for pair in entry_events:
            for event in pair.events:
                transport.emit(event)
                events += 1
            entries += 1
    except RequestException as error:
        answer = getattr(error, "response", None)
        address = f"{config.url}/{config.endpoint}"
        sent = f"after {format_count(events, 'event')}"
        problem, code = f"cannot connect ({type(error).__name__}) {sent}", "storage-unavailable"
        if answer is not None:
            problem = f"rejected an event with status {answer.status_code} {sent}"
            code = "request-rejected"
        raise UnavailableError(
            f"{address}: {problem}",
            code=code,
            hint=Hint.of("check the server and send all events again: none is stored twice"),
            path=address,
        ) from None
    finally:
        transport.close()
    return SentEvents(entries, events)
