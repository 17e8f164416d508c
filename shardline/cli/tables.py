"""Tables and lines for people: no markup is obeyed, and nothing is coloured by guesswork."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def plain_console() -> Console:
    """A console that prints what it is given."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704 - the error that is being handled: rich would exit with 1

    return Plain(markup=False, highlight=False, emoji=False)


def plain_table(*headings: str, right: tuple[str, ...] = (), wide: str = "") -> Table:
    """A table with a line under its headings only.

    `right` are the columns of numbers, `wide` the one that takes the room that is left.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in headings:
        table.add_column(
            heading,
            justify="right" if heading in right else "left",
            overflow="fold",
            no_wrap=heading != wide,
            ratio=1 if heading == wide else None,
        )
    return table
