"""The harness itself: a correct program passes, each broken one is caught at the right points."""

from __future__ import annotations

import dataclasses
import errno
import os
import platform
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.torture.strace import shim, unavailable
from tests.torture.sweep import (
    CLEAN,
    Case,
    HarnessError,
    Outcome,
    Point,
    Sweep,
    assert_error_names,
    assert_failed_sync_is_final,
    assert_success_is_synced,
    sample,
    torture,
)

if TYPE_CHECKING:
    from pathlib import Path

OLD = b"old"
NEW = b"new!" * 1000

SOUND = """
import os, sys

path, data = sys.argv[1], b"new!" * 1000
temporary = path + ".tmp"

def write_all(descriptor, data):
    while data:
        data = data[os.write(descriptor, data):]

def sync(descriptor):
    os.fsync(descriptor)

try:
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    write_all(descriptor, data[:3000])
    write_all(descriptor, data[3000:])
    sync(descriptor)
    os.replace(temporary, path)
    sync(os.open(os.path.dirname(path), os.O_RDONLY))
except OSError as error:
    sys.exit(f"{path}: {error.strerror}")
print("done")
"""
WRITE = """    while data:
        data = data[os.write(descriptor, data):]"""
TRIED_WRITE = """    while data:
      try:
        data = data[os.write(descriptor, data):]
      except OSError:
"""
RENAME = "rename 1 a.tmp > a"
LASTING = "from then on"
KILLS = [
    "openat 1 a.tmp: kill",
    "write 1 a.tmp: kill",
    "write 2 a.tmp: kill",
    "fsync 1 a.tmp: kill",
    f"{RENAME}: kill",
    "fsync 2 .: kill",
    "exit_group 1: kill",
]


@pytest.fixture(autouse=True)
def _strace() -> None:
    if (reason := unavailable()) is not None:
        pytest.skip(reason)
    if platform.machine() != "x86_64":
        pytest.skip("the calls are named here as on x86-64; elsewhere a rename is a renameat")


needs_a_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def judge(folder: Path, outcome: Outcome) -> None:
    path = folder / "a"
    assert path.read_bytes() in {OLD, NEW}, "torn"
    if outcome.exit_code == 0 or outcome.point.after_the_last_call:
        assert path.read_bytes() == NEW, "false success"
    assert_error_names(outcome, path)
    assert_success_is_synced(outcome)
    assert_failed_sync_is_final(outcome.calls)
    again = outcome.again()
    assert again.returncode == 0, f"no second run: {again.stderr}"
    assert path.read_bytes() == NEW, "the second run did nothing"


def case_of(program: str) -> Case:
    return Case(
        name="replace",
        prepare=lambda folder: (folder / "a").write_bytes(OLD),
        command=lambda folder: [sys.executable, "-S", "-c", program, str(folder / "a")],
        judge=judge,
    )


def sweep_of(program: str, work: Path) -> Sweep:
    return Sweep(case_of(program), work / "sweep")


def broken(before: str, after: str) -> str:
    """Return the correct program with one defect."""
    assert before in SOUND
    return SOUND.replace(before, after)


def point_of(sweep: Sweep, label: str) -> Point:
    (point,) = [point for point in sweep.points() if point.label == label]
    return point


@needs_a_compiler
def test_a_sound_program_passes_at_every_point(tmp_path: Path) -> None:
    sweep = sweep_of(SOUND, tmp_path)
    points = sweep.points()
    assert not sweep.failures(points)
    assert not sweep.left_out
    assert {path.name for path in sweep.work.iterdir()} == {"template"}, "what passed is cleared"


def test_every_changing_call_is_a_point_and_the_exit_stands_for_after_the_last(
    tmp_path: Path,
) -> None:
    labels = [point.label for point in sweep_of(SOUND, tmp_path).points()]
    assert [label for label in labels if label.endswith("kill")] == KILLS
    errors = ("ENOSPC", "EIO", "EINTR")
    faults = ["kill", *(f"{error} {when}" for error in errors for when in ("once", LASTING))]
    assert [label for label in labels if label.startswith("rename")] == [
        f"{RENAME}: {fault}" for fault in faults
    ]
    assert len(labels) == len(set(labels))


