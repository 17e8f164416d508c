"""The facets of OpenLineage events: what is told of a run, a job and a dataset, each by its class.

The classes are made from the published JSON schemas, so that no facet can have a wrong name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardline.log.model import Totals
from shardline.log.state import RESERVED_CHECKS
from shardline.release import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from shardline.log.entry import Entry
    from shardline.log.model import Attestation, Source
    from shardline.provenance.feature_origins import FieldOrigin
    from shardline.schema.schema import Schema

_IDENTITY = frozenset({"kept", "renamed"})


class Facets:
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
        told = {
            "dataset": entry.dataset,
            "version": entry.version,
            "entry": entry.number,
            "digest": entry.digest,
            "operation": entry.operation,
            "run": entry.parameters.get("run") if entry.operation == "consume" else entry.maker.run,
            "code": entry.maker.code,
            "commit": entry.parameters.get("commit") if entry.operation == "consume" else None,
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
        self, namespace: str, origins: Mapping[str, FieldOrigin], entry: Entry
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

    def _input_fields(self, namespace: str, origin: FieldOrigin) -> Iterator[Any]:
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
        pairs = entry.parameters.get("rule", {}).get("on", ())
        how = of.Transformation(type="INDIRECT", subtype="JOIN", description="", masking=False)
        for pair in pairs:
            for told, feature in zip(entry.inputs, pair, strict=True):
                version = told.shown
                yield of.InputField(namespace, version, feature, transformations=[how])
