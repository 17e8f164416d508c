"""Runs of the demo's assets in this process, on the instance that the web page shows."""

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
    """What a run told: the metadata of what it made, by asset, and the verdicts of its checks."""

    run_id: str
    success: bool
    made: Mapping[dg.AssetKey, Mapping[str, Any]]
    verdicts: Mapping[dg.AssetCheckKey, dg.AssetCheckEvaluation]

    def over(self, other: "DemoRun") -> "DemoRun":
        """Both runs as one; what both told of is as this one told it."""
        return DemoRun(
            self.run_id,
            self.success and other.success,
            {**other.made, **self.made},
            {**other.verdicts, **self.verdicts},
        )

    @property
    def failed(self) -> list[str]:
        """The checks that hold something up, by name."""
        return [
            f"{key.name} of {key.asset_key.to_user_string()}"
            for key, told in self.verdicts.items()
            if not told.passed and told.severity == dg.AssetCheckSeverity.ERROR
        ]


@dataclass(frozen=True)
class Demo:
    """The demo's versions, the instance that runs them, and the console that tells of it."""

    instance: dg.DagsterInstance
    console: Console = field(default_factory=create_console)
    growing: Version = field(default_factory=lambda: _open_version(digits_v1))
    single: Version = field(default_factory=lambda: _open_version(digits_single))
    extended: Version = field(default_factory=lambda: _open_version(digits_v2))
    pairs: Version = field(default_factory=lambda: _open_version(digit_pairs_v1))

    @property
    def versions(self) -> tuple[Version, ...]:
        """All of them, what others are made of first."""
        return self.growing, self.single, self.extended, self.pairs

    def run(self, landed: Path | None = None, *, log_level: str = "ERROR") -> DemoRun:
        """Materialize everything in order, with all checks; tells what came of it.

        If `make ui` runs beside us, its sensor may have taken what has `landed` before this run
        could: then that run is the one to tell of, as far as it went.
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
        self.say(f"  The sensor of make ui was faster: run {taker[:_SHORT_ID]} took it.")
        return self._told(taker).over(ours)

    def audit(self) -> DemoRun:
        """Prove the history of everything anew, every byte of it."""
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
        """Print a line; paths in it are told from here."""
        self.console.print(relativize_paths(text), style=style, soft_wrap=True)

    def show(self, ran: DemoRun) -> None:
        """Print what a run made, and the verdict of each check in its own words."""
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
        """What is not as it should be after a run: all is published, and in step."""
        for version in self.versions:
            if not _has_snapshot(version):
                return [f"{version.name} has no published snapshot"]
        base, single = self.growing.published(), self.single.published()
        found = []
        if base.records < DIGITS:
            found.append(f"{base} has {base.records} rows, and there are {DIGITS} digits")
        each_two = base.records * (base.records - 1) // 2
        wanted = {self.single: base.records, self.extended: base.records, self.pairs: each_two}
        for version, rows in wanted.items():
            made = version.published()
            inputs = version.log.entry(made.entry).inputs
            if any(self.growing.snapshot(one.snapshot).content != base.content for one in inputs):
                found.append(f"{made} is not made of {base}")
            if made.records != rows:
                found.append(f"{made} has {made.records} rows, and of {base} it should have {rows}")
        exported = read_export(EXPORT)
        if exported is None or not EXPORT.is_file() or exported.content != single.content:
            found.append(f"{EXPORT} does not hold {single}")
        return found

    def is_told(self) -> bool:
        """Whether the instance knows of all assets: another one may have made them."""
        return all(self.instance.get_latest_materialization_event(key) for key in ASSETS)

    def _taker(self, landed: Path, first: int) -> str | None:
        """The run whose entry has what landed, wherever that run is."""
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
        """Wait for a run that is not ours; says whether it succeeded."""
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
    """A text with the paths in it as they are from the working directory."""
    return text.replace(f"{Path.cwd()}/", "")


def _format_verdict(verdict: dg.AssetCheckEvaluation) -> Text:
    if verdict.passed:
        return Text("passed", "green")
    if verdict.severity == dg.AssetCheckSeverity.WARN:
        return Text("warning", "yellow")
    return Text("FAILED", "bold red")


def _format_materialization(told: Mapping[str, Any]) -> tuple[Text, str]:
    moved = told.get("added_shards", told.get("written"))
    word = Text("made", "cyan") if moved else Text("stands")
    rows, size = format_count(told["dagster/row_count"], "row"), format_bytes(told["bytes"])
    if "file" in told:
        return word, relativize_paths(f"{told['file']}: {rows}, {size}")
    came = f"{told['added_rows']:+,}" if told["added_rows"] else "none new"
    line = f"snapshot {told['snapshot']}: {rows} ({came}), {size}"
    if moved and "computed_shards" in told:
        computed = format_count(told["computed_shards"], "shard")
        line += f"; {computed} computed, {told['reused_shards']} reused"
    return word, line


def _format_failure(ran: DemoRun) -> tuple[Text, str]:
    if ran.failed:
        return Text("skipped", "yellow"), "what it is made of did not pass its checks"
    return Text("FAILED", "bold red"), "make ui shows why, in the run below"
