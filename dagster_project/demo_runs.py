"""Runs of the demo's assets in this process, on the instance of the web page."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from rich.console import Console
from rich.table import Table
from rich.text import Text

from assets.digits import EXPORT, digit_pairs_v1, digits_single, digits_v1, digits_v2
from dagster_project.demo_batches import DIGITS
from shardline.api import Version
from shardline.dagster import metadata_keys as keys
from shardline.dagster.automation.audit import AUDIT
from shardline.dagster.resources import shardline_resource
from shardline.dagster.versions.declaration import VersionDefs
from shardline.operations.export import read_export
from shardline.text import format_bytes, format_count

DECLARED = (digits_v1, digits_single, digits_v2, digit_pairs_v1)
ASSETS = tuple(asset.key for declared in DECLARED for asset in declared.assets)
_EVENTS = {
    dg.DagsterEventType.ASSET_CHECK_EVALUATION,
    dg.DagsterEventType.ASSET_MATERIALIZATION,
}
_OTHERS_SECONDS = 60
_LOOK_SECONDS = 0.2
_SHORT_ID = 8


@dataclass(frozen=True, slots=True)
class DemoRun:
    """A run: the metadata of its materializations by asset, and its check results."""

    run_id: str
    success: bool
    materializations: Mapping[dg.AssetKey, Mapping[str, Any]]
    evaluations: Mapping[dg.AssetCheckKey, dg.AssetCheckEvaluation]

    def over(self, other: "DemoRun") -> "DemoRun":
        """Return both runs as one. Results of this run replace those of the other."""
        return DemoRun(
            self.run_id,
            self.success and other.success,
            {**other.materializations, **self.materializations},
            {**other.evaluations, **self.evaluations},
        )

    @property
    def failed(self) -> list[str]:
        """Names of the checks that failed with an error."""
        return [
            f"{key.name} of {key.asset_key.to_user_string()}"
            for key, evaluation in self.evaluations.items()
            if not evaluation.passed and evaluation.severity == dg.AssetCheckSeverity.ERROR
        ]


@dataclass(frozen=True)
class Demo:
    """The demo's versions, the instance that runs them, and the console."""

    instance: dg.DagsterInstance
    console: Console = field(
        default_factory=lambda: Console(markup=False, highlight=False, emoji=False)
    )
    appended: Version = field(default_factory=lambda: _open_version(digits_v1))
    single: Version = field(default_factory=lambda: _open_version(digits_single))
    extended: Version = field(default_factory=lambda: _open_version(digits_v2))
    pairs: Version = field(default_factory=lambda: _open_version(digit_pairs_v1))

    @property
    def versions(self) -> tuple[Version, ...]:
        """All versions, inputs before derived versions."""
        return self.appended, self.single, self.extended, self.pairs

    def run(self, landed: Path | None = None, *, log_level: str = "ERROR") -> DemoRun:
        """Materialize all assets in order, with all checks.

        If `make ui` is running, its sensor may have appended the `landed` source first. The result
        then includes that run.
        """
        from dagster_project.definitions import defs  # noqa: PLC0415 - not where nothing is new

        first = self.appended.state.number + 1
        result = defs.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.instance,
            asset_selection=list(ASSETS),
            run_config={"loggers": {"console": {"config": {"log_level": log_level}}}},
            raise_on_error=False,
        )
        for version in self.versions:
            version.refresh()
        own_run = self._load_run(result.run_id)
        run_id = self._find_appending_run(landed, first) if landed is not None else None
        if not run_id or run_id == own_run.run_id:
            return own_run
        self.say(f"  Appended by the sensor of make ui in run {run_id[:_SHORT_ID]}.")
        return self._load_run(run_id).over(own_run)

    def audit(self) -> DemoRun:
        """Audit every byte of the history."""
        from dagster_project.definitions import defs  # noqa: PLC0415 - not where nothing is new

        result = defs.resolve_job_def("audit").execute_in_process(
            instance=self.instance,
            run_config={
                "loggers": {"console": {"config": {"log_level": "ERROR"}}},
                "ops": {AUDIT: {"config": {"read_shards": True}}},
            },
            raise_on_error=False,
        )
        return self._load_run(result.run_id)

    def say(self, text: str = "", style: str = "") -> None:
        """Print a line with paths relative to the working directory."""
        self.console.print(relativize_paths(text), style=style, soft_wrap=True)

    def show(self, run: DemoRun) -> None:
        """Print the materializations and the check results of a run."""
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for key in ASSETS:
            metadata = run.materializations.get(key)
            name = Text(f"  {key.to_user_string()}", "bold")
            table.add_row(
                name, *(_format_materialization(metadata) if metadata else _format_failure(run))
            )
            for check, evaluation in run.evaluations.items():
                if check.asset_key == key:
                    description = Text(relativize_paths(evaluation.description or ""))
                    table.add_row(f"    {check.name}", _format_verdict(evaluation), description)
        self.console.print(table)
        published = ", ".join(
            str(version.published()) for version in self.versions if _has_snapshot(version)
        )
        self.say(f"  Published: {published or 'nothing'}. Run {run.run_id[:_SHORT_ID]}.", "dim")

    def list_problems(self) -> list[str]:
        """Return problems after a run, none if all versions are published and up to date."""
        for version in self.versions:
            if not _has_snapshot(version):
                return [f"{version.name}: no published snapshot"]
        base, single = self.appended.published(), self.single.published()
        problems = []
        if base.records < DIGITS:
            problems.append(f"{base}: {base.records} rows, expected {DIGITS} or more")
        pairs = base.records * (base.records - 1) // 2
        expected_rows = {self.single: base.records, self.extended: base.records, self.pairs: pairs}
        for version, rows in expected_rows.items():
            snapshot = version.published()
            inputs = version.log.entry(snapshot.entry).inputs
            if any(
                self.appended.snapshot(upstream.snapshot).content != base.content
                for upstream in inputs
            ):
                problems.append(f"{snapshot}: not derived from {base}")
            if snapshot.records != rows:
                problems.append(
                    f"{snapshot} with input {base}: {snapshot.records} rows, expected {rows}"
                )
        exported = read_export(EXPORT)
        if exported is None or not EXPORT.is_file() or exported.content != single.content:
            problems.append(f"{EXPORT}: does not contain {single}")
        return problems

    def is_materialized(self) -> bool:
        """Return True if this instance has materialized all assets."""
        return all(self.instance.get_latest_materialization_event(key) for key in ASSETS)

    def _find_appending_run(self, landed: Path, first: int) -> str | None:
        """Return the run that appended a source, of whatever instance."""
        path = landed.resolve().as_posix()
        for entry in self.appended.log.entries(first):
            if any(source.path == path for source in entry.sources):
                return entry.commit_info.run
        return None

    def _load_run(self, run_id: str) -> DemoRun:
        materializations: dict[dg.AssetKey, Mapping[str, Any]] = {}
        evaluations: dict[dg.AssetCheckKey, dg.AssetCheckEvaluation] = {}
        success = self._ended_well(run_id)
        for event in self._events(run_id):
            if event.event_type == dg.DagsterEventType.ASSET_MATERIALIZATION:
                materialization = event.step_materialization_data.materialization
                materializations[materialization.asset_key] = {
                    name: value.value for name, value in materialization.metadata.items()
                }
            else:
                evaluation = event.asset_check_evaluation_data
                evaluations[evaluation.asset_check_key] = evaluation
        return DemoRun(run_id, success, materializations, evaluations)

    def _events(self, run_id: str) -> Iterator[dg.DagsterEvent]:
        for record in self.instance.get_records_for_run(run_id, of_type=_EVENTS).records:
            yield record.event_log_entry.get_dagster_event()

    def _ended_well(self, run_id: str) -> bool:
        """Wait for a run of another process. Returns True if it succeeded."""
        deadline = time.monotonic() + _OTHERS_SECONDS
        while time.monotonic() < deadline:
            run = self.instance.get_run_by_id(run_id)
            if run is None or run.is_finished:
                return run is not None and run.is_success
            time.sleep(_LOOK_SECONDS)
        return False


