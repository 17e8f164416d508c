"""What all commands share: help, exit codes, files from globs and folders, the progress bar."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardline import __version__
from tests.cli.command import ROOT, on_terminal, process, shardline
from tests.cli.datasets import landed
from tests.kernel.frames import framed
from tests.log.versions import NAME
from tests.tfrecord.samples import big_file, bulk_needs_the_compiled_kernel, example_of, made

COMMANDS = ["verify", "salvage", "schema", "head", "count", "index"]
WITH_OUTPUT = [
    *("rebuild", "export", "append", "repair"),
    *("extend", "migrate", "combine"),
]
OVER_FILES = ["verify", "schema", "count", "index"]


def test_help_lists_every_command_the_exit_codes_and_examples() -> None:
    result = shardline("--help")
    assert result.code == 0
    for word in (*COMMANDS, "Examples:", "Exit codes: 0 success; 1", "--json"):
        assert word in result.out
    assert shardline("-h").out == result.out


@pytest.mark.parametrize("command", [*COMMANDS, *WITH_OUTPUT])
def test_help_of_each_command_has_examples_and_its_options(command: str) -> None:
    result = shardline(command, "--help")
    assert result.code == 0
    assert "Examples:" in result.out
    assert f"shardline {command} " in result.out
    assert "--json" in result.out
    assert "--max-record" in result.out


def test_the_version_is_told() -> None:
    result = shardline("--version")
    assert (result.code, __version__ in result.out) == (0, True)


HEAVY = {"numpy", "pyarrow", "rich", "tensorflow", "dagster", "great_expectations", "isal"}


def modules_of(*arguments: str, cwd: Path = ROOT) -> set[str]:
    """Return the modules that a process of the command has imported at its end."""
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from shardline.cli.app import run\n"
        f"sys.argv = {['shardline', *arguments]!r}\n"
        "run()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=cwd
    )
    modules = set(result.stderr.split())
    assert "shardline.cli.app" in modules
    return modules


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        *([name, "--help"] for name in ("verify", "log", "append", "extend", "draft")),
    ],
)
def test_help_imports_no_heavy_module(arguments: list[str]) -> None:
    assert modules_of(*arguments).isdisjoint({*HEAVY, "logging", "asyncio"})


def test_verify_imports_only_the_kernel(tmp_path: Path) -> None:
    made(tmp_path / "a.tfrecord", framed(b"x"))
    modules = modules_of("verify", "a.tfrecord", cwd=tmp_path)
    assert modules.isdisjoint(
        HEAVY - {"isal", "numpy"} | {"obstore", "pandas", "shardline.log.version"}
    )


@pytest.mark.parametrize("command", [["status"], ["log", NAME]])
def test_log_commands_import_no_reader(tmp_path: Path, command: list[str]) -> None:
    landed(tmp_path, "one")
    modules = modules_of(*command, "--root", str(tmp_path))
    unused = {"obstore", "pandas", "shardline.udf", "shardline.readers", "shardline.sources"}
    assert modules.isdisjoint(HEAVY - {"numpy", "pyarrow"} | unused)


@pytest.mark.parametrize("command", ["verify", "schema", "count", "index", "head"])
def test_working_on_files_loads_neither_tensorflow_nor_dagster(
    tmp_path: Path, command: str
) -> None:
    path = made(tmp_path / "a.tfrecord", framed(example_of(x=1)))
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from shardline.cli.app import main\n"
        f"main([{command!r}, {str(path)!r}])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    )
    modules = set(result.stderr.split())
    assert "numpy" in modules
    assert modules.isdisjoint({"tensorflow", "dagster", "great_expectations"})


WRONG = {
    "an unknown command": (["frobnicate"], "unknown-command"),
    "an unknown option of all": (["--frobnicate"], "unknown-option"),
    "no file": (["verify"], "missing-argument"),
    "an unknown option": (["verify", "FILE", "--frobnicate"], "unknown-option"),
    "a flag with a value": (["verify", "FILE", "--all=7"], "invalid-option-value"),
    "a bad size": (["verify", "FILE", "--max-record", "many"], "invalid-option-value"),
    "a negative size": (["verify", "FILE", "--max-record", "-5"], "invalid-option-value"),
    "a size over what a record can have": (
        ["verify", "FILE", "--max-record", "3GB"],
        "invalid-option-value",
    ),
    "no workers": (["verify", "FILE", "-j", "0"], "invalid-option-value"),
    "a bad number": (["head", "FILE", "-n", "x"], "invalid-option-value"),
    "a negative number": (["head", "FILE", "-n", "-1"], "invalid-option-value"),
    "a negative skip": (["head", "FILE", "--skip", "-1"], "invalid-option-value"),
    "an unknown compression": (
        ["salvage", "FILE", "-o", "OUT", "--compression", "lz4"],
        "invalid-option-value",
    ),
    "salvage without OUT": (["salvage", "FILE"], "missing-option"),
    "two files for head": (["head", "FILE", "FILE"], "invalid-usage"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_usage_is_told_with_code_2(tmp_path: Path, what: str) -> None:
    made(tmp_path / "FILE", framed(b"x"))
    arguments, code = WRONG[what]
    result = shardline(*arguments, cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert [line.split(":")[0] for line in result.err.splitlines()] in (
        ["error", "hint"],
        ["error"],
    )
    told = shardline(*arguments, "--json", cwd=tmp_path)
    assert told.problem == (2, code)
    assert [file.name for file in tmp_path.iterdir()] == ["FILE"]


@pytest.mark.parametrize("command", [*OVER_FILES, "head", "salvage"])
def test_a_missing_file_is_named_with_code_2(tmp_path: Path, command: str) -> None:
    out = ["-o", "OUT"] * (command == "salvage")
    result = shardline(command, "missing.tfrecord", *out, "--json", cwd=tmp_path)
    assert result.problem == (2, "file-not-found")
    assert result.error["path"] == "missing.tfrecord"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", OVER_FILES)
def test_one_missing_file_among_others_is_told_before_any_work(
    tmp_path: Path, command: str
) -> None:
    made(tmp_path / "a", framed(example_of(x=1)))
    result = shardline(command, "a", "missing", cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert "missing" in result.err
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_glob_without_a_match_and_a_folder_without_records_are_told_with_code_2(
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").mkdir()
    made(tmp_path / "empty" / "notes.txt", b"text")
    for argument in ("*.tfrecord", "empty", "x-*"):
        result = shardline("verify", argument, "--json", cwd=tmp_path)
        assert result.problem == (2, "no-files-found")
        assert result.error["path"] == argument


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_told_with_code_2(tmp_path: Path) -> None:
    made(tmp_path / "a", framed(b"x")).chmod(0)
    result = shardline("verify", tmp_path / "a", "--json")
    assert result.problem == (2, "permission-denied")


def files_of(*arguments: str, cwd: Path) -> list[str]:
    result = shardline("verify", "--json", *arguments, cwd=cwd)
    assert result.code == 0, result.err
    return [file["file"] for file in result.json["files"]]


def test_files_globs_and_folders_may_be_mixed_and_each_file_counts_once(tmp_path: Path) -> None:
    for name in (
        "a.tfrecord", "b.tfrecord", "deep/er/c.tfrecord.gz", "deep/train-00000-of-00002",
        "deep/train-00001-of-00002", "deep/x.tfrec", "deep/y.tfr",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        made(tmp_path / name, framed(b"x"))
    for name in (
        "deep/readme.md", "deep/.hidden.tfrecord", "deep/x.tfrec.index", "deep/a.csv",
        "deep/x.tfrec.receipt", "deep/y.tfr.export", "deep/z-00000-of-00002.parquet",
    ):  # fmt: skip
        made(tmp_path / name, b"no records")
    in_folder = [
        "deep/er/c.tfrecord.gz", "deep/train-00000-of-00002", "deep/train-00001-of-00002",
        "deep/x.tfrec", "deep/y.tfr",
    ]  # fmt: skip
    assert files_of("a.tfrecord", "b.tfrecord", cwd=tmp_path) == ["a.tfrecord", "b.tfrecord"]
    assert files_of("b.tfrecord", "*.tfrecord", cwd=tmp_path) == ["b.tfrecord", "a.tfrecord"]
    assert files_of("deep", cwd=tmp_path) == in_folder
    assert files_of("deep/train-*", cwd=tmp_path) == in_folder[1:3]
    assert files_of("**/*.gz", cwd=tmp_path) == in_folder[:1]
    assert files_of("a.tfrecord", "deep", "deep/y.tfr", cwd=tmp_path) == ["a.tfrecord", *in_folder]


def test_a_file_whose_name_looks_like_a_glob_is_taken_as_it_is(tmp_path: Path) -> None:
    made(tmp_path / "a[1].tfrecord", framed(b"x"))
    assert files_of("a[1].tfrecord", cwd=tmp_path) == ["a[1].tfrecord"]


def test_an_error_is_json_too_if_json_was_asked_for(tmp_path: Path) -> None:
    made(tmp_path / "a", framed(b"\x08 no Example"))
    result = shardline("schema", "a", "--json", cwd=tmp_path)
    assert result.problem == (1, "invalid-example")
    error = result.error
    assert (error["path"], error["kind"]) == ("a", "example")
    assert (error["record"], error["offset"], error["hint"]) == (0, 0, None)
    assert "no Example" not in result.out + result.err


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_a_reader_that_goes_away_is_no_error_of_ours(tmp_path: Path, json_flag: list[str]) -> None:
    path = made(tmp_path / "a", framed(*[b"x" * 60] * 5000))
    command = [sys.executable, "-m", "shardline", "head", str(path), "-n", "5000", *json_flag]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"0" in process.stdout.readline()
        process.stdout.close()
        complaints = process.stderr.read()
    assert complaints == b""
    assert process.returncode not in {0, 2}


@pytest.mark.parametrize("command", OVER_FILES)
def test_a_terminal_gets_a_progress_bar(tmp_path: Path, command: str) -> None:
    path = made(tmp_path / "a.tfrecord", framed(*[example_of(x=1)] * 1000))
    title = {"verify": "verifying", "schema": "reading", "count": "counting", "index": "indexing"}
    code, drawn = on_terminal(command, path)
    assert code == 0
    assert title[command] in drawn
    assert "━" in drawn


def test_salvage_draws_a_progress_bar_too(tmp_path: Path) -> None:
    path = made(tmp_path / "a.tfrecord", framed(*[b"x" * 100] * 1000))
    code, drawn = on_terminal("salvage", path, "-o", tmp_path / "out")
    assert code == 0
    assert "salvaging" in drawn


@pytest.mark.parametrize("command", OVER_FILES)
def test_a_pipe_gets_none(tmp_path: Path, command: str) -> None:
    path = made(tmp_path / "a.tfrecord", framed(*[example_of(x=1)] * 1000))
    result = shardline(command, path)
    assert (result.code, result.err) == (0, "")
    assert "\x1b" not in result.out


@bulk_needs_the_compiled_kernel
def test_the_reference_kernel_says_that_it_will_be_slow(tmp_path: Path) -> None:
    path = big_file(tmp_path / "a.tfrecord", 9 * 2**20, bytes(2**20))
    with path.open("r+b") as file:
        file.write(b"\xff")
    result = process("verify", path, SHARDLINE_KERNEL="reference")
    assert result.err.startswith("warning: ")
    assert "shardline.kernel" in result.err
    assert "kernel" not in process("verify", path).err


def test_an_unknown_kernel_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "a.tfrecord", framed(b"x"))
    result = process("verify", path, "--json", SHARDLINE_KERNEL="fastest")
    assert result.problem == (2, "unknown-kernel")
    assert "'fastest'" in result.error["message"]


EMPTY_OUTCOMES = {"verify": 0, "schema": 0, "count": 0, "index": 0, "head": 0}


@pytest.mark.parametrize("command", EMPTY_OUTCOMES)
def test_an_empty_file_is_fine(tmp_path: Path, command: str) -> None:
    result = shardline(command, made(tmp_path / "a.tfrecord", b""))
    assert result.code == EMPTY_OUTCOMES[command], result.err
    assert "Traceback" not in result.err


OPAQUE = [b'{"user": 7}', b"\xff\xfe\x00own", b"\x08\x96\x01"]


def test_payloads_of_any_kind_are_first_class(tmp_path: Path) -> None:
    path = made(tmp_path / "a.tfrecord", framed(*OPAQUE))
    assert shardline("verify", path).code == 0
    assert shardline("count", path, "--json").json["records"] == 3
    assert shardline("index", path, "--json").json["files"][0]["records"] == 3
    lines = [json.loads(line) for line in shardline("head", path, "--json").out.splitlines()]
    assert [line["payload"] for line in lines] == ['{"user": 7}', "<6 bytes>", "<3 bytes>"]
    assert {line["form"] for line in lines} == {"payload"}
    result = shardline("salvage", path, "-o", tmp_path / "out", "--json")
    assert result.json["recovered"] == 3
    assert (tmp_path / "out").read_bytes() == framed(*OPAQUE)
    assert shardline("verify", path, "--examples").code == 1
    assert shardline("schema", path).code == 1


@pytest.mark.parametrize("command", ["head", "salvage"])
def test_a_command_for_one_file_refuses_several(tmp_path: Path, command: str) -> None:
    for name in ("a.tfrecord", "b.tfrecord"):
        made(tmp_path / name, framed(b"x"))
    out = [] if command == "head" else ["-o", "out"]
    for several in (".", "*.tfrecord"):
        result = shardline(command, several, *out, "--json", cwd=tmp_path)
        assert result.problem == (2, "too-many-files")
    assert not (tmp_path / "out").exists()


def test_usage_errors_are_json_too_when_asked_for() -> None:
    result = shardline("verify", "/no/such/file", "--json")
    assert result.problem == (2, "file-not-found")
    assert result.json["error"].keys() >= {"message", "hint", "record", "offset", "feature"}
    assert result.error["path"] == "/no/such/file"


AS_A_VALUE = {
    "where parsing succeeds": ["tag", "digits/v1", "--delete", "--json"],
    "where parsing fails": ["tag", "digits/v1", "--delete", "--json", "--frobnicate"],
    "where a value is bad": ["audit", "--since", "--json", "--sample", "x"],
    "behind two dashes": ["tag", "--frobnicate", "--", "--json"],
}


@pytest.mark.parametrize("what", AS_A_VALUE)
def test_json_as_the_value_of_an_option_does_not_ask_for_json(what: str) -> None:
    result = shardline(*AS_A_VALUE[what])
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")


def test_json_is_found_before_and_behind_what_is_wrong() -> None:
    for arguments in (
        ["tag", "--json", "--frobnicate"],
        ["tag", "--frobnicate", "--json"],
        ["tag", "a", "b", "c", "--json"],
        ["vacuum", "digits", "--json", "--retention", "soon"],
        ["vacuum", "digits", "--retention", "soon", "--json"],
        ["verify", "--max-record", "--json", "--json"],
    ):
        assert shardline(*arguments).error["code"]


def test_no_usage_line_is_printed_with_an_error() -> None:
    for arguments in (["--frobnicate"], ["verify"], ["frobnicate"], ["head", "a", "b"]):
        assert "Usage:" not in shardline(*arguments).err
    assert shardline("verify", "--help").out.startswith("Usage: shardline verify")


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_a_full_output_is_an_error_of_one_line(tmp_path: Path, json_flag: list[str]) -> None:
    path = made(tmp_path / "a", framed(b"x"))
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "shardline", "count", str(path), *json_flag],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")


def test_a_size_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    result = shardline("count", "a", "--max-record", "9" * 5000, "--json", cwd=tmp_path)
    assert result.problem == (2, "invalid-option-value")


def test_a_hint_repeats_no_credentials_of_the_root() -> None:
    root = "s3://key:hidden@bucket/data"
    result = shardline("diff", "digits/v1", "--root", root, "--json")
    assert result.code == 2
    assert "hidden" not in result.out + result.err
    assert result.hint == [["log", "digits/v1"]]


def test_an_empty_name_is_not_the_current_folder() -> None:
    result = shardline("verify", "", "--json")
    assert result.problem == (2, "invalid-argument")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_is_refused_by_name_and_not_waited_for(tmp_path: Path, command: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    out = ["-o", "out"] if command == "salvage" else []
    result = shardline(command, "pipe", *out, "--json", cwd=tmp_path)
    assert result.code == 2
    assert "pipe" in result.error["message"]


def test_a_record_over_the_limit_is_met_with_the_option_that_raises_it(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(b"x" * 100))
    for command in ("verify", "schema"):
        result = shardline(command, path, "--max-record", "99")
        assert result.code == 1
        assert "--max-record" in result.out + result.err
        assert "shardline salvage" not in result.out + result.err


def test_no_salvage_is_advised_for_records_that_are_no_examples(tmp_path: Path) -> None:
    made(tmp_path / "a", framed(b"{}"))
    for arguments in (["verify", "a", "--examples"], ["schema", "a"]):
        result = shardline(*arguments, cwd=tmp_path)
        assert result.code == 1
        assert "shardline salvage" not in result.out + result.err


def test_the_advice_can_be_pasted_whatever_the_file_is_called(tmp_path: Path) -> None:
    made(tmp_path / "a b", framed(b"x")[:-1])
    assert shardline("verify", "a b", cwd=tmp_path).commands == [["salvage", "a b", "-o", "OUT"]]


def test_a_file_name_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    made(tmp_path / "a\x1b[31m.tfrecord", framed(b"x")[:-1])
    for command in ("verify", "head"):
        result = shardline(command, "*", cwd=tmp_path)
        assert "\x1b[31m" not in result.out + result.err
        assert "\\x1b[31m" in result.out + result.err


def test_being_asked_to_end_leaves_nothing_half_written(tmp_path: Path) -> None:
    source = big_file(tmp_path / "a.tfrecord", 200 * 2**20, bytes(2**20))
    command = [
        sys.executable,
        "-m",
        "shardline",
        "salvage",
        str(source),
        "-o",
        str(tmp_path / "out"),
    ]
    with subprocess.Popen(command, cwd=ROOT) as process:
        while not list(tmp_path.glob(".out*")) and process.poll() is None:
            os.sched_yield()
        process.terminate()
    assert process.returncode in {0, 143}
    left = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    # It may have been done just before it was asked.
    done = process.returncode == 0 or "out" in left
    names = ("a.tfrecord", "out") if done else ("a.tfrecord",)
    assert left == dict.fromkeys(names, source.stat().st_size)
