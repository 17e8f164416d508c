"""What `shardline combine` is asked for, besides which pairs: where from, where to, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError
from shardline.cli.options import limits
from shardline.cli.references import validate_output_path
from shardline.cli.udf_options import load_udf, load_udfs

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.cli.options import CommandFunction
    from shardline.operations.combine import CombineMode
    from shardline.pairing.combine_spec import JoinType, SpecOptions
    from shardline.pairing.pair_features import OnCollision
    from shardline.tfrecord import Limits


@dataclass(frozen=True, slots=True)
class CombineOptions:
    """What was asked for."""

    left: str
    right: str
    into: str | None
    output: Path | None
    overwrite: bool
    mode: CombineMode
    budget_bytes: int | None
    target_size: int | None
    compression: str | None
    dry_run: bool
    no_check: bool
    workers: int | None
    max_record: int
    max_unpacked: int
    root: str | None
    as_json: bool

    @property
    def limits(self) -> Limits:
        """The limits that were asked for."""
        return limits(self.max_record, self.max_unpacked)

    @property
    def virtual(self) -> bool:
        """Whether only the plan of the pairs is to be written."""
        return self.mode == "virtual"

    def refuse_mixed(self) -> None:
        """Refuse what is for files where versions are meant, and the other way round."""
        if self.into is None and self.output is None:
            raise UsageError(
                "no output given",
                code="missing-option",
                hint="pass `--into NAME/VERSION` for versions, `--output OUT` for files",
            )
        if self.into is not None and self.output is not None:
            raise UsageError(
                "--into and --output exclude each other",
                code="conflicting-options",
                hint="pass `--into` for versions, `--output` for files",
            )
        if self.into is not None and self.overwrite:
            raise UsageError(
                "--overwrite applies to files only",
                code="option-not-applicable",
                hint="leave it out: a version is never overwritten",
            )
        for option, given in (
            ("--target-size", self.target_size),
            ("--no-check", self.no_check),
            ("--mode virtual", self.virtual),
        ):
            if self.output is not None and given:
                raise UsageError(
                    f"{option} applies to versions only",
                    code="option-not-applicable",
                    hint="leave it out, or pass `--into` instead of `--output`",
                )
        if self.output is not None:
            for side in (self.left, self.right):
                validate_output_path(side)


def pair_options(command: CommandFunction) -> CommandFunction:
    """All options that say which pairs, and what is in them."""
    for option in (
        click.option(
            "--once",
            is_flag=True,
            help="With the same on both sides: each two different records once, in one order, and "
            "none with itself.",
        ),
        click.option("--seed", type=int, help="Which sample: the same seed takes the same pairs."),
        click.option(
            "--sample",
            type=click.IntRange(min=1),
            metavar="N",
            help="Only so many pairs, drawn of all; not incremental. Not with --on, --where or "
            "--limit.",
        ),
        click.option(
            "--limit",
            type=click.IntRange(min=1),
            metavar="N",
            help="Only the first pairs, so many; not incremental.",
        ),
        click.option(
            "--fields",
            multiple=True,
            metavar="MODULE:OBJECT",
            help="What makes new fields of a pair, as in 'shardline extend'; may be repeated.",
        ),
        click.option(
            "--where",
            metavar="MODULE:OBJECT",
            help="What chooses pairs: it makes one int64, which is 1 where the pair is wanted and "
            "0 where it is not.",
        ),
        click.option(
            "--how",
            type=click.Choice(["inner", "left"]),
            help="With --on: only records with a match, or also those of LEFT without one, alone."
            "  [default: inner]",
        ),
        click.option(
            "--on",
            multiple=True,
            metavar="KEY[=RIGHT_KEY]",
            help="Only pairs in which this feature is the same on both sides; may be repeated.",
        ),
        click.option(
            "--right-prefix", default="", metavar="TEXT", help="What to put before RIGHT's names."
        ),
        click.option(
            "--left-prefix", default="", metavar="TEXT", help="What to put before LEFT's names."
        ),
        click.option(
            "--on-collision",
            type=click.Choice(["refuse", "prefix", "keep-left", "keep-right"]),
            default="refuse",
            show_default=True,
            help="What to do about features that both sides have.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class PairOptions:
    """What was asked for."""

    on_collision: OnCollision
    left_prefix: str
    right_prefix: str
    on: tuple[str, ...]
    how: JoinType | None
    where: str | None
    fields: tuple[str, ...]
    limit: int | None
    sample: int | None
    seed: int | None
    once: bool

    def load(self) -> SpecOptions:
        """The same for the engine, with what makes fields; a usage error for what is mixed up."""
        prefixed = self.left_prefix or self.right_prefix
        if prefixed and self.on_collision != "prefix":
            raise UsageError(
                "--left-prefix and --right-prefix require --on-collision prefix",
                code="missing-option",
                hint="add `--on-collision prefix`",
            )
        if self.on_collision == "prefix" and not prefixed:
            raise UsageError(
                "--on-collision prefix requires --left-prefix or --right-prefix",
                code="missing-option",
                hint="add `--left-prefix a_`, `--right-prefix b_` or both",
            )
        if self.seed is not None and self.sample is None:
            raise UsageError(
                "--seed requires --sample", code="missing-option", hint="add `--sample N`"
            )
        if self.how is not None and not self.on:
            raise UsageError(
                f"--how {self.how} requires --on", code="missing-option", hint="add `--on KEY`"
            )
        return {
            "on_collision": self.on_collision,
            "left_prefix": self.left_prefix,
            "right_prefix": self.right_prefix,
            "on": self._keys(),
            "how": self.how or "inner",
            "where": None if self.where is None else load_udf(self.where, "--where"),
            "fields": load_udfs(self.fields),
            "limit": self.limit,
            "sample": self.sample,
            "seed": self.seed or 0,
            "once": self.once,
        }

    def _keys(self) -> dict[str, str]:
        keys: dict[str, str] = {}
        for text in self.on:
            left, equals, right = text.partition("=")
            if not left or (equals and not right):
                raise UsageError(
                    f"invalid --on {text!r}: expected KEY or LEFT_KEY=RIGHT_KEY",
                    code="invalid-option-value",
                )
            if left in keys:
                raise UsageError(
                    f"--on: duplicate feature {left!r}", code="duplicate-feature", feature=left
                )
            keys[left] = right or left
        return keys
