"""Progress in the log of a run: when a line is written, and what it says."""

import json
import re
from itertools import count
from pathlib import Path

import dagster as dg

from shardline import Progress, ThreadExecutor, Version
from shardline.dagster.versions.progress import create_log_listener, create_logging_executor

MB = 1024 * 1024


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, line: str, /) -> None:
        self.lines.append(line)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_fast_step_logs_nothing() -> None:
    log, clock = Lines(), Clock()
    hear = create_log_listener(log, clock=clock)
    hear(Progress("appending", "a", 0, 10, 0))
    clock.now += 1.9
    hear(Progress("appending", "a", 10, 10, 5))
    assert log.lines == []


def test_progress_lines_are_throttled() -> None:
    log, clock = Lines(), Clock()
    hear = create_log_listener(log, clock=clock)
    times = []
    for tick in range(400):
        clock.now = 100 + tick / 10
        written = len(log.lines)
        hear(Progress("appending", "a", tick * MB, 400 * MB, tick))
        times += [tick / 10] * (len(log.lines) - written)
    assert times == [2.0, 12.0, 22.0, 32.0]


def test_progress_line_has_share_rate_and_time() -> None:
    log, clock = Lines(), Clock()
    hear = create_log_listener(log, clock=clock)
    hear(Progress("appending", "a", 0, 100 * MB, 0))
    hear(Progress("appending", "b", 0, 300 * MB, 0))
    clock.now += 2
    hear(Progress("appending", "a", 100 * MB, 100 * MB, 12_000))
    parts = ["25% of 400.0 MB", "12,000 rows", "6,000 rows/s", "50.0 MB/s"]
    left = "about 6 s left"
    assert log.lines == [f"appending: {', '.join([*parts, left])}"]
    clock.now += 98
    hear(Progress("appending", "b", MB, 300 * MB, 0))
    assert log.lines[1].endswith(" 5 min left")
    clock.now += 20_000
    hear(Progress("appending", "b", 2 * MB, 300 * MB, 0))
    assert re.findall(r"(\d+) h (\d+) min", log.lines[2]) == [("16", "19")]


def test_progress_of_unknown_size_has_no_share() -> None:
    log, clock = Lines(), Clock()
    hear = create_log_listener(log, clock=clock)
    hear(Progress("appending", "a", 0, None, 0))
    clock.now += 4
    hear(Progress("appending", "a", 2 * MB, None, 1))
    (line,) = log.lines
    assert line.split(", ") == ["appending: 2.0 MB", "1 row", "0 rows/s", "512.0 KB/s"]


def test_new_step_restarts_the_measure() -> None:
    log, clock = Lines(), Clock()
    hear = create_log_listener(log, clock=clock)
    hear(Progress("identifying", "a", 0, 10 * MB, 0))
    clock.now += 3
    hear(Progress("identifying", "a", 9 * MB, 10 * MB, 0))
    hear(Progress("appending", "a", 0, 10 * MB, 0))
    clock.now += 9
    hear(Progress("appending", "a", 1 * MB, 10 * MB, 10))
    clock.now += 1
    hear(Progress("appending", "a", 5 * MB, 10 * MB, 10))
    expected = [
        "identifying: 90% of 10.0 MB, 3.0 MB/s, about 0 s left",
        "appending: 50% of 10.0 MB, 10 rows, 1 rows/s, 512.0 KB/s, about 10 s left",
    ]
    assert log.lines == expected


def rows_files(folder: Path) -> list[Path]:
    paths = [folder / f"{name}.jsonl" for name in "abcde"]
    for first, path in enumerate(paths):
        path.write_text("".join(json.dumps({"x": first + n}) + "\n" for n in range(100)))
    return paths


def test_share_counts_all_files(tmp_path: Path) -> None:
    log, ticks = Lines(), count(0, 3)
    paths = rows_files(tmp_path)
    heard: list[Progress] = []
    report = Version(tmp_path / "root", "digits/v1").append(
        paths,
        executor=create_logging_executor(log, ThreadExecutor(1), clock=lambda: float(next(ticks))),
        progress=heard.append,
    )
    assert report.records == 500
    total = sum(path.stat().st_size for path in paths)
    sizes = {line.split(" of ")[1].split(",")[0] for line in log.lines}
    assert sizes == {f"{total / 1024:.1f} KB"}
    steps = {line.split(":")[0] for line in log.lines}
    assert steps <= {"identifying", "appending"}
    assert len(log.lines) > 1
    assert {told.step for told in heard} == {"identifying", "appending"}


def test_threads_log_into_a_run(tmp_path: Path) -> None:
    paths = rows_files(tmp_path)

    @dg.asset
    def digits_v1(context: dg.AssetExecutionContext) -> None:
        ticks = count(0, 11)
        Version(tmp_path / "root", "digits/v1").append(
            paths,
            executor=ThreadExecutor(2),
            progress=create_log_listener(context.log, clock=lambda: float(next(ticks))),
        )

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([digits_v1], instance=instance)
        assert result.success
        messages = [event.user_message for event in instance.all_logs(result.run_id)]
    assert [line for line in messages if line.startswith("appending: ") and line.endswith(" left")]
