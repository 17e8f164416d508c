"""The check of drift: how the rows that were added differ from those that were published last.

It never blocks: a change may be what someone wanted. Each measure is held against what it may be,
plus what chance alone makes of so few rows; 1 is just at that, and what is above is a finding.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg

from shardline.dagster.checks.check_outcome import Verdict
from shardline.dagster.expectations.profile import ColumnProfile, Numbers, profile
from shardline.dagster.expectations.sample import Sample

_BY_CHANCE = 3.0
_MOST = 100.0
_NAMED = 3
_SHOWN = 500


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How much a column may move.

    `mean` is in standard deviations of the old values, `reach` how far new values may lie outside
    of the old range as a part of its width, `presence` a difference of shares, `shares` the total
    variation distance of category shares, `unseen` the share of rows in categories that are new.
    """

    mean: float = 0.5
    reach: float = 0.5
    presence: float = 0.1
    shares: float = 0.2
    unseen: float = 0.02


DEFAULT_THRESHOLDS = Thresholds()


@dataclass(frozen=True, slots=True)
class Move:
    """How far one measure of a column moved, as a multiple of what it may, and in words."""

    score: float
    words: str


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    old: str
    new: str
    moves: tuple[Move, ...]

    @property
    def score(self) -> float:
        return max((move.score for move in self.moves), default=0.0)

    @property
    def found(self) -> str:
        return "; ".join(move.words for move in self.moves if move.score > 1)


def drift(
    new: Sample, last: Sample | None, *, thresholds: Thresholds = DEFAULT_THRESHOLDS
) -> Verdict:
    """Compare rows that were added with those of the last published snapshot, None if none is.

    Both are samples of their own, so that few added rows count as much as many. `rows_new` and
    `rows_last` are the true totals, and the description says what is a sample.
    """
    metadata = {"drift_max": 0.0, "columns_drifted": 0, "rows_new": new.of}
    if last is None or not last.rows:
        what = "nothing was published before: there is nothing to compare with"
        return Verdict(passed=True, description=what, metadata=metadata)
    metadata |= {"rows_last": last.of, "rows_compared": new.rows, "rows_last_compared": last.rows}
    if not new.rows:
        what = "no row was added: there is nothing to compare"
        return Verdict(passed=True, description=what, metadata=metadata)
    columns = _columns(profile(new), profile(last), thresholds)
    columns.sort(key=lambda column: -column.score)
    drifted = [column for column in columns if column.score > 1]
    compared = f"{new.said} that were added, against {last.said} that were published last"
    metadata["drift_max"] = round(max((column.score for column in columns), default=0.0), 3)
    metadata["columns_drifted"] = len(drifted)
    return Verdict(
        passed=not drifted,
        description=_described(drifted, columns, compared),
        metadata={**metadata, "compared": compared, "columns": _table(columns)},
        warns=bool(drifted),
    )


def _columns(
    new: dict[str, ColumnProfile], old: dict[str, ColumnProfile], thresholds: Thresholds
) -> list[_Column]:
    columns = []
    for name in dict.fromkeys((*old, *new)):
        if name not in new or name not in old:
            side = "added rows" if name in new else "published ones"
            told = (_told(old.get(name)), _told(new.get(name)))
            columns.append(_Column(name, *told, (Move(_MOST, f"only the {side} have it"),)))
            continue
        moves = tuple(_moves(old[name], new[name], thresholds))
        columns.append(_Column(name, _told(old[name]), _told(new[name]), moves))
    return columns


def _moves(old: ColumnProfile, new: ColumnProfile, thresholds: Thresholds) -> Iterator[Move]:
    less = new.presence - old.presence
    pooled = (old.present + new.present) / (old.rows + new.rows)
    chance = math.sqrt(pooled * (1 - pooled)) * _noise(old.rows, new.rows)
    words = f"{abs(less):.1%} {'fewer' if less < 0 else 'more'} rows have a value"
    yield _move(abs(less), thresholds.presence + chance, words)
    if not old.present or not new.present:
        return
    if old.is_category:
        yield from _category_moves(old, new, thresholds)
    if old.is_declared or (old.is_category and old.kind == "text"):
        return
    if old.numbers is not None and new.numbers is not None:
        what = "length" if old.kind == "text" else "mean"
        yield from _number_moves(old.numbers, new.numbers, thresholds, what)