@needs_a_compiler
def test_writes_can_be_short_too(tmp_path: Path) -> None:
    labels = [point.label for point in sweep_of(SOUND, tmp_path).points()]
    writes = [f"write {number} a.tmp" for number in (1, 2)]
    assert [label for label in labels if "short" in label] == [
        f"{write}: short {when}" for write in writes for when in ("once", LASTING)
    ]


BROKEN = {
    "writes in place": (
        broken('temporary = path + ".tmp"', "temporary = path"),
        {
            "write 1 a: kill",
            "write 2 a: kill",
            "write 1 a: ENOSPC once",
            "write 2 a: EIO from then on",
            "write 2 a: EINTR from then on",
        },
    ),
    "ignores a write error": (
        broken(WRITE, TRIED_WRITE + "        return"),
        {"write 1 a.tmp: ENOSPC once", "write 2 a.tmp: EIO from then on"},
    ),
    "gives success for a full disk": (
        broken('    sys.exit(f"{path}: {error.strerror}")', "    pass"),
        {
            "openat 1 a.tmp: ENOSPC once",
            "write 2 a.tmp: ENOSPC once",
            "fsync 1 a.tmp: ENOSPC once",
            "rename 1 a.tmp > a: ENOSPC once",
            "fsync 2 .: EIO once",
        },
    ),
    "syncs again after a failed sync": (
        broken(
            "    os.fsync(descriptor)",
            "    try: os.fsync(descriptor)\n    except OSError: os.fsync(descriptor)",
        ),
        {"fsync 1 a.tmp: EIO once", "fsync 1 a.tmp: ENOSPC from then on", "fsync 2 .: EIO once"},
    ),
    "does not say which file": (
        broken('f"{path}: {error.strerror}"', "error.strerror"),
        {"write 1 a.tmp: EIO once", "fsync 2 .: EIO once", "rename 1 a.tmp > a: EINTR once"},
    ),
    "stumbles over what a killed run left": (
        broken("os.O_TRUNC", "os.O_EXCL"),
        {"write 1 a.tmp: kill", "rename 1 a.tmp > a: kill", "write 1 a.tmp: ENOSPC once"},
    ),
    "waits for a full disk for ever": (
        broken(WRITE, TRIED_WRITE + "        pass"),
        {"write 1 a.tmp: ENOSPC from then on", "write 2 a.tmp: EIO from then on"},
    ),
    "does not look how much was written": (
        broken(WRITE, "    os.write(descriptor, data)"),
        {"write 1 a.tmp: short once", "write 2 a.tmp: short from then on"},
    ),
}


@needs_a_compiler
@pytest.mark.parametrize("wrong", BROKEN)
def test_a_broken_program_is_caught(tmp_path: Path, wrong: str) -> None:
    program, expected = BROKEN[wrong]
    sweep = sweep_of(program, tmp_path)
    points = [point for point in sweep.points() if point.label in expected]
    failures = sweep.failures(points)
    assert {failure.point.label for failure in failures} == expected
    assert not [failure for failure in failures if "the harness failed" in failure.what]


def test_what_is_wrong_without_any_fault_is_a_failure_too(tmp_path: Path) -> None:
    (failure,) = sweep_of("print()", tmp_path).failures([])
    assert failure.point == CLEAN
    assert failure.what.startswith("false success")


def test_a_kill_comes_before_its_call_and_after_the_one_before(tmp_path: Path) -> None:
    sweep = sweep_of(SOUND, tmp_path)
    points = {point.label: point for point in sweep.points()}
    states = []
    for label in KILLS:
        outcome = sweep.run(points[label])
        assert outcome.killed
        assert outcome.exit_code == -signal.SIGKILL
        temporary = outcome.folder / "a.tmp"
        size = temporary.stat().st_size if temporary.exists() else None
        states.append((size, (outcome.folder / "a").read_bytes() == NEW, outcome.stdout))
    assert states == [
        (None, False, ""),
        (0, False, ""),
        (3000, False, ""),
        (4000, False, ""),
        (4000, False, ""),
        (None, True, ""),
        (None, True, "done\n"),
    ]


