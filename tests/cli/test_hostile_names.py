"""Names from outside: no control character and no bidi override reaches the terminal as it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.cli.command import shardline
from tests.kernel.frames import framed
from tests.tfrecord.samples import example_of, made

if TYPE_CHECKING:
    from pathlib import Path

NAME = "ev\x1b[31mil\u202etxt\x9b"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def test_commands_escape_control_characters_in_names(tmp_path: Path) -> None:
    good = made(tmp_path / f"{NAME}.tfrecord", framed(*[example_of(n=n) for n in range(5)]))
    other = made(tmp_path / f"{NAME}2.tfrecord", framed(example_of(m=1.5)))
    bad = made(tmp_path / f"{NAME}3.tfrecord", framed(*[example_of(n=n) for n in range(5)])[:-3])
    text = made(tmp_path / f"{NAME}4.tfrecord", framed(b"text"))
    table = made(tmp_path / f"{NAME}.csv", b"n,m\n1,2\n")
    rows = made(tmp_path / f"{NAME}.jsonl", b'{"n": 1}\n{"n": "x"}\n')
    out, root = tmp_path / f"{NAME}.out", ("--root", tmp_path / "root")
    for number, arguments in enumerate(
        (
            ("verify", good, bad),
            ("verify", tmp_path / f"{NAME}none"),
            ("salvage", bad, "-o", f"{out}1", "--quarantine", f"{out}2"),
            ("salvage", bad, "-o", f"{out}1"),
            ("schema", good, other),
            ("schema", bad),
            ("schema", table),
            ("head", bad),
            ("head", tmp_path),
            ("count", good, bad),
            ("index", good, bad),
            ("rebuild", good, good, "--output", out),
            ("rebuild", good, text, "--output", out),
            ("rebuild", good, other, "--output", out),
            ("rebuild", good, "--output", out),
            ("combine", good, other, "--output", f"{out}3"),
            ("migrate", good, "--output", f"{out}4", "--drop", NAME),
            ("extend", good, "--output", f"{out}5", "--join", table, "--key", "n"),
            ("append", "a/v1", rows, *root),
            ("append", "a/v1", rows, "--skip-invalid", *root),
            ("append", "a/v1", table, *root),
            ("append", "a/v1", table, table, *root),
            ("append", f"a{NAME}/v1", table, *root),
            ("status", *root),
            ("log", "a/v1", *root),
            ("log", f"a/v1@{NAME}", *root),
            ("lineage", "a/v1", *root),
            ("trace", "a/v1", "--record", "0", *root),
            ("export", "a/v1", "-o", f"{out}6", *root),
            (NAME,),
            ("head", good, f"--{NAME}"),
            ("head", good, "-n", NAME),
        )
    ):
        result = shardline(*arguments)
        assert OBEYED.search(result.out + result.err) is None, (number, arguments[0])
