"""The cause in the text of a TensorFlow error, without long lists of call sites."""

from __future__ import annotations

import re

_GRAPH = "Graph execution error:"


_TRACED = "in user code:"


_PLACE = re.compile(r'\s*(Detected at node |File "|<stack traces unavailable>|$)')


_END = re.compile(r"\s*(\[\[\{\{|Traceback \(most recent call last\))")


_NODES = re.compile(r"^\{\{function_node \S+\}\}\s*|\s*\[Op:[^\]]*\](\s*name:.*)?\s*$")


_VALUES = re.compile(r"\s*(\[\S* \(\S+\) = \]|, value: |(?<=convert string): ).*", re.DOTALL)
"""Where TensorFlow goes on to tell what records hold, which is nothing for messages."""


def cause_of(said: str) -> str:
    """The part that tells, without values of records; other texts stay as they are."""
    if said.startswith(_GRAPH):
        return _VALUES.sub("", _of_graph(said.splitlines()[1:]))
    if said.startswith(_TRACED):
        return _of_traced(said.splitlines())
    if _NODES.search(said):
        return _VALUES.sub("", _NODES.sub("", said))
    return said


def _of_graph(lines: list[str]) -> str:
    """What stands between the places in the graph and the names of its nodes."""
    first = next((at for at, line in enumerate(lines) if not _PLACE.match(line)), len(lines))
    behind = range(first, len(lines))
    last = next((at for at in behind if _END.match(lines[at])), len(lines))
    return "\n".join(lines[first:last])


def _of_traced(lines: list[str]) -> str:
    """What stands behind the last place in the function: that is told in two lines."""
    places = [at for at, line in enumerate(lines) if line.lstrip().startswith('File "')]
    return "\n".join(lines[places[-1] + 2 :] if places else lines[1:])