@needs_a_compiler
def test_a_short_write_writes_half_for_real(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)\n"
        "print(*(os.write(descriptor, bytes(size)) for size in (100, 100, 1, 100)))\n"
        "print(os.pwrite(descriptor, bytes(100), 400), os.fstat(descriptor).st_size)"
    )
    sweep = sweep_of(program, tmp_path)
    labels = ["write 2 a: short once", "write 2 a: short from then on", "pwrite64 1 a: short once"]
    outputs = [sweep.run(point_of(sweep, label)).stdout for label in labels]
    written = [[list(map(int, line.split())) for line in text.splitlines()] for text in outputs]
    assert written == [
        [[100, 50, 1, 100], [100, 500]],
        [[100, 50, 1, 50], [100, 500]],
        [[100, 100, 1, 100], [50, 450]],
    ]


@needs_a_compiler
def test_a_lasting_fault_takes_away_neither_the_error_message_nor_a_late_import(
    tmp_path: Path,
) -> None:
    program = broken("    sys.exit(", "    import shlex, colorsys; sys.exit(")
    sweep = sweep_of(program, tmp_path)
    for call in ("openat", "write"):
        outcome = sweep.run(point_of(sweep, f"{call} 1 a.tmp: ENOSPC from then on"))
        assert outcome.stderr == f"{outcome.folder / 'a'}: {os.strerror(errno.ENOSPC)}\n"
        assert outcome.failed


@needs_a_compiler
def test_a_lasting_fault_comes_every_time(tmp_path: Path) -> None:
    program = broken(WRITE, TRIED_WRITE + "        os.write(descriptor, data)")
    sweep = sweep_of(program, tmp_path)
    once = sweep.run(point_of(sweep, "write 1 a.tmp: EIO once"))
    always = sweep.run(point_of(sweep, "write 1 a.tmp: EIO from then on"))
    assert [call.error for call in once.calls if call.name == "write"][:2] == ["EIO", None]
    assert [call.error for call in always.calls if call.name == "write"] == ["EIO", "EIO"]


@needs_a_compiler
def test_endless_interruptions_end_in_a_kill(tmp_path: Path) -> None:
    sweep = sweep_of(SOUND, tmp_path)
    outcome = sweep.run(point_of(sweep, "write 2 a.tmp: EINTR from then on"))
    assert (outcome.killed, outcome.hung, outcome.exit_code) == (True, True, -signal.SIGKILL)
    assert (outcome.folder / "a.tmp").stat().st_size == 3000
    assert {call.error for call in outcome.calls[2:] if call.finished} == {"EINTR"}
    assert len(outcome.calls) > 100


