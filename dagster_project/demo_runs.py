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
from shardline.cli.output import create_console
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
    made: Mapping[dg.AssetKey, Mapping[str, Any]]
    verdicts: Mapping[dg.AssetCheckKey, dg.AssetCheckEvaluation]

    def over(self, other: "DemoRun") -> "DemoRun":
        """Return both runs as one. Results of this run replace those of the other."""
        return DemoRun(
            self.run_id,
            self.success and other.success,
            {**other.made, **self.made},
            {**other.verdicts, **self.verdicts},
        )

    @property
    def failed(self) -> list[str]:
        """Names of the checks that failed with an error."""
        return [
            f"{key.name} of {key.asset_key.to_user_string()}"
            for key, told in self.verdicts.items()
            if not told.passed and told.severity == dg.AssetCheckSeverity.ERROR
        ]


@dataclass(frozen=True)
class Demo:
    """The demo's versions, the instance that runs them, and the console."""

    instance: dg.DagsterInstance
    console: Console = field(default_factory=create_console)
    growing: Version = field(default_factory=lambda: _open_version(digits_v1))
    single: Version = field(default_factory=lambda: _open_version(digits_single))
    extended: Version = field(default_factory=lambda: _open_version(digits_v2))
    pairs: Version = field(default_factory=lambda: _open_version(digit_pairs_v1))

    @property
    def versions(self) -> tuple[Version, ...]:
        """All versions, inputs before derived versions."""
        return self.growing, self.single, self.extended, self.pairs

    def run(self, landed: Path | None = None, *, log_level: str = "ERROR") -> DemoRun:
        """Materialize all assets in order, with all checks.

        If `make ui` is running, its sensor may have appended the `landed` source first. Then the
        result is that of the other run, as far as it went.
        """
        from dagster_project.definitions import defs  # noqa: PLC0415 - not where nothing is new

        first = self.growing.state.number + 1
        result = defs.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.instance,
            asset_selection=list(ASSETS),
            run_config={"loggers": {"console": {"config": {"log_level": log_level}}}},
            raise_on_error=False,
        )
        for version in self.versions:
            version.refresh()
        ours = self._told(result.run_id)
        taker = self._taker(landed, first) if landed is not None else None
        if not taker or taker == ours.run_id:
            return ours
        self.say(f"  The sensor of make ui was faster: run {taker[:_SHORT_ID]} appended it.")
        return self._told(taker).over(ours)

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
        return self._told(result.run_id)

    def say(self, text: str = "", style: str = "") -> None:
        """Print a line with paths relative to the working directory."""
        self.console.print(relativize_paths(text), style=style, soft_wrap=True)

    def show(self, ran: DemoRun) -> None:
        """Print the materializations and the check results of a run."""
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for key in ASSETS:
            told = ran.made.get(key)
            name = Text(f"  {key.to_user_string()}", "bold")
            table.add_row(name, *(_format_materialization(told) if told else _format_failure(ran)))
            for check, verdict in ran.verdicts.items():
                if check.asset_key == key:
                    said = Text(relativize_paths(verdict.description or ""))
                    table.add_row(f"    {check.name}", _format_verdict(verdict), said)
        self.console.print(table)
        published = ", ".join(str(one.published()) for one in self.versions if _has_snapshot(one))
        self.say(f"  Published: {published or 'nothing'}. Run {ran.run_id[:_SHORT_ID]}.", "dim")

    def amiss(self) -> list[str]:
        """Return problems after a run, none if all versions are published and up to date."""
        for version in self.versions:
            if not _has_snapshot(version):
                return [f"{version.name}: no published snapshot"]
        base, single = self.growing.published(), self.single.published()
        found = []
        if base.records < DIGITS:
            found.append(f"{base}: {base.records} rows, expected {DIGITS} or more")
        each_two = base.records * (base.records - 1) // 2
        wanted = {self.single: base.records, self.extended: base.records, self.pairs: each_two}
        for version, rows in wanted.items():
            made = version.published()
            inputs = version.log.entry(made.entry).inputs
            if any(self.growing.snapshot(one.snapshot).content != base.content for one in inputs):
                found.append(f"{made}: not derived from {base}")
            if made.records != rows:
                found.append(f"{made} with input {base}: {made.records} rows, expected {rows}")
        exported = read_export(EXPORT)
        if exported is None or not EXPORT.is_file() or exported.content != single.content:
            found.append(f"{EXPORT}: does not contain {single}")
        return found

    def is_told(self) -> bool:
        """Return True if this instance has materialized all assets."""
        return all(self.instance.get_latest_materialization_event(key) for key in ASSETS)

    def _taker(self, landed: Path, first: int) -> str | None:
        """Return the run that appended a source, of whatever instance."""
        path = landed.resolve().as_posix()
        for entry in self.growing.log.entries(first):
            if any(source.path == path for source in entry.sources):
                return entry.maker.run
        return None

    def _told(self, run_id: str) -> DemoRun:
        made: dict[dg.AssetKey, Mapping[str, Any]] = {}
        verdicts: dict[dg.AssetCheckKey, dg.AssetCheckEvaluation] = {}
        success = self._ended_well(run_id)
        for event in self._events(run_id):
            if event.event_type == dg.DagsterEventType.ASSET_MATERIALIZATION:
                told = event.step_materialization_data.materialization
                made[told.asset_key] = {name: one.value for name, one in told.metadata.items()}
            else:
                verdict = event.asset_check_evaluation_data
                verdicts[verdict.asset_check_key] = verdict
        return DemoRun(run_id, success, made, verdicts)

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


def _format_verdict(verdict: dg.AssetCheckEvaluation) -> Text:
    if verdict.passed:
        return Text("passed", "green")
    if verdict.severity == dg.AssetCheckSeverity.WARN:
        return Text("warning", "yellow")
    return Text("FAILED", "bold red")


def _format_materialization(told: Mapping[str, Any]) -> tuple[Text, str]:
    moved = told.get(keys.ADDED_SHARDS, told.get(keys.IS_WRITTEN))
    word = Text("made", "cyan") if moved else Text("stands")
    rows, size = format_count(told["dagster/row_count"], "row"), format_bytes(told[keys.BYTES])
    if keys.FILE in told:
        return word, relativize_paths(f"{told[keys.FILE]}: {rows}, {size}")
    came = f"{told[keys.ADDED_ROWS]:+,}" if told[keys.ADDED_ROWS] else "none new"
    line = f"snapshot {told[keys.SNAPSHOT]}: {rows} ({came}), {size}"
    if moved and keys.COMPUTED_SHARDS in told:
        computed = format_count(told[keys.COMPUTED_SHARDS], "shard")
        line += f"; {computed} computed, {told[keys.REUSED_SHARDS]} reused"
    return word, line


def _format_failure(ran: DemoRun) -> tuple[Text, str]:
    if ran.failed:
        return Text("skipped", "yellow"), "an upstream check failed"
    return Text("FAILED", "bold red"), "see the run below in make ui"
