"""A root's history as OpenLineage events, which catalogs of lineage such as Marquez take in.

Each entry that changed data, told what checks found, or registered a consumer is one run of a job:
`digits/v1.append` is what appends to that version. The id of the run is made from the digest of
the entry, so sending a history twice tells nothing new. A run has a START and a COMPLETE event, as
the specification wants it, both with the time of the commit: the log knows no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, UUID, uuid5

from shardline.errors import PackageMissingError
from shardline.hints import Hint
from shardline.lineage.exports.openlineage_facets import Facets
from shardline.log.state import RESERVED_CHECKS
from shardline.provenance.consumers import CONSUME
from shardline.release import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent

    from shardline.log.entry import Entry
    from shardline.log.model import Source
    from shardline.provenance.catalog import Catalog

PRODUCER = f"urn:shardline:{__version__}"
_RUNS = uuid5(NAMESPACE_URL, "shardline entry")
_CHANGED_IN_PLACE = frozenset({"erase", "rebuild", "repair", "reject", "restore"})


@dataclass(frozen=True, slots=True)
class Told:
    """An entry, and the two events that tell it."""

    entry: Entry
    events: tuple[RunEvent, RunEvent]


def run_id(entry: Entry) -> UUID:
    """The id of the run that an entry is, the same whenever it is asked for."""
    return uuid5(_RUNS, entry.digest)


def events(
    catalog: Catalog, names: Sequence[str] | None = None, *, namespace: str = ""
) -> Iterator[Told]:
    """Everything that happened to these versions, or to all of a root, in the order of time.

    `namespace` stands for the root in the names of datasets and jobs: its URI unless told. Raises
    PackageMissingError without openlineage-python.
    """
    client = _client()
    facets = Facets(client, PRODUCER)
    space = namespace or _namespace(catalog.store.uri.rstrip("/"))
    listed = catalog.names() if names is None else names
    told = [entry for name in listed for entry in catalog.entries(name) if _is_told(entry)]
    for entry in sorted(told, key=lambda one: (one.time, one.dataset, one.version, one.number)):
        yield Told(entry, _Telling(catalog, facets, client, space, entry).events())


def _namespace(uri: str) -> str:
    return uri if "://" in uri else Path(uri).as_uri()


def _is_told(entry: Entry) -> bool:
    return entry.changes_data or bool(_checked(entry)) or entry.operation == CONSUME


def _checked(entry: Entry) -> bool:
    return any(one.check not in RESERVED_CHECKS for one in entry.attestations)


def _client() -> _Client:
    try:
        from openlineage.client import event_v2, facet_v2  # noqa: PLC0415 - optional
    except ImportError:
        raise PackageMissingError(
            "OpenLineage events need openlineage-python, which is not installed",
            hint=Hint.of("run `pip install 'shardline[lineage]'`"),
        ) from None
    return _Client(event_v2, facet_v2)


@dataclass(frozen=True, slots=True)
class _Client:
    """What openlineage-python calls its classes."""

    events: Any
    facets: Any


@dataclass(frozen=True, slots=True)
class _Telling:
    """One entry on its way into events."""

    catalog: Catalog
    facets: Facets
    client: _Client
    namespace: str
    entry: Entry

    @property
    def name(self) -> str:
        return self.entry.shown

    def events(self) -> tuple[RunEvent, RunEvent]:
        of = self.client.events
        run = of.Run(str(run_id(self.entry)), facets=self.facets.run(self.entry))
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
            return str(self.entry.parameters.get("name", CONSUME))
        return f"{self.name}.{self.entry.operation}"

    def _inputs(self) -> Iterator[InputDataset]:
        entry = self.entry
        for told in dict.fromkeys(entry.inputs):
            yield self._version(told.shown, told.snapshot)
        if entry.operation == CONSUME and entry.pin is not None:
            yield self._version(self.name, entry.pin.snapshot)
        elif _checked(entry):
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
        timeline = self.catalog.version(self.name).state.timeline
        known = [number for one in contents for number in timeline.of_content(one)]
        return max((n for n in known if n <= self.entry.snapshot), default=self.entry.snapshot)

    def _version(
        self, name: str, snapshot: int | None, *, assertions: bool = False
    ) -> InputDataset:
        facets, read = {}, {}
        version = self.catalog.version(name)
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
        namespace, name = _place(source, self.namespace)
        read = {} if source.size is None else self.facets.read_bytes(source.size)
        dataset: InputDataset = self.client.events.InputDataset(
            namespace, name, facets=self.facets.source(source), inputFacets=read
        )
        return dataset

    def _outputs(self) -> Iterator[OutputDataset]:
        entry = self.entry
        if not entry.changes_data:
            return
        schema = self.catalog.version(self.name).schema
        facets = self.facets.version(schema, entry.snapshot, entry.content or "")
        origins = self.catalog.origins(entry)
        if origins:
            facets |= self.facets.columns(self.namespace, origins, entry)
        yield self.client.events.OutputDataset(
            self.namespace, self.name, facets=facets, outputFacets=self.facets.written(entry)
        )


def _place(source: Source, namespace: str) -> tuple[str, str]:
    """What OpenLineage calls a file: the store, and the path in it."""
    if source.path is None:
        return namespace, f"batch {source.batch}"
    scheme, there, rest = source.path.partition("://")
    if not there:
        return "file", source.path
    store, _, path = rest.partition("/")
    return ("file", f"/{path}") if scheme == "file" else (f"{scheme}://{store}", path)
