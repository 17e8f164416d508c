"""A version as it is declared: its asset, its checks and its automation, together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from checks.gate import Gate
from checks.suite import SUITES, SuiteError, read_suite


class DeclarationError(Exception):
    """A declaration is wrong: says which, and what to change."""


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
    if not suite.is_file():
        raise DeclarationError(
            f"{version}: its suite {suite} is not there. Draft one from a snapshot with "
            f"'python -m checks.draft {version}', or leave out expectations="
        )
    try:
        read_suite(suite)
    except SuiteError as error:
        raise DeclarationError(f"{version}: {error}") from None
    return Gate(version, suite, grows=grows)


@contextmanager
def declaring(name: str) -> Iterator[None]:
    """Tell at load, with the name of the version, what would only fail in a run."""
    try:
        yield
    except ValueError as error:
        raise DeclarationError(f"{name}: {error}") from None
