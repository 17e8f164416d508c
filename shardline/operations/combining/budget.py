"""How much a combination may write: pairs grow with the product of two sizes, and disks do not."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.errors import BudgetError
from shardline.wording import counted

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
    if budget is not None and budget < 1:
        raise ValueError(f"a budget of {budget} bytes: it must be 1 or more")
    limit, why = BUDGET_BYTES, "unless more is allowed"
    if budget is not None:
        limit, why = budget, "as told"
    elif folder is not None and (free := shutil.disk_usage(folder).free) < limit:
        limit, why = free, f"which is what {folder} has free"
    if found.bytes > limit:
        last = "only those that match (on=)"
        last = f"or {last}" if of_files else f"{last}, or commit the plan alone (mode='virtual')"
        raise BudgetError(
            f"{what} would write {found}, over the budget of {limit:,} bytes, {why}: nothing was "
            "written. Allow more (budget_bytes=, --budget), take some of the pairs (limit=, "
            f"sample=), {last}",
            found.pairs,
            found.bytes,
        )