def test_a_program_that_makes_other_calls_each_time_is_a_harness_error(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    program = (
        "import os, sys\n"
        f"name = '.b' if os.path.exists({str(marker)!r}) else '.c'\n"
        f"os.close(os.open({str(marker)!r}, os.O_CREAT))\n"
        "os.mkdir(sys.argv[1] + name)"
    )
    sweep = sweep_of(program, tmp_path)
    point = point_of(sweep, "mkdir 1 a.c: EIO once")
    with pytest.raises(HarnessError, match=r"mkdir a\.b\.") as caught:
        sweep.run(point)
    assert str(caught.value).startswith(point.label)
    (*_, failure) = sweep.failures([point])
    assert f"failed: {point.label}" in failure.what
    missed = dataclasses.replace(point, call="rmdir")
    with pytest.raises(HarnessError, match="no such call"):
        sweep.run(missed)


def test_a_program_that_fails_by_itself_is_a_harness_error(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"code 1:\nno luck"):
        sweep_of("import sys; sys.exit('no luck')", tmp_path).points()


def test_a_program_that_dies_of_a_signal_of_its_own_is_a_harness_error(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="of signal 9"):
        sweep_of("import os; os.kill(os.getpid(), 9)", tmp_path).points()


def test_random_parts_of_names_do_not_matter(tmp_path: Path) -> None:
    program = (
        "import os, secrets, sys, tempfile\n"
        "folder = os.path.dirname(sys.argv[1])\n"
        "os.mkdir(f'{folder}/.x.{secrets.token_hex(6)}.tmp')\n"
        "os.mkdir(tempfile.mktemp(dir=folder))\n"
        "os.mkdir(f'{folder}/00000000000000000012.json')\n"
    )
    sweep = sweep_of(program, tmp_path)
    points = [point for point in sweep.points() if (point.call, point.fault) == ("mkdir", "EIO")]
    assert [point.path for point in points if not point.persistent] == [
        ".x.*.tmp", "*", "00000000000000000012.json",
    ]  # fmt: skip
    assert all(sweep.run(point).failed for point in points)


def test_of_two_threads_with_the_same_number_the_first_is_hit_and_the_other_left_out(
    tmp_path: Path,
) -> None:
    program = (
        "import os, sys, threading\n"
        "def make(name): os.mkdir(sys.argv[1] + name)\n"
        "def made(name):\n"
        "    thread = threading.Thread(target=make, args=(name,)); thread.start(); thread.join()\n"
        "made('.b'); made('.c')"
    )
    sweep = sweep_of(program, tmp_path)
    kill, *_ = sweep.points()
    assert (kill.call, kill.label.split()[1:]) == ("mkdir", ["1", "a.b:", "kill"])
    assert kill.others == {"a.c"}
    (left_out,) = sweep.left_out
    assert left_out.startswith("mkdir 2 a.c:")
    assert "per thread" in left_out
    assert sweep.run(kill).killed


def test_what_a_child_process_does_counts_too(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys\n"
        "sys.exit(subprocess.call(['/bin/sh', '-c', 'mkdir \"$0\".d', sys.argv[1]]))"
    )
    sweep = sweep_of(program, tmp_path)
    outcome = sweep.run(point_of(sweep, "mkdir 1 a.d: ENOSPC once"))
    assert outcome.failed
    assert os.strerror(errno.ENOSPC) in outcome.stderr


def test_a_sample_shows_every_call_and_every_fault_and_is_always_the_same(tmp_path: Path) -> None:
    points = sweep_of(SOUND, tmp_path).points()
    chosen = sample(points, 12)
    assert len(chosen) == 12
    assert chosen == sample(list(reversed(points)), 12)[::-1]
    assert {point.call for point in chosen} == {point.call for point in points}
    assert {(point.fault, point.persistent) for point in chosen} == {
        (point.fault, point.persistent) for point in points
    }
    assert sample(points, 1000) == points
    pairs = {(point.call, point.fault) for point in points}
    assert {(point.call, point.fault) for point in sample(points, len(pairs) + 6)} == pairs


def test_samples_of_many_seeds_have_every_point(tmp_path: Path) -> None:
    points = sweep_of(SOUND, tmp_path).points()
    samples = [sample(points, 3, seed=str(number)) for number in range(200)]
    assert {len(one) for one in samples} == {3}
    assert {point for one in samples for point in one} == set(points)
    assert samples == [sample(points, 3, seed=str(number)) for number in range(200)]


def test_all_points_a_sample_or_a_single_one_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []
    case = dataclasses.replace(
        case_of(SOUND), judge=lambda _, outcome: judged.append(outcome.point.label)
    )
    every = [point.label for point in sweep_of(SOUND, tmp_path).points()]

    monkeypatch.setenv("SHARDLINE_TORTURE", f"{RENAME}: kill")
    torture(case, tmp_path / "one")
    assert sorted(judged) == ["no fault", f"{RENAME}: kill"]

    judged.clear()
    monkeypatch.setenv("SHARDLINE_TORTURE", "all")
    torture(case, tmp_path / "all")
    assert sorted(judged) == sorted(["no fault", *every])

    judged.clear()
    monkeypatch.delenv("SHARDLINE_TORTURE")
    monkeypatch.setenv("SHARDLINE_SAMPLE_SEED", "a")
    torture(case, tmp_path / "some", sampled=5)
    points = sweep_of(SOUND, tmp_path / "again").points()
    chosen = [point.label for point in sample(points, 5, "a")]
    assert sorted(judged) == sorted(["no fault", *chosen])

    monkeypatch.setenv("SHARDLINE_TORTURE", "rename 2 nothing: kill")
    with pytest.raises(pytest.skip.Exception, match="has no point"):
        torture(case, tmp_path / "none")


@pytest.mark.parametrize("minutes", ["0", "100000"])
def test_time_budget_limits_the_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: str
) -> None:
    judged: list[str] = []
    case = dataclasses.replace(
        case_of(SOUND), judge=lambda _, outcome: judged.append(outcome.point.label)
    )
    every = [point.label for point in sweep_of(SOUND, tmp_path).points()]
    monkeypatch.setenv("SHARDLINE_TORTURE", "all")
    monkeypatch.setenv("SHARDLINE_TORTURE_START", str(time.time()))
    monkeypatch.setenv("SHARDLINE_TORTURE_MINUTES", minutes)
    torture(case, tmp_path / "budget")
    assert sorted(judged) == sorted(["no fault", *every] if int(minutes) else ["no fault"])


