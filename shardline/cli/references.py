"""Datasets on the command line: the root, `NAME/VERSION@SNAPSHOT` in it, and what these open."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from shardline.cli.errors import UsageError, print_warning, render_command
from shardline.cli.options import expand_patterns
from shardline.hints import Command, Hint
from shardline.text import escape_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.storage import Store


_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"
_REFERENCE = re.compile(rf"(?P<version>{_NAME}/{_NAME})(?:@(?P<snapshot>[^@/]+))?", re.ASCII)
_FORM = re.compile(r"[^/@]+/[^/@]+(@[^@/]+)?")
_SPELLING = (
    "names have 1 to 64 lower-case letters, digits, '-' and '_', with a letter or digit first"
)
SNAPSHOT_HELP = "SNAPSHOT is a number, a tag, 'latest', 'published' (the default) or a UTC time."
"""The rule for every command that reads a snapshot, for its help."""

_MAX_SNAPSHOT_LENGTH = 64
_EXAMPLES = (
    "write `digits/v1`, or with a snapshot `digits/v1@7`: a number, a tag, `published`, `latest` "
    "or a UTC time like `2026-11-16T04:00`"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A version, and which snapshot of it, as it was written: None if nothing was said."""

    version: str
    snapshot: str | None = None

    def __str__(self) -> str:
        return self.version if self.snapshot is None else f"{self.version}@{self.snapshot}"


def is_reference(text: str) -> bool:
    """Whether a text can be meant as NAME/VERSION or NAME/VERSION@SNAPSHOT."""
    return _REFERENCE.fullmatch(text) is not None


def validate_output_path(text: str) -> None:
    """Refuse the name of a version where --output says that a file is meant, and there is none."""
    if is_reference(text) and not Path(text).exists():
        raise UsageError(
            f"file not found: {text}",
            code="file-not-found",
            hint="for a version, pass `--into VERSION` instead of `--output`",
            path=text,
        )


