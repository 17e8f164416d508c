"""A minute of fuzzing in every test run, and tests of the harness itself."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from shardline.errors import ShardlineError
from tests.fuzz import harness, worker
from tests.fuzz.harness import Case, Finding, Target, fuzz, saved_case
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.targets import TARGETS
from tests.sampling import sample_seed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS = 60.0


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_mutated_files_are_rejected_or_read_right(target: Target, tmp_path: Path) -> None:
    report = fuzz(target, sample_seed(), SECONDS / len(TARGETS), folder=tmp_path)
    assert not report.failures, "\n\n".join(map(str, report.failures))
    assert report.cases


@pytest.mark.parametrize("name", ["arrow", "parquet", "jsonl", "csv", "tfrecord", "join-text"])
def test_corpus_without_mutations_is_accepted(name: str, tmp_path: Path) -> None:
    for number, (file, data) in enumerate(TARGETS[name].seeds.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert TARGETS[name].check(Case(file, data), folder) == "accepted"


def reject(_case: Case, _folder: Path) -> str:
    raise ShardlineError("rejected", code="invalid-source")


def accept(_case: Case, _folder: Path) -> str:
    return "accepted"


def raise_raw(_case: Case, _folder: Path) -> str:
    raise KeyError("raw")


def find(_case: Case, _folder: Path) -> str:
    raise Finding("wrong")


@pytest.mark.parametrize(
    ("check", "kind"),
    [
        (accept, None),
        (reject, None),
        (raise_raw, "raw KeyError"),
        (find, "wrong result"),
    ],
)
def test_worker_reports_each_kind_of_failure(
    check: Callable[[Case, Path], str],
    kind: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[dict[str, object]] = []
    monkeypatch.setattr(worker, "announce", lambda **event: events.append(event))
    target = Target("broken", ("*.csv",), mutate_bytes, check)
    worker._run(target, 3, target.case("seed", 3), tmp_path)
    assert events[0] == {"case": 3}
    assert events[-1].get("kind") == kind


def test_silent_worker_without_cpu_time_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "CASE_SECONDS", 0.3)
    (tmp_path / "cases").mkdir()
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho '{\"case\": 0}'\nexec sleep 600\n")
    script.chmod(0o755)
    folders = {"folder": tmp_path / "cases", "failures": tmp_path / "failures"}
    report = fuzz(TARGETS["csv"], "seed", 0.1, python=str(script), **folders)
    assert [failure.kind for failure in report.failures] == ["hang"]


def test_crash_is_found_and_saved(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    script = tmp_path / "python"
    script.write_text(
        "#!/bin/sh\n"
        f"[ -e {tmp_path}/done ] && exit 0; touch {tmp_path}/done\n"
        'echo \'{"case": 0}\'; echo \'{"case": 0, "outcome": "accepted"}\'; echo \'{"case": 1}\'\n'
        f"kill -{int(signal.SIGSEGV)} $$\n"
    )
    script.chmod(0o755)
    target = TARGETS["csv"]
    failures = tmp_path / "failures"
    report = fuzz(
        target, "seed", 2.0, folder=tmp_path / "cases", failures=failures, python=str(script)
    )
    assert report.outcomes == {"accepted": 1, "failed": 1}
    (failure,) = report.failures
    assert (failure.kind, failure.number) == ("crash by SIGSEGV", 1)
    assert saved_case(failure.path) == ("csv", target.case("seed", 1))
    assert list(failures.iterdir()) == [failure.path]


def test_cases_depend_on_seed_and_number_alone() -> None:
    target = TARGETS["parquet"]
    again = Target(target.name, target.corpus, target.mutate, target.check)
    assert [target.case("a", n) for n in range(20)] == [again.case("a", n) for n in range(20)]
    assert target.case("a", 1) != target.case("b", 1)


def test_worker_that_prints_much_is_not_blocked(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    script = tmp_path / "python"
    script.write_text(
        "#!/bin/sh\n"
        f"[ -e {tmp_path}/done ] && exit 0; touch {tmp_path}/done\n"
        "head -c 1000000 /dev/zero >&2\n"
        'echo \'{"case": 0}\'; echo \'{"case": 0, "outcome": "accepted"}\'\n'
    )
    script.chmod(0o755)
    folders = {"folder": tmp_path / "cases", "failures": tmp_path / "failures"}
    report = fuzz(TARGETS["csv"], "seed", 1.0, python=str(script), **folders)
    assert report.outcomes == {"accepted": 1}
