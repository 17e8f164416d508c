"""What `shardline combine` is asked for, besides which pairs: where from, where to, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.cli.errors import UsageError
from shardline.cli.options import limits
from shardline.cli.references import refuse_version_as_file

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.operations.combine import CombineMode
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
                refuse_version_as_file(side)