def parse_reference(text: str) -> Reference:
    """Take NAME/VERSION@SNAPSHOT apart; a usage error says how to write it."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        versions = _list_versions(text)
        if versions:
            raise UsageError(
                f"{text} is a dataset, expected a version",
                code="missing-version",
                hint=f"choose from {versions}",
            )
        raise UsageError(
            f"invalid version {_format_location(text)}: expected NAME/VERSION or "
            "NAME/VERSION@SNAPSHOT",
            code="invalid-reference",
            hint=_SPELLING if _FORM.fullmatch(text) else _EXAMPLES,
        )
    if len(match["snapshot"] or "") > _MAX_SNAPSHOT_LENGTH:
        raise UsageError(
            f"invalid snapshot {_format_location(match['snapshot'])}",
            code="invalid-reference",
            hint=_EXAMPLES,
        )
    return Reference(match["version"], match["snapshot"])


def _list_versions(text: str) -> str:
    """The versions of a dataset in the root that the command was given; empty if it is none."""
    from shardline.errors import ShardlineError
    from shardline.provenance.catalog import find_versions

    root = click.get_current_context().params.get("root")
    if not root or re.fullmatch(_NAME, text, re.ASCII) is None:
        return ""
    with suppress(ShardlineError, OSError, click.UsageError):
        return ", ".join(f"{text}/{one}" for one in find_versions(open_root(root), text))
    return ""


def parse_version(text: str) -> Reference:
    """A reference that must not name a snapshot."""
    reference = parse_reference(text)
    if reference.snapshot is not None:
        raise UsageError(
            f"{reference}: expected a version without a snapshot",
            code="unexpected-snapshot",
            hint=f"leave out `@{reference.snapshot}`",
            version=reference.version,
        )
    return reference


def select_versions(store: Store, known: Iterable[str], name: str) -> list[str]:
    """Those of the known versions that NAME or NAME/VERSION means; a usage error if none is."""
    from shardline.storage import validate_name

    if "/" in name:
        wanted = parse_version(name).version
        found = [one for one in known if one == wanted]
    else:
        dataset = validate_name(name, "dataset")
        found = [one for one in known if one.startswith(f"{dataset}/")]
    if not found:
        raise_not_found(store, name)
    return found


def open_root(root: str | None, *, may_be_new: bool = False) -> Store:
    """The store in which the datasets live; a usage error if none was told or it is not there.

    With `may_be_new`, a folder that is not there will be made with the first file, and that is
    told, since its name may be a slip.
    """
    from shardline.storage import open_store, parse_location

    if not root:
        raise UsageError(
            "no root configured",
            code="missing-root",
            hint=Hint.of(
                "pass `--root FOLDER` (or s3://BUCKET/PREFIX, gs://..., az://...)",
                " or set `SHARDLINE_ROOT`",
            ),
        )
    if "://" not in root:
        root = os.path.abspath(root)  # noqa: PTH100 - as a shell means it: links are not looked at
    location = parse_location(root)
    if location.scheme == "file" and not Path(location.path).is_dir():
        if not may_be_new or Path(location.path).exists():
            raise UsageError(
                f"root is not a folder: {location.path}", code="root-not-found", path=location.path
            )
        print_warning(f"{location.path}: new root, created with the first dataset")
    _redirect_warnings()
    return open_store(root)


def open_version(store: Store, reference: Reference) -> StoredVersion:
    """A version that exists; a usage error names those that do."""
    from shardline.log.version import StoredVersion

    version = StoredVersion(store, reference.version)
    if not version.exists:
        raise_not_found(store, reference.version)
    return version


def open_target_version(
    version: StoredVersion, into: str, instead: str = "name another version"
) -> StoredVersion:
    """The version that `--into` names, of the same dataset unless it says more; it may be new."""
    from shardline.log.version import StoredVersion

    dataset = version.log.dataset
    name = parse_version(into if "/" in into else f"{dataset}/{into}").version
    if name == version.name:
        raise UsageError(
            f"--into {into} is the input version",
            code="output-is-input",
            hint=instead,
            version=name,
        )
    return StoredVersion(version.store, name)


def find_snapshot(
    version: StoredVersion, reference: Reference, default: str = "published"
) -> StoredSnapshot:
    """Return the snapshot that a reference names, the published one by default.

    `default` differs only for commands that write to the latest snapshot. Raises
    SnapshotNotFoundError.
    """
    from shardline.errors import SnapshotNotFoundError

    name = version.name
    if not version.state.snapshot:
        raise SnapshotNotFoundError(
            f"{name}: no snapshot yet (nothing was appended)", code="version-empty", version=name
        )
    which = reference.snapshot or default
    if which == "published" and version.state.published is None:
        raise SnapshotNotFoundError(
            f"{name}: no published snapshot",
            code="version-unpublished",
            hint=Hint.of(Hint.run("status", name), f" to see why, or write `{name}@latest`"),
            version=name,
        )
    return version.find(which)


def raise_not_found(store: Store, name: str) -> NoReturn:
    """Raise that a version, or a dataset, does not exist, and list those that do."""
    from shardline.errors import VersionNotFoundError
    from shardline.provenance.catalog import find_datasets, find_versions

    dataset = name.partition("/")[0]
    versions = find_versions(store, dataset)
    if versions:
        raise VersionNotFoundError(
            f"version not found: {name}",
            hint=Hint.of(f"choose from {', '.join(f'{dataset}/{one}' for one in versions)}"),
            version=name,
        )
    datasets = ", ".join(find_datasets(store))
    raise VersionNotFoundError(
        f"dataset not found: {dataset} (root: {store.uri})",
        code="dataset-not-found",
        hint=Hint.of(f"choose from {datasets}") if datasets else None,
        version=name,
    )


def render_next_command(*arguments: str) -> str:
    """Return a `shardline` command to run next, in the same root, ready to paste."""
    return render_command(Command(arguments))


def _redirect_warnings() -> None:
    """Let what the engine warns of appear as what we say ourselves."""
    import logging

    class Plain(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return f"warning: {escape_text(record.getMessage())}"

    handler = logging.StreamHandler()
    handler.setFormatter(Plain())
    logging.basicConfig(handlers=[handler])


def _format_location(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "…")


def split_files_and_versions(
    arguments: Iterable[str], root: str | None
) -> tuple[list[Path], list[Reference]]:
    """The files and the versions that the arguments name: what is there as a file is one."""
    patterns, references = [], []
    for argument in arguments:
        try:
            expand_patterns([argument])
        except UsageError as error:
            if not is_reference(argument):
                if root and error.problem.hint is None:
                    error.problem.set_hint(Hint.of("write a version as `NAME/VERSION`"))
                raise
            if not root:
                error.problem.set_hint(
                    Hint.of("for a version, pass `--root FOLDER` or set `SHARDLINE_ROOT`")
                )
                raise
            references.append(parse_reference(argument))
        else:
            patterns.append(argument)
    return expand_patterns(patterns), references