def test_failure_of_sample_names_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARDLINE_TORTURE", raising=False)
    monkeypatch.setenv("SHARDLINE_SAMPLE_SEED", "a")
    never = dataclasses.replace(case_of(SOUND), judge=lambda *_: pytest.fail("no"))
    with pytest.raises(pytest.fail.Exception) as caught:
        torture(never, tmp_path / "some", sampled=1)
    assert "SHARDLINE_SAMPLE_SEED=a" in str(caught.value)


@needs_a_compiler
def test_every_failure_is_told_with_how_to_run_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDLINE_TORTURE", "all")
    with pytest.raises(pytest.fail.Exception) as caught:
        torture(case_of(broken('temporary = path + ".tmp"', "temporary = path")), tmp_path / "all")
    told = str(caught.value)
    assert told.startswith("replace: 12 of ")
    lines = [line.strip() for line in told.splitlines()]
    first = "write 1 a: kill"
    assert lines[lines.index(first) + 1] == "torn"
    assert "    look: " in told
    alone = "SHARDLINE_TORTURE='write 2 a: EIO once' python -m pytest "
    assert f"    alone: {alone}" in told
    assert "test_sweep.py::test_every_failure_is_told_with_how_to_run_it_alone" in told


def test_without_a_compiler_only_what_needs_it_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "strace").symlink_to(str(shutil.which("strace")))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    shim.cache_clear()
    try:
        sweep = sweep_of(SOUND, tmp_path)
        points = sweep.points()
        write = "write 1 a.tmp"
        assert f"{write}: EIO once" in {point.label for point in points}
        assert not [point for point in points if point.fault == "short"]
        assert {point.call for point in points if point.persistent} == {"fsync", "rename"}
        assert sweep.left_out[0].startswith("openat 1 a.tmp:")
        assert "C compiler" in sweep.left_out[0]
        assert not sweep.failures(sample(points, 12))
    finally:
        shim.cache_clear()


def test_where_strace_is_missing_or_may_not_trace_there_is_a_reason_to_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    unavailable.cache_clear()
    try:
        reason = unavailable()
        assert reason is not None
        assert reason.endswith("not installed")
        unavailable.cache_clear()
        with pytest.raises(pytest.skip.Exception, match="not installed"):
            torture(case_of(SOUND), tmp_path / "work")
        unavailable.cache_clear()
        fake = tmp_path / "strace"
        fake.write_text("#!/bin/sh\necho 'strace: PTRACE_TRACEME: not permitted' >&2\nexit 1\n")
        fake.chmod(0o755)
        reason = unavailable()
        assert reason is not None
        assert reason.endswith("PTRACE_TRACEME: not permitted")
    finally:
        unavailable.cache_clear()
