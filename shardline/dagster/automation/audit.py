"""The audit: verifies the history every night and reports it in a check and on a page."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from shardline.dagster import metadata_keys as keys
from shardline.dagster.asset_names import get_asset_key
from shardline.dagster.instance_records import InstanceRecords
from shardline.dagster.resources import ShardlineResource, get_page_link
from shardline.text import format_count

if TYPE_CHECKING:
    from shardline.lineage.audit.audit_report import AuditReport, Finding

AUDIT = "lineage_audit"
AUDIT_CHECK = "no_findings"
DAILY = "30 3 * * *"
_PAGE = "audit.html"
_SHOWN = 50


class AuditConfig(dg.Config):
    """Launchpad options of an audit."""

    read_shards: bool = Field(
        default=False,
        description="Read every byte of shards and sources. Off: check only that they exist.",
    )


def build_audit_asset(versions: Sequence[str]) -> dg.AssetsDefinition:
    """Return the asset of the report page, with a check for findings."""
    key = dg.AssetKey(AUDIT)

    @dg.asset(
        key=key,
        group_name="audit",
        deps=[get_asset_key(name) for name in versions],
        kinds={"html"},
        description="Audited history of every dataset, as an HTML page.",
        check_specs=[
            dg.AssetCheckSpec(
                AUDIT_CHECK,
                asset=key,
                description="The audit has no findings.",
            )
        ],
    )
    def lineage_audit(
        context: dg.AssetExecutionContext, config: AuditConfig, shardline: ShardlineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        from shardline.lineage.audit.root_audit import audit  # noqa: PLC0415 - it loads Arrow
        from shardline.lineage.page import write_page  # noqa: PLC0415 - as above
        from shardline.provenance.log_index import LogIndex  # noqa: PLC0415 - as above

        catalog = LogIndex(shardline.root)
        read = config.read_shards
        report = audit(
            catalog, shards=read, sources=read, recorded=InstanceRecords(context.instance)
        )
        for finding in report.findings[:_SHOWN]:
            context.log.warning("%s %s: %s", finding.version, finding.subject, finding.detail)
        reports = Path(shardline.reports)
        reports.mkdir(parents=True, exist_ok=True)
        page = write_page(catalog, reports / _PAGE, findings=report.findings)
        links = {
            keys.REPORT: dg.MetadataValue.url(get_page_link(page, reports)),
            keys.FILE: dg.MetadataValue.path(str(page.resolve())),
        }
        yield dg.MaterializeResult(
            metadata={**links, **_count_findings(report)},
            check_results=[_build_check_result(report, links)],
        )

    return lineage_audit


def _count_findings(report: "AuditReport") -> dict[str, int]:
    counts = Counter(finding.severity for finding in report.findings)
    return {
        keys.VERSIONS: len(report.versions),
        keys.ENTRIES: int(report.entries),
        keys.SHARDS: int(report.shards),
        keys.ERRORS: counts["error"],
        keys.WARNINGS: counts["warning"],
        keys.NOTES: counts["note"],
    }


def _build_check_result(
    report: "AuditReport", links: dict[str, dg.MetadataValue[str]]
) -> dg.AssetCheckResult:
    if not report.findings:
        description = "no findings"
        return dg.AssetCheckResult(
            passed=True, check_name=AUDIT_CHECK, description=description, metadata=dict(links)
        )
    errors = any(finding.severity == "error" for finding in report.findings)
    return dg.AssetCheckResult(
        passed=bool(report.ok),
        check_name=AUDIT_CHECK,
        severity=dg.AssetCheckSeverity.ERROR if errors else dg.AssetCheckSeverity.WARN,
        description=f"{format_count(len(report.findings), 'finding')}, see the report page",
        metadata={**links, keys.FINDINGS: _build_table(report.findings)},
    )


def _build_table(findings: Sequence["Finding"]) -> dg.TableMetadataValue:
    columns = ("severity", "version", "subject", "detail", "hint")
    records = [
        dg.TableRecord({name: str(getattr(finding, name)) for name in columns})
        for finding in findings[:_SHOWN]
    ]
    return dg.MetadataValue.table(records, dg.TableSchema([dg.TableColumn(c) for c in columns]))


AUDIT_JOB = dg.define_asset_job(
    "audit",
    selection=dg.AssetSelection.assets(AUDIT),
    description="Audit the history of every dataset. Nothing is changed.",
)
"""Audits all versions, whatever else runs."""


def build_audit_schedule() -> dg.ScheduleDefinition:
    """Return the schedule that audits every night."""
    return dg.ScheduleDefinition(
        name="nightly_audit",
        job=AUDIT_JOB,
        cron_schedule=DAILY,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Audit every night, to detect changes made outside Shardline.",
    )