def _open_version(declared: VersionDefs) -> Version:
    return shardline_resource().version(declared.name)


def _has_snapshot(version: Version) -> bool:
    return version.exists and version.state.published is not None


def relativize_paths(text: str) -> str:
    """Return a text with its paths relative to the working directory."""
    return text.replace(f"{Path.cwd()}/", "")


def _format_verdict(evaluation: dg.AssetCheckEvaluation) -> Text:
    if evaluation.passed:
        return Text("passed", "green")
    if evaluation.severity == dg.AssetCheckSeverity.WARN:
        return Text("warning", "yellow")
    return Text("FAILED", "bold red")


def _format_materialization(metadata: Mapping[str, Any]) -> tuple[Text, str]:
    is_new = metadata.get(keys.ADDED_SHARDS, metadata.get(keys.IS_WRITTEN))
    label = Text("new", "cyan") if is_new else Text("unchanged")
    rows, size = (
        format_count(metadata["dagster/row_count"], "row"),
        format_bytes(metadata[keys.BYTES]),
    )
    if keys.FILE in metadata:
        return label, relativize_paths(f"{metadata[keys.FILE]}: {rows}, {size}")
    added = f"{metadata[keys.ADDED_ROWS]:+,}" if metadata[keys.ADDED_ROWS] else "none new"
    line = f"snapshot {metadata[keys.SNAPSHOT]}: {rows} ({added}), {size}"
    if is_new and keys.COMPUTED_SHARDS in metadata:
        computed = format_count(metadata[keys.COMPUTED_SHARDS], "shard")
        line += f"; {computed} computed, {metadata[keys.REUSED_SHARDS]} reused"
    return label, line


def _format_failure(run: DemoRun) -> tuple[Text, str]:
    if run.failed:
        return Text("skipped", "yellow"), "an upstream check failed"
    return Text("FAILED", "bold red"), "see the run below in make ui"
