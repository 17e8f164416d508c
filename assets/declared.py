"""A version as it is declared: its asset, its checks and its automation, together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from checks.gate import Gate
from checks.suite import SUITES, SuiteError, read_suite
from shardline.errors import ShardlineError
from shardline.hints import Hint


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

    `inputs` are the versions that it is made of.
    """

    name: str
    assets: tuple[dg.AssetsDefinition, ...]
    checks: dg.AssetChecksDefinition
    inputs: tuple[str, ...] = ()
    schedules: Sequence[dg.ScheduleDefinition] = ()
    sensors: Sequence[dg.SensorDefinition] = ()

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


def refuse_itself(name: str, inputs: Sequence[str]) -> None:
    """Refuse a version that is an input of itself."""
    if name in inputs:
        raise DeclarationError(
            f"{name}: derived from itself",
            code="same-version",
            hint=Hint.of("give the derived version another name"),
            version=name,
        )
