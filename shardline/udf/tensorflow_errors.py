"""Causes in the error texts of TensorFlow."""

from __future__ import annotations

import re

_GRAPH = "Graph execution error:"
_TRACED = "in user code:"
_PLACE = re.compile(r'\s*(Detected at node |File "|<stack traces unavailable>|$)')
_END = re.compile(r"\s*(\[\[\{\{|Traceback \(most recent call last\))")
_NODES = re.compile(r"^\{\{function_node \S+\}\}\s*|\s*\[Op:[^\]]*\](\s*name:.*)?\s*$")
_VALUES = re.compile(r"\s*(\[\S* \(\S+\) = \]|, value: |(?<=convert string): ).*", re.DOTALL)
"""Where TensorFlow appends record values, which must not appear in messages."""


def extract_tensorflow_cause(message: str) -> str:
    """Return the cause in a TensorFlow message, without record values.

    Other texts are unchanged.
    """
    if message.startswith(_GRAPH):
        return _VALUES.sub("", _extract_graph_cause(message.splitlines()[1:]))
    if message.startswith(_TRACED):
        return _extract_traced_cause(message.splitlines())
    if _NODES.search(message):
        return _VALUES.sub("", _NODES.sub("", message))
    return message


def _extract_graph_cause(lines: list[str]) -> str:
    """Return the lines between the graph locations and the node names."""
    first = next((index for index, line in enumerate(lines) if not _PLACE.match(line)), len(lines))
    rest = range(first, len(lines))
    last = next((index for index in rest if _END.match(lines[index])), len(lines))
    return "\n".join(lines[first:last])


def _extract_traced_cause(lines: list[str]) -> str:
    """Return the lines after the last source location, which takes two lines."""
    frames = [index for index, line in enumerate(lines) if line.lstrip().startswith('File "')]
    return "\n".join(lines[frames[-1] + 2 :] if frames else lines[1:])
