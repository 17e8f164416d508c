"""Where new fields come from: --fields, and --join with what belongs to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.assignments import assigned_values
from shardline.cli.errors import UsageError
from shardline.cli.maker_arguments import load_makers
from shardline.hints import Hint

if TYPE_CHECKING:
    from shardline.cli.options import Command
    from shardline.udf import Fields

_OF_A_JOIN = {
    "key": "--key",
    "table_key": "--table-key",
    "columns": "--columns",
    "missing": "--missing",
    "defaults": "--default",
    "doubled": "--doubled",
}


def fields_option(command: Command) -> Command:
    """--fields."""
    return click.option(
        "--fields",
        multiple=True,
        metavar="MODULE:OBJECT",
        help="What makes new fields: a declared function, or a list of such, in a module or in "
        "path/to/file.py; may be repeated.",
    )(command)


def join_options(command: Command) -> Command:
    """--join and what belongs to it."""
    for option in (
        click.option(
            "--doubled",
            type=click.Choice(["fail", "first", "last"]),
            help="Which row counts if TABLE has a key twice.  [default: fail]",
        ),
        click.option(
            "defaults",
            "--default",
            multiple=True,
            metavar="NAME=VALUE",
            help="The value of a field in records whose key is not in TABLE; one for each field.",
        ),
        click.option(
            "--missing",
            type=click.Choice(["fail", "absent"]),
            help="What becomes of records whose key is not in TABLE, without --default: they stop "
            "it, or have no such field.  [default: fail]",
        ),
        click.option(
            "--columns", metavar="A,B", help="The columns to take.  [default: all but the key]"
        ),
        click.option(
            "--table-key", metavar="COLUMN", help="What the key is called in TABLE, if otherwise."
        ),
        click.option(
            "--key", metavar="FEATURE", help="The feature that tells which row of TABLE it is."
        ),
        click.option(
            "tables",
            "--join",
            multiple=True,
            metavar="TABLE",
            help="Take new fields from a CSV, JSON lines, Parquet or Arrow file, a path or a URI.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class FieldOptions:
    """What was asked for."""

    fields: tuple[str, ...]
    tables: tuple[str, ...]
    key: str | None
    table_key: str | None
    columns: str | None
    missing: str | None
    defaults: tuple[str, ...]
    doubled: str | None

    def load(self) -> list[Fields]:
        """The makers of fields, those of functions first; a usage error if there are none."""
        if not self.fields and not self.tables:
            raise UsageError(
                "no features to add",
                code="missing-option",
                hint="pass `--fields MODULE:OBJECT`, or `--join TABLE --key FEATURE`",
            )
        joins = [self._join()] if self.tables else []
        if not self.tables:
            for name, option in _OF_A_JOIN.items():
                if getattr(self, name):
                    raise UsageError(
                        f"{option} requires --join",
                        code="missing-option",
                        hint="add `--join TABLE`",
                    )
        return [*load_makers(self.fields), *joins]

    def _join(self) -> Fields:
        from shardline.udf import joined_fields

        if len(self.tables) > 1:
            raise UsageError(
                f"--join: expected a single table, got {len(self.tables)}",
                code="invalid-option-value",
                hint=Hint.of(
                    "declare others as `joined_fields('table.csv', key='id')` in a Python file, ",
                    "and pass them with `--fields`",
                ),
            )
        (table,) = self.tables
        if self.key is None:
            raise UsageError(
                f"--join {table}: missing key", code="missing-option", hint="add `--key FEATURE`"
            )
        if "://" not in table and not Path(table).is_file():
            raise UsageError(f"--join {table}: file not found", code="file-not-found", path=table)
        if self.defaults and self.missing:
            raise UsageError(
                f"--default and --missing {self.missing} exclude each other",
                code="conflicting-options",
                hint=f"`--default` is for records whose key is not in {table}",
            )
        chosen: dict[str, Any] = {"missing": "default"} if self.defaults else {}
        chosen |= {"missing": self.missing} if self.missing else {}
        chosen |= {"doubled": self.doubled} if self.doubled else {}
        return joined_fields(
            table,
            self.key,
            features=None if self.columns is None else self._named_columns(self.columns),
            table_key=self.table_key,
            defaults=assigned_values(self.defaults, "--default"),
            **chosen,
        )

    def _named_columns(self, columns: str) -> list[str]:
        names = [name.strip() for name in columns.split(",")]
        if not all(names) or len(set(names)) < len(names):
            raise UsageError(
                f"invalid --columns {columns!r}: expected distinct names",
                code="invalid-option-value",
                hint="write them like `--columns a,b`",
            )
        return names
