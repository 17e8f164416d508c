"""What is said, and raised, where records cannot become what they should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import BadRecordsError
from shardline.hints import Hint, Option
from shardline.text import counted_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.operations.transforming import Changed
    from shardline.udf.results import BatchMisfit

_TOLD = 10
MEND = Hint.of(
    "fix the function that computes the features, for a key missing from a table set ",
    Option("defaults"),
    " or ",
    Option("missing", "absent"),
)
"""What to do where a record cannot become what it should."""
MEND_CAST = Hint.of("leave the cast out, or compute a new feature with extend")
"""The same of a migration, where nothing but a cast depends on values."""
QUARANTINE = Hint.of("quarantine such records by raising ", Option("quarantine_share"))
"""What else to do where some may be missing."""


def refuse_records(what: str, path: str, changed: Changed, advice: Hint) -> None:
    """Refuse to go on where a record cannot become what it should; `advice` is what to do."""
    if not changed.refused:
        return
    told = tuple(f"{path}, {one}" for one in changed.refused[:_TOLD])
    bad, rows = len(changed.refused), changed.end
    found = f"{counted_of(bad, rows, 'record', complete=False)} refused"
    error = _bad_records(f"{what}: {found}", told, bad, rows, advice, complete=False)
    error.path = path
    error.record, error.feature = changed.refused[0].row, changed.refused[0].feature
    raise error from changed.error


def misfit_batch(path: str, record: int, error: BatchMisfit) -> BadRecordsError:
    """The error to raise where a function gave for records of a file what cannot be theirs.

    `record` is the number of the first record of the batch.
    """
    told = f"{path}, {error.moved(record)}"
    return BadRecordsError(
        told,
        (told,),
        error.last - error.first + 1,
        record + error.last + 1,
        complete=False,
        code=error.code,
        hint=error.hint,
        path=path,
        record=record + error.first,
        feature=error.feature,
    )


def refuse_share(
    what: str, told: Sequence[str], bad: int, rows: int, *, share: float, advice: Hint
) -> None:
    """Refuse what was made if more than a share of the records is missing in it."""
    if bad > share * rows:
        found = f"{counted_of(bad, rows, 'record')} refused (limit: {share:.2%})"
        raise _bad_records(f"{what}: {found}", tuple(told[:_TOLD]), bad, rows, advice)


def _bad_records(
    found: str, told: tuple[str, ...], bad: int, rows: int, advice: Hint, *, complete: bool = True
) -> BadRecordsError:
    more = f"\n  ... and {bad - len(told):,} more" if bad > len(told) else ""
    lines = "\n  ".join(told)
    message = f"{found}: nothing was written\n  {lines}{more}"
    return BadRecordsError(message, told, bad, rows, complete=complete, hint=advice)