def _number_moves(old: Numbers, new: Numbers, thresholds: Thresholds, what: str) -> Iterator[Move]:
    # Of values that never differed, any other is far away.
    spread = max(old.spread, 1e-9 * max(abs(old.mean), 1.0))
    sds = (new.mean - old.mean) / spread
    words = (
        f"the {what} moved by {_short(sds)} standard deviations"
        if old.spread > 0
        else f"the {what} was always {_short(old.mean)}, and is {_short(new.mean)} on average"
    )
    yield _move(abs(sds), thresholds.mean + _noise(old.count, new.count), words)
    width = old.high - old.low
    outside = max(old.low - new.low, new.high - old.high, 0.0)
    if width > 0:
        words = f"values lie outside of the old range by {_short(outside / width)} of its width"
        yield _move(outside / width, thresholds.reach, words)


def _category_moves(
    old: ColumnProfile, new: ColumnProfile, thresholds: Thresholds
) -> Iterator[Move]:
    before, after = old.shares, new.shares
    moved = sum(abs(after.get(v, 0.0) - before.get(v, 0.0)) for v in {**before, **after}) / 2
    noise = _noise(old.present, new.present)
    # The distance that samples of the same shares have on average, twice over.
    chance = sum(math.sqrt(2 / math.pi * p * (1 - p)) for p in before.values()) * noise / _BY_CHANCE
    words = f"the shares of categories moved by {moved:.0%} of the rows"
    yield _move(moved, thresholds.shares + chance, words)
    fresh, gone = len(after.keys() - before.keys()), len(before.keys() - after.keys())
    unseen = sum(share for value, share in after.items() if value not in before)
    noun = "category" if fresh == 1 else "categories"
    words = f"{fresh:,} new {noun} in {unseen:.1%} of the rows, {gone:,} vanished"
    yield _move(unseen, thresholds.unseen + _BY_CHANCE / new.present, words)


def _noise(old: int, new: int) -> float:
    """What chance makes of a mean of so many rows, in standard deviations, at the very most."""
    return _BY_CHANCE * math.sqrt(1 / max(old, 1) + 1 / max(new, 1))


def _move(found: float, allowed: float, words: str) -> Move:
    if found <= 0:
        return Move(0.0, words)
    return Move(_MOST if allowed <= 0 else min(found / allowed, _MOST), words)


def _told(column: ColumnProfile | None) -> str:
    """A column in short, without any of its values but the least and the most number."""
    if column is None:
        return "not there"
    there = f"{column.presence:.0%} present"
    if column.is_category:
        noun = "category" if len(column.counts) == 1 else "categories"
        return f"{len(column.counts)} {noun}, {there}"
    if column.numbers is None:
        return there
    told = column.numbers
    what = "length " if column.kind == "text" else ""
    return (
        f"{what}{_short(told.low)} to {_short(told.high)}, mean {_short(told.mean)} "
        f"± {_short(told.spread)}, {there}"
    )


def _short(number: float) -> str:
    return f"{number:.4g}"


def _described(drifted: list[_Column], columns: list[_Column], compared: str) -> str:
    if not drifted:
        return f"none of {len(columns)} columns drifted: {compared}"
    named = ". ".join(f"{column.name}: {column.found}" for column in drifted[:_NAMED])
    more = f". And {len(drifted) - _NAMED} more" if len(drifted) > _NAMED else ""
    return f"{len(drifted)} of {len(columns)} columns drifted ({compared}). {named}{more}"


def _table(columns: list[_Column]) -> dg.TableMetadataValue:
    return dg.MetadataValue.table(
        [
            dg.TableRecord(
                {
                    "column": column.name,
                    "published": column.old,
                    "added": column.new,
                    "what moved": column.found,
                    "drift": round(column.score, 3),
                }
            )
            for column in columns[:_SHOWN]
        ],
        dg.TableSchema(
            [
                dg.TableColumn("column"),
                dg.TableColumn("published"),
                dg.TableColumn("added"),
                dg.TableColumn("what moved"),
                dg.TableColumn("drift", "float", description="above 1 is a finding"),
            ]
        ),
    )
