"""A small language that says which records are meant: `label == 3 and not name in ["a", "b"]`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shardline.errors import InvalidArgumentError
from shardline.hints import Hint
from shardline.operations.erasing.predicate import COMPARE, Compare, Missing, Not, OneOf, Several

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.operations.erasing.predicate import Node, Sign, Value

_MIRRORED: dict[str, Sign] = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | `(?P<quoted>[^`]+)`
  | (?P<name>[^\W\d][\w./-]*)
  | (?P<sign>==|!=|<=|>=|[<>()\[\],])
    )""",
    re.VERBOSE,
)
_DEEPEST = 50
_HOW = Hint.of(
    "write comparisons like label == 3, name in ['a', 'b'] or name is missing, joined by and, or, "
    "not and brackets, with text in quotes and names with other characters than letters, digits "
    "and ./-_ in backquotes"
)


def parse(text: str) -> Node:
    """Read a predicate. Raises ValueError with how it is written; its values are not told."""
    parser = _Parser(text)
    found = parser.any_of()
    if parser.here is not None:
        raise parser.wrong("unexpected text after its end")
    return found


class _Parser:
    """Takes a predicate apart, from the left."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._deep = 0
        self.here: re.Match[str] | None = None
        self._go_on()

    def wrong(self, what: str) -> InvalidArgumentError:
        at = (self._end if self.here is None else self.here.start()) + 1
        return InvalidArgumentError(
            f"invalid predicate at character {at}: {what}",
            code="invalid-predicate",
            hint=_HOW,
            offset=at,
        )

    def _go_on(self) -> None:
        self.here = None
        if not self._text[self._end :].strip():
            return
        found = _TOKEN.match(self._text, self._end)
        if found is None:
            raise self.wrong("expected a name, number, text or sign")
        self.here, self._end = found, found.end()

    def _take(self, *words: str) -> str | None:
        """The next token, if it is one of these words or signs."""
        if self.here is None:
            return None
        word = self.here["sign"] or (self.here["name"] or "").lower()
        if word not in words:
            return None
        self._go_on()
        return word

    def any_of(self) -> Node:
        return self._joined("or", self._all_of, every=False)

    def _all_of(self) -> Node:
        return self._joined("and", self._one, every=True)

    def _joined(self, word: str, part: Callable[[], Node], *, every: bool) -> Node:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Several(tuple(parts), every)

    def _one(self) -> Node:
        self._deep += 1
        if self._deep > _DEEPEST:
            raise self.wrong("nested too deeply")
        try:
            if self._take("not"):
                return Not(self._one())
            if self._take("("):
                found = self.any_of()
                if not self._take(")"):
                    raise self.wrong("a bracket is not closed")
                return found
            return self._comparison()
        finally:
            self._deep -= 1

    def _comparison(self) -> Node:
        if self.here is not None and (self.here["number"] or self.here["text"]):
            value, sign = self._value(), self._sign()
            return Compare(self._name(), _MIRRORED[sign], value)
        name = self._name()
        if self._take("is"):
            negated = self._take("not")
            if not self._take("missing"):
                raise self.wrong("expected 'missing' or 'not missing' after 'is'")
            return Not(Missing(name)) if negated else Missing(name)
        if negated := self._take("not"):
            if not self._take("in"):
                raise self.wrong("expected 'in' after 'not'")
            return Not(OneOf(name, self._values()))
        if self._take("in"):
            return OneOf(name, self._values())
        return Compare(name, self._sign(), self._value())

    def _name(self) -> str:
        found = self.here and (self.here["name"] or self.here["quoted"])
        if not found:
            raise self.wrong("expected the name of a feature")
        self._go_on()
        return found

    def _sign(self) -> Sign:
        found = self._take(*COMPARE)
        if found is None:
            raise self.wrong("expected == or another comparison")
        return found  # type: ignore[return-value] # it is one of them

    def _value(self) -> Value:
        here = self.here
        if here is None or not (here["number"] or here["text"]):
            raise self.wrong("expected a number or a text in quotes")
        self._go_on()
        if here["text"]:
            return re.sub(r"\\(.)", r"\1", here["text"][1:-1], flags=re.DOTALL)
        number = here["number"]
        return int(number) if re.fullmatch(r"[+-]?\d+", number) else float(number)

    def _values(self) -> tuple[Value, ...]:
        begin = self._take("[", "(")
        if begin is None:
            raise self.wrong("expected a list like [1, 2] after 'in'")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        if not self._take("]" if begin == "[" else ")"):
            raise self.wrong("the list is not closed")
        return tuple(values)
