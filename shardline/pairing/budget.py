"""How much a combination may write: pairs grow with the product of two sizes, and disks do not."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.arguments import validate_minimum
from shardline.errors import BudgetError
from shardline.hints import Hint, Option
from shardline.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

BUDGET_BYTES = 100 * 10**9


@dataclass(frozen=True, slots=True)
class Estimate:
    """How many pairs there will be and how many bytes, about, before they are packed.

    With `most`, there may be fewer of both: that is known only when the pairs have been looked at.
    """

    pairs: int = 0
    bytes: int = 0
    most: bool = False

    def __str__(self) -> str:
        most = "at most " if self.most else ""
        return f"{most}{counted(self.pairs, 'pair')}, about {counted(self.bytes, 'byte')}"


def together(found: Iterable[Estimate]) -> Estimate:
    """Several estimates as one."""
    listed = list(found)
    return Estimate(
        sum(one.pairs for one in listed),
        sum(one.bytes for one in listed),
        any(one.most for one in listed),
    )


def refuse_over_budget(
    what: str,
    found: Estimate,
    budget: int | None,
    folder: Path | None,
    *,
    of_files: bool = False,
) -> None:
    """Refuse to write more than the budget, or if there is none, than the disk or 100 GB hold.

    `folder` is where it would be written, None if that is no local disk. Pairs `of_files` cannot
    be left to those who read them.
    """
    validate_minimum("budget_bytes", budget, 1)
    limit, why = BUDGET_BYTES, "default budget"
    if budget is not None:
        limit, why = budget, "budget"
    elif folder is not None and (free := shutil.disk_usage(folder).free) < limit:
        limit, why = free, f"free space of {folder}"
    if found.bytes > limit:
        virtual = () if of_files else (", or set ", Option("mode", "virtual"))
        raise BudgetError(
            f"{what}: would write {found} ({why}: {limit:,} bytes)",
            found.pairs,
            found.bytes,
            hint=Hint.of(
                "raise ",
                Option("budget_bytes"),
                ", take fewer pairs with ",
                Option("limit"),
                ", ",
                Option("sample"),
                " or ",
                Option("on"),
                *virtual,
            ),
        )
