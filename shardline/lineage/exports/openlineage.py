"""The facets of OpenLineage events: what is told of a run, a job and a dataset, each by its class.

The classes are made from the published JSON schemas, so that no facet can have a wrong name.
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


_IDENTITY = frozenset({"kept", "renamed"})


class OpenLineageFacets:
    """Makes facets; `client` has the modules of openlineage-python."""

    def __init__(self, client: Any, producer: str) -> None:  # noqa: ANN401 - untyped modules
        self._of = client.facets
        self._producer = producer

    def run(self, entry: Entry) -> dict[str, Any]:
        """Which entry it is, who made it and by which code."""
        engine = self._of.processing_engine_run.ProcessingEngineRunFacet(
            version=entry.maker.release,
            name="shardline",
            openlineageAdapterVersion=__version__,
            producer=self._producer,
        )
        consumer = entry.read(ConsumerParameters) if entry.operation == CONSUME else None
        told = {
            "dataset": entry.dataset,
            "version": entry.version,
            "entry": entry.number,
            "digest": entry.digest,
            "operation": entry.operation,
            "run": entry.maker.run if consumer is None else consumer.run,
            "code": entry.maker.code,
            "commit": None if consumer is None else consumer.commit,
        }
        kept = {key: value for key, value in told.items() if value}
        ours = self._of.RunFacet(producer=self._producer).with_additional_properties(**kept)
        return {"processing_engine": engine, "shardline_entry": ours}

    def job(self) -> dict[str, Any]:
        """That it is a job with an end."""
        kind = self._of.job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="SHARDLINE", jobType="JOB", producer=self._producer
        )
        return {"jobType": kind}

    def version(self, schema: Schema, snapshot: int, content: str) -> dict[str, Any]:
        """A snapshot of a version: its fields, and its content digest as its version."""
        of = self._of
        fields = [
            of.schema_dataset.SchemaDatasetFacetFields(
                name=feature.name,
                type=str(feature),
                description=feature.doc or None,
                ordinal_position=place,
            )
            for place, feature in enumerate(schema.features, start=1)
        ]
        number = of.DatasetFacet(producer=self._producer).with_additional_properties(
            snapshot=snapshot, content=content, fingerprint=schema.fingerprint
        )
        return {
            "schema": of.schema_dataset.SchemaDatasetFacet(fields=fields, producer=self._producer),
            **self._version(content),
            "shardline_snapshot": number,
        }

    def source(self, source: Source) -> dict[str, Any]:
        """A file that was appended, by its digest; nothing of a batch."""
        return {} if source.sha256 is None else self._version(source.sha256)

    def _version(self, version: str) -> dict[str, Any]:
        facet = self._of.dataset_version_dataset.DatasetVersionDatasetFacet
        return {"version": facet(datasetVersion=version, producer=self._producer)}

    def read(self, totals: Totals) -> dict[str, Any]:
        """How much a snapshot has that was read."""
        facet = self._of.input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        return {
            "inputStatistics": facet(
                rowCount=totals.records,
                size=totals.bytes,
                fileCount=totals.shards,
                producer=self._producer,
            )
        }

    def read_bytes(self, size: int) -> dict[str, Any]:
        """How much a source has that was read."""
        facet = self._of.input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        return {"inputStatistics": facet(size=size, fileCount=1, producer=self._producer)}

    def written(self, entry: Entry) -> dict[str, Any]:
        """How much an entry wrote, not how much there was afterwards."""
        totals = Totals.of([one.shard for one in entry.added])
        facet = self._of.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        return {
            "outputStatistics": facet(
                rowCount=totals.records,
                size=totals.bytes,
                fileCount=totals.shards,
                producer=self._producer,
            )
        }

    def assertions(self, attestations: Iterable[Attestation]) -> dict[str, Any]:
        """What checks said: each check once for each thing that it was on."""
        of = self._of.data_quality_assertions_dataset
        told = [
            of.Assertion(
                assertion=one.check,
                success=one.passed,
                name=one.check,
                severity="error",
                params={"shards": len(one.shards)} if one.shards else {"content": one.content},
            )
            for one in attestations
            if one.check not in RESERVED_CHECKS
        ]
        facet = of.DataQualityAssertionsDatasetFacet(assertions=told, producer=self._producer)
        return {"dataQualityAssertions": facet}

    def columns(
        self, namespace: str, origins: Mapping[str, FeatureOrigin], entry: Entry
    ) -> dict[str, Any]:
        """Which fields each field comes from, and those by which records were joined."""
        of = self._of.column_lineage_dataset
        fields = {
            feature: of.Fields(inputFields=list(self._input_fields(namespace, origin)))
            for feature, origin in origins.items()
        }
        facet = of.ColumnLineageDatasetFacet(
            fields=fields, dataset=list(self._joined(namespace, entry)), producer=self._producer
        )
        return {"columnLineage": facet}

    def _input_fields(self, namespace: str, origin: FeatureOrigin) -> Iterator[Any]:
        of = self._of.column_lineage_dataset
        how = of.Transformation(
            type="DIRECT",
            subtype="IDENTITY" if origin.how in _IDENTITY else "TRANSFORMATION",
            description=origin.by or origin.how,
            masking=False,
        )
        for version, feature in origin.of:
            yield of.InputField(namespace, version, feature, transformations=[how])

    def _joined(self, namespace: str, entry: Entry) -> Iterator[Any]:
        of = self._of.column_lineage_dataset
        pairs = entry.read(CombineParameters).keys
        how = of.Transformation(type="INDIRECT", subtype="JOIN", description="", masking=False)
        for pair in pairs:
            for told, feature in zip(entry.inputs, pair, strict=True):
                version = told.shown
                yield of.InputField(namespace, version, feature, transformations=[how])


PRODUCER = f"urn:shardline:{__version__}"
_RUNS = uuid5(NAMESPACE_URL, "shardline entry")
_CHANGED_IN_PLACE = frozenset({"erase", "rebuild", "repair", "reject", "restore"})


@dataclass(frozen=True, slots=True)
class EntryEvents:
    """An entry, and the two events that tell it."""

    entry: Entry
    events: tuple[RunEvent, RunEvent]


def get_run_id(entry: Entry) -> UUID:
    """The id of the run that an entry is, the same whenever it is asked for."""
    return uuid5(_RUNS, entry.digest)


def events(
    index: LogIndex, names: Sequence[str] | None = None, *, namespace: str = ""
) -> Iterator[EntryEvents]:
    """Everything that happened to these versions, or to all of a root, in the order of time.

    `namespace` stands for the root in the names of datasets and jobs: its URI unless told. Raises
    PackageMissingError without openlineage-python.
    """
    client = _import_client()
    facets = OpenLineageFacets(client, PRODUCER)
    space = namespace or _get_namespace(index.store.uri.rstrip("/"))
    listed = index.names() if names is None else names
    told = [entry for name in listed for entry in index.entries(name) if _has_events(entry)]
    for entry in sorted(told, key=lambda one: (one.time, one.dataset, one.version, one.number)):
        yield EntryEvents(entry, _EventBuilder(index, facets, client, space, entry).events())


def _get_namespace(uri: str) -> str:
    return uri if "://" in uri else Path(uri).as_uri()


def _has_events(entry: Entry) -> bool:
    return entry.changes_data or bool(_is_check_entry(entry)) or entry.operation == CONSUME


def _is_check_entry(entry: Entry) -> bool:
    return any(one.check not in RESERVED_CHECKS for one in entry.attestations)


def _import_client() -> _OpenLineageClient:
    try:
        from openlineage.client import event_v2, facet_v2  # noqa: PLC0415 - optional
    except ImportError:
        raise PackageMissingError(
            "OpenLineage events need openlineage-python, which is not installed",
            hint=Hint.of("run `pip install 'shardline[lineage]'`"),
        ) from None
    return _OpenLineageClient(event_v2, facet_v2)


@dataclass(frozen=True, slots=True)
class _OpenLineageClient:
    """What openlineage-python calls its classes."""

    events: Any
    facets: Any


@dataclass(frozen=True, slots=True)
class _EventBuilder:
    """One entry on its way into events."""

    index: LogIndex
    facets: OpenLineageFacets
    client: _OpenLineageClient
    namespace: str
    entry: Entry

    @property
    def name(self) -> str:
        return self.entry.shown

    def events(self) -> tuple[RunEvent, RunEvent]:
        of = self.client.events
        run = of.Run(str(get_run_id(self.entry)), facets=self.facets.run(self.entry))
        job = of.Job(self.namespace, self._job(), facets=self.facets.job())
        shared = {
            "eventTime": self.entry.time.isoformat(),
            "producer": PRODUCER,
            "run": run,
            "job": job,
        }
        start = of.RunEvent(eventType=of.RunState.START, **shared)
        done = of.RunEvent(
            eventType=of.RunState.COMPLETE,
            inputs=list(self._inputs()),
            outputs=list(self._outputs()),
            **shared,
        )
        return start, done

    def _job(self) -> str:
        if self.entry.operation == CONSUME:
            return self.entry.read(ConsumerParameters).name or CONSUME
        return f"{self.name}.{self.entry.operation}"

    def _inputs(self) -> Iterator[InputDataset]:
        entry = self.entry
        for told in dict.fromkeys(entry.inputs):
            yield self._version(told.shown, told.snapshot)
        if entry.operation == CONSUME and entry.pin is not None:
            yield self._version(self.name, entry.pin.snapshot)
        elif _is_check_entry(entry):
            yield self._version(self.name, self._about(), assertions=True)
        elif entry.operation in _CHANGED_IN_PLACE and not entry.inputs:
            yield self._version(self.name, entry.restores or entry.snapshot - 1)
        if entry.operation == "append":
            for source in entry.sources:
                yield self._source(source)

    def _about(self) -> int:
        """The snapshot that the checks of the entry were on."""
        if self.entry.rejects is not None:
            return self.entry.rejects
        contents = [one.content for one in self.entry.attestations if one.content is not None]
        timeline = self.index.version(self.name).state.timeline
        known = [number for one in contents for number in timeline.of_content(one)]
        return max((n for n in known if n <= self.entry.snapshot), default=self.entry.snapshot)

    def _version(
        self, name: str, snapshot: int | None, *, assertions: bool = False
    ) -> InputDataset:
        facets, read = {}, {}
        version = self.index.version(name)
        if snapshot and snapshot <= version.state.snapshot:
            told = version.state.timeline.moment(snapshot)
            facets = self.facets.version(version.schema, snapshot, told.content)
            read = self.facets.read(told.totals)
        if assertions:
            read |= self.facets.assertions(self.entry.attestations)
        dataset: InputDataset = self.client.events.InputDataset(
            self.namespace, name, facets=facets, inputFacets=read
        )
        return dataset

    def _source(self, source: Source) -> InputDataset:
        namespace, name = _get_file_identity(source, self.namespace)
        read = {} if source.size is None else self.facets.read_bytes(source.size)
        dataset: InputDataset = self.client.events.InputDataset(
            namespace, name, facets=self.facets.source(source), inputFacets=read
        )
        return dataset

    def _outputs(self) -> Iterator[OutputDataset]:
        entry = self.entry
        if not entry.changes_data:
            return
        schema = self.index.version(self.name).schema
        facets = self.facets.version(schema, entry.snapshot, entry.content or "")
        origins = self.index.origins(entry)
        if origins:
            facets |= self.facets.columns(self.namespace, origins, entry)
        yield self.client.events.OutputDataset(
            self.namespace, self.name, facets=facets, outputFacets=self.facets.written(entry)
        )


def _get_file_identity(source: Source, namespace: str) -> tuple[str, str]:
    """What OpenLineage calls a file: the store, and the path in it."""
    if source.path is None:
        return namespace, f"batch {source.batch}"
    scheme, there, rest = source.path.partition("://")
    if not there:
        return "file", source.path
    store, _, path = rest.partition("/")
    return ("file", f"/{path}") if scheme == "file" else (f"{scheme}://{store}", path)


ENDPOINT = "api/v1/lineage"


@dataclass(frozen=True, slots=True)
class SentEvents:
    """How many entries were told, in how many events."""

    entries: int
    events: int


def format_event_line(event: RunEvent) -> str:
    """An event as one line of JSON."""
    from openlineage.client.serde import Serde  # noqa: PLC0415 - optional

    return str(Serde.to_json(event)) + "\n"


def write_events(told: Iterable[EntryEvents], path: Path, *, overwrite: bool = False) -> SentEvents:
    """Write events to a file, one a line.

    With `overwrite`, a file that is there is replaced when all are told.
    """
    entries = events = 0
    with DurableFile(path, overwrite=overwrite) as file:
        for one in told:
            file.write("".join(map(format_event_line, one.events)).encode())
            entries, events = entries + 1, events + len(one.events)
    return SentEvents(entries, events)


def send_events(told: Iterable[EntryEvents], url: str, *, api_key: str = "") -> SentEvents:
    """Post events to an endpoint, one after the other, in the order of time.

    `url` is that of the server; with a path, it is where to post. Raises UnavailableError at the
    first that is not taken: since runs have the same ids again, all can be sent again.
    """
    from openlineage.client.transport.http import (  # noqa: PLC0415 - optional
        ApiKeyTokenProvider,
        HttpConfig,
        HttpTransport,
        TokenProvider,
    )
    from requests import RequestException  # noqa: PLC0415 - comes with it

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        # What stands before an @ may be a password.
        shown = f"…@{url.rpartition('@')[2]}" if "@" in url else url
        raise InvalidNameError(
            f"invalid server address {shown!r}: expected http:// or https:// without password",
            code="invalid-location",
            hint=Hint.of(
                "write an address such as https://marquez.example.org; set a key in "
                "OPENLINEAGE_API_KEY"
            ),
        )
    auth = ApiKeyTokenProvider({"apiKey": api_key}) if api_key else TokenProvider({})
    config = HttpConfig(
        url=f"{parts.scheme}://{parts.netloc}",
        endpoint=parts.path.strip("/") or ENDPOINT,
        auth=auth,
    )
    # What it answers to the last try is told as its answer, and not as a failure to reach it.
    config.retry = {**config.retry, "raise_on_status": False}
    transport = HttpTransport(config)
    entries = events = 0
    try:
        for one in told:
            for event in one.events:
                transport.emit(event)
                events += 1
            entries += 1
    except RequestException as error:
        answer = getattr(error, "response", None)
        where, what = f"{config.url}/{config.endpoint}", type(error).__name__
        sent = f"after {format_count(events, 'event')}"
        problem, code = f"cannot be reached ({what}) {sent}", "storage-unavailable"
        if answer is not None:
            problem = f"rejected an event with status {answer.status_code} {sent}"
            code = "request-rejected"
        raise UnavailableError(
            f"{where}: {problem}",
            code=code,
            hint=Hint.of("check the server and send all events again: none is stored twice"),
            path=where,
        ) from None
    finally:
        transport.close()
    return SentEvents(entries, events)
