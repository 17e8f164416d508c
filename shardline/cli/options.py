"""Arguments and options that several commands share."""

from __future__ import annotations

import glob
import json
import os
import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from shardline.cli.errors import AS_JSON, GIVEN_ROOT, UsageError
from shardline.cli.output import record_skipped_files
from shardline.errors import InvalidArgumentError
from shardline.file_names import RECORD_SUFFIXES, is_record_name, is_sidecar_name
from shardline.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shardline.tfrecord import Limits


CommandFunction = TypeVar("CommandFunction", bound="Callable[..., Any]")

_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)%|(0(?:\.\d{1,12})?)", re.ASCII)
_DURATION = re.compile(r"0|(\d{1,9})([wdhms])", re.ASCII)
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_MAX_DURATION = timedelta(days=36_500)


class Size(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """A number of bytes: `1000000`, `64KB`, `256MiB`. Units are powers of 1024."""

    name = "size"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """Read a size from the command line."""
        if isinstance(value, int):
            return value
        from shardline.arguments import parse_size

        try:
            size = parse_size(str(value))
        except InvalidArgumentError as error:
            self.fail(error.message, param, ctx)
        if size < self._least:
            self.fail(f"invalid size {value!r}: expected at least {self._least}", param, ctx)
        return size


class Share(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """A part of all: `1%`, `0.01`, `0`. A bare `1` could mean either end, and is refused."""

    name = "share"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Read a share from the command line."""
        if isinstance(value, float):
            return value
        match = _SHARE.fullmatch(str(value))
        share = 2.0 if match is None else float(match[1]) / 100 if match[1] else float(match[2])
        if share > 1:
            self.fail(f"invalid share {value!r}: expected 1% or 0.01, up to 100%", param, ctx)
        return share


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """A length of time: `7d`, `12h`, `30m`, `0`."""

    name = "duration"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> timedelta:
        """Read a length of time from the command line."""
        if isinstance(value, timedelta):
            return value
        match = _DURATION.fullmatch(str(value))
        if match is None:
            self.fail(f"invalid duration {value!r}: expected 7d, 12h, 30m or 0", param, ctx)
        span = timedelta(seconds=int(match[1]) * _SECONDS[match[2]] if match[2] else 0)
        if span > _MAX_DURATION:
            self.fail(
                f"invalid duration {value!r}: expected at most {_MAX_DURATION.days}d", param, ctx
            )
        return span


def format_duration(span: timedelta) -> str:
    """A length of time as it is written on the command line."""
    seconds = int(span.total_seconds())
    unit, size = next((u, size) for u, size in _SECONDS.items() if seconds % size == 0)
    return f"{seconds // size}{unit}" if seconds else "0"


def files_argument(command: CommandFunction) -> CommandFunction:
    """FILE... with globs and folders."""
    return click.argument("files", nargs=-1, required=True, metavar="FILE...")(command)


def _keep_root(
    context: click.Context, _parameter: click.Parameter, value: str | None
) -> str | None:
    if value and context.get_parameter_source("root") == ParameterSource.COMMANDLINE:
        context.meta[GIVEN_ROOT] = value
    return value


def root_option(command: CommandFunction) -> CommandFunction:
    """Where the datasets live."""
    return click.option(
        "--root",
        envvar="SHARDLINE_ROOT",
        show_envvar=True,
        metavar="FOLDER|URI",
        callback=_keep_root,
        help="Root of the datasets: a folder, s3://..., gs://... or az://...",
    )(command)


def _keep_json(context: click.Context, _parameter: click.Parameter, value: bool) -> bool:  # noqa: FBT001 - click's signature
    context.meta[AS_JSON] = value
    return value


def json_option(command: CommandFunction) -> CommandFunction:
    """--json."""
    return click.option(
        "as_json",
        "--json",
        is_flag=True,
        is_eager=True,
        callback=_keep_json,
        help="Print JSON.",
    )(command)


def limit_options(command: CommandFunction) -> CommandFunction:
    """How much a file may ask for."""
    for option in (
        click.option(
            "--max-decompressed",
            type=Size(),
            default="256GB",
            show_default=True,
            help="Refuse a compressed file that decompresses to more than this.",
        ),
        click.option(
            "--max-record",
            type=Size(),
            default="256MB",
            show_default=True,
            help="Refuse a record that is larger than this.",
        ),
    ):
        command = option(command)
    return command


def workers_option(command: CommandFunction) -> CommandFunction:
    """How many files at a time."""
    return click.option(
        "-j",
        "--workers",
        type=click.IntRange(min=1),
        help="Number of files to read in parallel.  [default: one per core]",
    )(command)


def output_option(command: CommandFunction) -> CommandFunction:
    """Add -o/--output for a command that always writes a file."""
    return click.option(
        "-o",
        "--output",
        required=True,
        type=click.Path(path_type=Path),
        metavar="OUT",
        help="Output file.",
    )(command)


def compression_option(
    default: str | None, otherwise: str = ""
) -> Callable[[CommandFunction], CommandFunction]:
    """--compression, of what is put behind each other: ZLIB cannot be."""
    return click.option(
        "--compression",
        type=click.Choice(["none", "gzip"]),
        default=default,
        show_default=default is not None,
        help=f"How to pack what is written.{otherwise}",
    )


def no_check_option(command: CommandFunction) -> CommandFunction:
    """--no-check."""
    return click.option(
        "--no-check",
        is_flag=True,
        help="Do not check the new snapshot. It stays unpublished until 'shardline check' passes.",
    )(command)


def write_options(command: CommandFunction) -> CommandFunction:
    """Add the options of `WriteOptions` except --compression."""
    for option in (
        json_option,
        root_option,
        limit_options,
        workers_option,
        no_check_option,
        click.option("--dry-run", is_flag=True, help="Show the plan without writing."),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a command that writes a new snapshot."""

    compression: str | None
    dry_run: bool
    no_check: bool
    workers: int | None
    max_record: int
    max_decompressed: int
    root: str | None
    as_json: bool

    @property
    def limits(self) -> Limits:
        """Limits of the files to read."""
        return limits(self.max_record, self.max_decompressed)


def limits(max_record: int, max_decompressed: int) -> Limits:
    """The limits that were asked for."""
    from shardline.kernel.types import LARGEST_MAX_RECORD_BYTES
    from shardline.tfrecord import Limits

    if max_record > LARGEST_MAX_RECORD_BYTES:
        raise UsageError(
            f"--max-record: expected at most {LARGEST_MAX_RECORD_BYTES} bytes",
            code="invalid-option-value",
        )
    return Limits(max_record_bytes=max_record, max_decompressed_bytes=max_decompressed)


def expand_pattern(pattern: str) -> Path:
    """The one file that an argument names; a usage error if it names several."""
    files = expand_patterns([pattern])
    if len(files) > 1:
        raise UsageError(
            f"{pattern}: expected a single file, got {len(files)}", code="too-many-files"
        )
    return files[0]


def expand_patterns(patterns: Iterable[str], *, repeats: bool = False) -> list[Path]:
    """The files that the arguments name, each once; a usage error for one that names none.

    With `repeats`, a file that is named twice is given twice.
    """
    named = [file for pattern in patterns for file in _match_pattern(pattern)]
    found = named if repeats else list(dict.fromkeys(named))
    unreadable = [str(file) for file in found if not os.access(file, os.R_OK)]
    if unreadable:
        raise UsageError(
            f"permission denied: {', '.join(unreadable)}",
            code="permission-denied",
            path=unreadable[0],
        )
    return found


def _match_pattern(pattern: str) -> list[Path]:
    path = Path(pattern)
    if not pattern:
        raise UsageError(
            "empty file name", code="invalid-argument", hint="check that the shell variable is set"
        )
    if path.is_dir():
        found = {file: has_record_suffix(file) for file in sorted(list_visible_files(path))}
        files = [file for file in found if found[file]]
        record_skipped_files(file for file in found if not found[file] and wanted(file))
        if not files:
            raise UsageError(
                f"{pattern}: no TFRecord files in the folder",
                code="no-files-found",
                hint=Hint.of(
                    f"expected names that end in {', '.join(RECORD_SUFFIXES)}; ",
                    f"name the files, or `{path}/*`",
                ),
                path=pattern,
            )
        return files
    if path.exists():
        return [path]
    if glob.has_magic(pattern):
        matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - as a shell reads it
        files = [file for match in matches if (file := Path(match)).is_file() and wanted(file)]
        if files:
            return files
        raise UsageError(f"no file matches {pattern}", code="no-files-found", path=pattern)
    raise UsageError(f"file not found: {pattern}", code="file-not-found", path=pattern)


def list_visible_files(folder: Path) -> Iterator[Path]:
    """Return every file below a folder; hidden files and folders are left out."""
    for file in folder.rglob("*"):
        inside = file.relative_to(folder).parts
        if not any(part.startswith(".") for part in inside) and file.is_file():
            yield file


def wanted(file: Path) -> bool:
    """Whether a file that matches a glob can be meant by it."""
    return not is_sidecar_name(file.name)


def has_record_suffix(file: Path) -> bool:
    """Whether a file is named like a TFRecord file."""
    return file.is_file() and is_record_name(file.name)


def parse_assignments(options: Iterable[str], option: str, wanted: str) -> dict[str, str]:
    """The texts that such options give to names, each once; `wanted` shows how they are written."""
    found: dict[str, str] = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"{option} {text}: expected {wanted}", code="invalid-option-value")
        if name in found:
            raise UsageError(
                f"{option}: duplicate feature {name!r}", code="duplicate-feature", feature=name
            )
        found[name] = value
    return found


def parse_value_assignments(options: Iterable[str], option: str) -> dict[str, Any]:
    """The values that such options give to features, each once."""
    texts = parse_assignments(options, option, "NAME=VALUE, and 'NAME=\"\"' for an empty text")
    for name, text in texts.items():
        if text.strip() == "null":
            raise UsageError(
                f"{option} {name}: a feature cannot contain null",
                code="invalid-option-value",
                hint=f"for the text, write `{option} '{name}=\"null\"'`",
                feature=name,
            )
    return {name: parse_value(text) for name, text in texts.items()}


def parse_value(text: str) -> Any:  # noqa: ANN401 - whatever JSON can tell
    """A number, truth, list or quoted text as JSON writes it; anything else is the text itself."""
    try:
        value = json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return text
    return text if value is None or isinstance(value, dict) else value


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
