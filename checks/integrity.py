"""The integrity check: every byte of every file, read by our own scan."""

from collections.abc import Sequence
from pathlib import Path

import dagster as dg

import shardline
from assets import DemoFolder, loose_files
from shardline.errors import ShardlineError

FAULTS_SHOWN = 20


def check_integrity(paths: Sequence[Path]) -> dg.AssetCheckResult:
    """Verify files and say what was found, as the result of an asset check."""
    try:
        reports = shardline.verify_files(paths)
    except (OSError, ShardlineError) as error:
        return dg.AssetCheckResult(passed=False, description=str(error))
    faults = [(report.file, fault) for report in reports for fault in report.faults]
    damaged = [report for report in reports if not report.ok]
    table = dg.MetadataValue.table(
        [
            dg.TableRecord(
                {
                    "file": str(file),
                    "kind": str(fault.kind),
                    "record": int(fault.record),
                    "offset": int(fault.offset),
                    "detail": fault.detail,
                }
            )
            for file, fault in faults[:FAULTS_SHOWN]
        ],
        dg.TableSchema(
            [
                dg.TableColumn("file"),
                dg.TableColumn("kind"),
                dg.TableColumn("record", "int"),
                dg.TableColumn("offset", "int"),
                dg.TableColumn("detail"),
            ]
        ),
    )
    return dg.AssetCheckResult(
        passed=bool(reports) and not damaged,
        description=(
            f"{len(damaged)} of {len(reports)} files are damaged"
            if damaged
            else f"{len(reports)} files, every byte in order"
        ),
        metadata={
            "files": len(reports),
            "records": sum(int(report.records) for report in reports),
            "bytes": sum(int(report.bytes) for report in reports),
            "faults": len(faults),
            "first_faults": table,
        },
    )


@dg.asset_check(asset=loose_files, blocking=True)
def integrity(demo_folder: DemoFolder) -> dg.AssetCheckResult:
    """Both checksums of every record in every file hold, and nothing is cut or left over."""
    return check_integrity(demo_folder.loose_files)
