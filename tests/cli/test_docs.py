"""What the docs tell to type can be typed: commands parse or run, and snippets of Python run."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import chdir
from typing import TYPE_CHECKING

import click
import pytest

import shardline
from shardline.api import Version
from shardline.cli.app import main
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from tests.cli.command import ROOT
from tests.cli.datasets import on
from tests.lineage.histories import PREFIXES
from tests.operations.extensions import double

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = ("how-to/audit.md", "how-to/export-metadata.md")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(?:\$ )?(shardline [a-z][^`\n]*)`")
_NOT_TO_RUN = ("--dagster-home", "--udf", "--url", "--register", "--release")
"""What needs more than a root, or changes it."""
_STANDS_FOR = {"RECORD": "0", "NAME/VERSION": "digits/v1", "FILE": "one.tfrecord"}


def fenced(page: Path) -> Iterator[tuple[str, str]]:
    """The fenced blocks of a page: in which language, and the text."""
    for match in _FENCE.finditer(page.read_text()):
        yield match[1], match[2]


def commands(page: Path, *, inline: bool) -> list[list[str]]:
    """The arguments of each `shardline` command that a page shows."""
    found = []
    for language, text in fenced(page):
        if language in ("", "sh", "bash"):
            found += [line.removeprefix("$ ") for line in text.replace("\\\n", " ").splitlines()]
    if inline:
        found += [match[1] for match in _INLINE.finditer(page.read_text())]
    whole = (line for line in found if line.startswith("shardline ") and "…" not in line)
    return [words for line in whole if (words := _arguments(line))]


def _arguments(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>&;")
    lexer.whitespace_split = True
    words = []
    for word in lexer:
        if word[0] in "|>&;":
            break
        words.append(word)
    optional = any(word.startswith("[") or "..." in word for word in words)
    return [] if optional else [_STANDS_FOR.get(word, word) for word in words[1:]]


def test_commands_are_found_as_they_are_typed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`shardline trace a/b [--downstream]`, `shardline log a/b -n 1`\n"
        "```\n$ shardline lineage a/b --dot | dot -Tsvg > x.svg\n"
        "shardline audit   # all\nout\n```\n"
    )
    assert commands(page, inline=True) == [
        ["lineage", "a/b", "--dot"],
        ["audit"],
        ["log", "a/b", "-n", "1"],
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_the_docs_has_the_options_and_arguments_it_is_shown_with(
    tmp_path: Path, page: Path
) -> None:
    (tmp_path / ".dagster_home").mkdir()
    (tmp_path / "ids.txt").write_text("7\n")
    # The settings, as click does it: a command keeps the help option of its first context.
    parent = click.Context(main, **main.context_settings)
    for name, *rest in commands(page, inline=True):
        if name.startswith("-"):
            continue
        command = main.get_command(parent, name)
        assert command is not None, name
        needs_more = len(rest) == 0 or name in rest
        with chdir(tmp_path):
            try:
                command.make_context(name, list(rest), parent)
            except click.MissingParameter:
                assert needs_more, (name, rest)
            except click.exceptions.Exit:
                assert "--help" in rest


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The history of which the pages tell, in a folder with nothing else."""
    folder = tmp_path_factory.mktemp("docs")
    root = folder / "root"
    version = Version(root, "digits/v1")
    for day, first in (("monday", 0), ("tuesday", 300)):
        rows = [{"id": number, "label": number % 10} for number in range(first, first + 500)]
        (folder / f"{day}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        append(version, folder / f"{day}.jsonl")
        assert check_version(version).ok
    rebuild(version)
    assert check_version(version).ok
    extended, pairs = Version(root, "digits/v2"), Version(root, "pairs/v1")
    extend(version, double, extended)
    assert check_version(extended).ok
    combine(version, version, pairs, unordered=True, limit=900, **PREFIXES)
    assert check_version(pairs).ok
    return root


@pytest.mark.parametrize("name", RUN)
def test_the_commands_of_a_page_run_on_a_history_as_it_tells_of(
    tmp_path: Path, root: Path, name: str
) -> None:
    listed = commands(ROOT / "docs" / name, inline=False)
    assert listed
    for words in listed:
        if set(words).isdisjoint(_NOT_TO_RUN):
            result = on(root, *words, cwd=tmp_path)
            assert result.code == 0, (words, result.err)


@pytest.mark.parametrize("name", RUN)
def test_the_snippets_of_a_page_run_one_after_the_other(
    tmp_path: Path, root: Path, name: str
) -> None:
    result = on(root, "describe", "digits/v1", "--format", "croissant", "-o", tmp_path / "meta")
    assert result.code == 0
    (tmp_path / "root").symlink_to(root)
    page = ROOT / "docs" / name
    snippets = [text for language, text in fenced(page) if language == "python"]
    assert snippets
    defined: dict[str, object] = {}
    with chdir(tmp_path):
        for text in snippets:
            exec(compile(text, f"{page.name}", "exec"), defined)  # noqa: S102 - our own pages
    assert name != "how-to/audit.md" or (tmp_path / "report.html").stat().st_size > 1000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


PYTHON_PAGE = ROOT / "docs" / "reference" / "python.md"


def test_python_page_runs(tmp_path: Path) -> None:
    defined: dict[str, object] = {"__name__": "page"}
    with chdir(tmp_path):
        for language, text in fenced(PYTHON_PAGE):
            assert language == "python"
            exec(compile(text, "python.md", "exec"), defined)  # noqa: S102 - our own page


@pytest.mark.parametrize("module", [shardline, shardline.files], ids=lambda module: module.__name__)
def test_python_page_uses_every_public_name(module: ModuleType) -> None:
    code = "".join(text for _, text in fenced(PYTHON_PAGE))
    names = {name for name in module.__all__ if not name.startswith("_")}
    assert {name for name in names if not re.search(rf"\b{name}\b", code)} == set()
