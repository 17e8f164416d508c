"""With --json, stdout is for JSON alone: what functions of users print goes to stderr."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from typing import Any

import click

_STDOUT = "shardline.stdout"


def keep_stdout() -> None:
    """Send to stderr what is printed until the command ends, but for what `tell_json` tells.

    It is asked for before any code of the user's is run. Errors are told when the command has
    ended, so they find stdout as it was.
    """
    context = click.get_current_context(silent=True)
    if context is None or not context.params.get("as_json") or _STDOUT in context.meta:
        return
    context.meta[_STDOUT] = sys.stdout
    context.with_resource(redirect_stdout(sys.stderr))


def tell_json(told: Any) -> None:  # noqa: ANN401 - whatever JSON can tell
    """Print what a command tells with --json."""
    click.echo(json.dumps(told), file=click.get_current_context().meta.get(_STDOUT))
