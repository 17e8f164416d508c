"""A declared version, its dry run, and the parts of declarations that factories share."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import dagster as dg
from pydantic import ValidationError

from shardline.arguments import parse_size, validate_minimum
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.materialization import Metadata
from shardline.errors import InvalidArgumentError, ShardlineError, UnknownArgumentError
from shardline.hints import Hint
from shardline.schema.schema import Schema
from shardline.udf.key_join import TableJoin
from shardline.udf.udf_declaration import UDF, FunctionUDF

Schemas: TypeAlias = Mapping[str, Schema | None]
"""Declared schemas by version, None for a schema that is unknown before a run."""
Udfs: TypeAlias = UDF | Iterable[UDF]
LateUdfs: TypeAlias = Callable[[], Udfs]

_DECLARE_HINT = Hint.of("declare its features with record_udf, batch_udf, tensor_udf, table_join")


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


@contextmanager
def raise_declaration_error(version: str) -> Iterator[None]:
    """Raise a ValueError as the DeclarationError of a version, so that it shows at load."""
    try:
        yield
    except ValueError as error:
        raise DeclarationError.of(version, error) from None


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """The plan of a materialization: a line for the log, and metadata for the asset's page."""

    summary: str
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class DryRun:
    """How to plan a version: the class of its launchpad config, and the function that plans."""

    config: type[dg.Config]
    plan: Callable[[ShardlineResource, Any], VersionPlan]

    def run(self, shardline: ShardlineResource, options: Mapping[str, Any]) -> VersionPlan:
        """Plan with options that have the keys of the launchpad config.

        Raises InvalidArgumentError if they do not fit that config.
        """
        return self.plan(shardline, parse_options(self.config, options))


def parse_options(config: type[dg.Config], options: Mapping[str, Any]) -> dg.Config:
    """Return the config with these values. Raises InvalidArgumentError if they do not fit it."""
    known = list(config.model_fields)
    for name in options:
        if name not in known:
            hint = Hint.nearest(name, known, "options")
            raise UnknownArgumentError(f"unknown option {name!r}", hint=hint)
    try:
        return config(**options)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        path = ".".join(map(str, first["loc"]))
        raise InvalidArgumentError(
            f"invalid option {path!r}: {first['msg']}", code="invalid-argument"
        ) from None


@dataclass(frozen=True, slots=True)
class VersionDefs:
    """The definitions of a version, as a factory returns them.

    Attributes:
        name: The version.
        assets: The asset of the version, then those of its exports.
        checks: The checks of the version.
        inputs: The versions from which it is derived.
        schedules: The schedules that materialize it.
        sensors: The sensors that materialize it.
        suite: The file with its expectations.
        exports: The files that it writes outside the root.
        dry_run: Plans the next materialization.
        derive_schema: Returns its schema, given those of its inputs. None if the schema is unknown
            before a run. Raises ValueError if a schema contradicts the declaration.
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
        """The key of the version's asset."""
        return self.assets[0].key

    @property
    def definitions(self) -> dg.Definitions:
        """The definitions of this version alone, to be merged with others."""
        return dg.Definitions(
            assets=self.assets,
            asset_checks=[self.checks],
            schedules=self.schedules,
            sensors=self.sensors,
        )


def get_version_name(version: str | VersionDefs) -> str:
    """Return the name of a version that is given by name or by its declaration."""
    return version if isinstance(version, str) else version.name


def parse_target(name: str, value: int | str) -> int:
    """Return a size in bytes, given as a number or as text such as 128MB."""
    size = parse_size(value) if isinstance(value, str) else value
    validate_minimum(name, size, 1)
    return size


@dataclass(frozen=True, slots=True)
class DeclaredUdfs:
    """The UDFs of a declaration, or a function without arguments that returns them in a run.

    With such a function, a table need not exist and TensorFlow need not load when the code
    location loads.
    """

    declaration: tuple[UDF, ...] | LateUdfs

    @classmethod
    def of(cls, udfs: Udfs | LateUdfs) -> "DeclaredUdfs":
        """Validate UDFs. Raises InvalidArgumentError for anything else."""
        if not callable(udfs) or _is_udf(udfs):
            return cls(_list_udfs(udfs))
        try:
            inspect.signature(udfs).bind()
        except TypeError:
            name = getattr(udfs, "__name__", type(udfs).__name__)
            raise InvalidArgumentError(
                f"function {name!r} declares no features", code="undeclared-udf", hint=_DECLARE_HINT
            ) from None
        return cls(udfs)

    @property
    def functions(self) -> tuple[FunctionUDF, ...]:
        """The functions whose features are known before a run."""
        return tuple(udf for udf in self._known if isinstance(udf, FunctionUDF))

    @property
    def declared(self) -> tuple[UDF, ...] | None:
        """All UDFs, None if the features of a UDF are unknown before a run."""
        if callable(self.declaration):
            return None
        is_declared = all(
            isinstance(udf, FunctionUDF)
            or (isinstance(udf, TableJoin) and udf.declared is not None)
            for udf in self.declaration
        )
        return self.declaration if is_declared else None

    def validate(self, schema: Schema) -> None:
        """Raise ValueError if records of a schema lack a feature that a UDF reads."""
        for udf in self._known:
            if isinstance(udf, FunctionUDF | TableJoin):
                udf.validate(schema)

    def settled(self) -> tuple[UDF, ...]:
        """Return all UDFs with their tables read."""
        udfs = _list_udfs(self.declaration()) if callable(self.declaration) else self.declaration
        return tuple(udf.settled() for udf in udfs)

    @property
    def _known(self) -> tuple[UDF, ...]:
        return () if callable(self.declaration) else self.declaration


def _list_udfs(declared: object) -> tuple[UDF, ...]:
    udfs = tuple(declared) if isinstance(declared, Iterable) else (declared,)
    for udf in udfs:
        if not _is_udf(udf):
            raise InvalidArgumentError(
                f"invalid fields of type {type(udf).__name__}",
                code="undeclared-udf",
                hint=_DECLARE_HINT,
            )
    return udfs


def _is_udf(value: object) -> bool:
    """Return True for a UDF, also for one that can be called like its function."""
    return hasattr(value, "settled") and hasattr(value, "bind")
