"""A version as it is declared: its asset, its checks and its automation, together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import dagster as dg

from shardline.arguments import parse_size, validate_minimum
from shardline.dagster.checks.gate import Gate
from shardline.dagster.expectations.suite import SUITES, SuiteError, read_suite
from shardline.dagster.versions.dry_run import DryRun
from shardline.errors import ShardlineError
from shardline.hints import Hint
from shardline.schema.schema import Schema

Schemas: TypeAlias = Mapping[str, Schema | None]
"""The declared schemas of versions by name, None if it cannot be known before a run."""


class DeclarationError(ShardlineError):
    """An invalid declaration of a version."""

    code = "invalid-declaration"

    @classmethod
    def of(cls, version: str, error: ValueError) -> "DeclarationError":
        """Build the error for a problem in the declaration of a version."""
        if not isinstance(error, ShardlineError):
            return cls(f"{version}: {error}", version=version)
        return cls(
            f"{version}: {error.message}",
            code=error.code,
            hint=error.hint,
            path=error.path,
            feature=error.feature,
            version=version,
        )


@dataclass(frozen=True, slots=True)
class DeclaredVersion:
    """What a factory gives: first the asset of the version, then what comes with it.

    `inputs` are the versions that it is made of. `dry_run` plans its next materialization.
    `derive_schema` returns its schema, given those of its inputs, None if the schema cannot be
    known before a run. It raises ValueError if a schema contradicts the declaration. `suite` is
    the file of its expectations, `exports` are the files that it writes outside the root.
    """

    name: str
    assets: tuple[dg.AssetsDefinition, ...]
    checks: dg.AssetChecksDefinition
    inputs: tuple[str, ...] = ()
    schedules: Sequence[dg.ScheduleDefinition] = ()
    sensors: Sequence[dg.SensorDefinition] = ()
    suite: Path | None = None
    exports: tuple[Path, ...] = ()
    dry_run: DryRun = field(kw_only=True)
    derive_schema: Callable[[Schemas], Schema | None] = field(kw_only=True)

    @property
    def key(self) -> dg.AssetKey:
        """The key of its asset."""
        return self.assets[0].key


def gate_of(version: str, expectations: str | Path | None, *, grows: bool) -> Gate:
    """The checks of a version; a file of expectations that is not there is refused."""
    if expectations is None:
        return Gate(version, grows=grows)
    suite = SUITES / expectations
    try:
        read_suite(suite, version)
    except SuiteError as error:
        raise DeclarationError.of(version, error) from None
    return Gate(version, suite, grows=grows)


@contextmanager
def declaring(name: str) -> Iterator[None]:
    """Tell at load, with the name of the version, what would only fail in a run."""
    try:
        yield
    except ValueError as error:
        raise DeclarationError.of(name, error) from None


def parse_target(name: str, value: int | str) -> int:
    """Return a size in bytes, given as a number or as text such as 128MB."""
    size = parse_size(value) if isinstance(value, str) else value
    validate_minimum(name, size, 1)
    return size


def refuse_itself(name: str, inputs: Sequence[str]) -> None:
    """Refuse a version that is an input of itself."""
    if name in inputs:
        raise DeclarationError(
            f"{name}: derived from itself",
            code="same-version",
            hint=Hint.of("give the derived version another name"),
            version=name,
        )
