"""Tests assert codes, fields and data: text for people is pinned by the replay recordings."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent
PHRASE_WORDS = 4
LARGEST_SHARE = 0.04


def asserted(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what a module asserts: the tests of its asserts and the `match=` of `raises`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield node.test
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "raises":
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "match")


def quotes_phrase(expression: ast.expr) -> bool:
    """Return True if a text of four or more words is part of the expression."""
    return any(len(text.split()) >= PHRASE_WORDS for text in texts_in(expression))


def texts_in(expression: ast.expr) -> Iterator[str]:
    """Yield the text literals in an expression, each value of an f-string as one character."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
            )


def test_quotes_phrase_counts_words_of_literals_and_f_strings() -> None:
    sources = {
        "assert x == 'one two three'": False,
        "assert 'one two three four' in x": True,
        "assert x == f'{a} two {b} four'": True,
        "assert x == f'{a} two {b}'": False,
        "assert f(['a', 'one two\\nthree four'])": True,
        "pytest.raises(ValueError, match='one two three four')": True,
        "pytest.raises(ValueError, match='one')": False,
    }
    found = {
        source: [quotes_phrase(part) for part in asserted(ast.parse(source))] for source in sources
    }
    assert found == {source: [quotes] for source, quotes in sources.items()}


def test_few_asserts_quote_a_phrase() -> None:
    total, quoting = 0, Counter[str]()
    for path in sorted(TESTS.rglob("*.py")):
        for expression in asserted(ast.parse(path.read_text())):
            total += 1
            quoting[path.relative_to(TESTS).as_posix()] += quotes_phrase(expression)
    share = quoting.total() / total
    most = "\n".join(f"{count} {name}" for name, count in quoting.most_common(20))
    assert total > 5_000
    assert share <= LARGEST_SHARE, f"{quoting.total()} of {total} ({share:.1%}):\n{most}"
