"""UDF declarations, validated before any data is read."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from pathlib import PurePath
from threading import local
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import cloudpickle

from shardline.errors import SchemaMismatchError, UDFError
from shardline.execution.threads import run_tasks
from shardline.hints import Hint, Option
from shardline.log.parameters import StoredUDF
from shardline.schema.logical_types import validate_text
from shardline.schema.schema import Feature
from shardline.udf.function_digest import source_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from shardline.canonical_json import Json
    from shardline.schema.schema import Schema
    from shardline.udf.udf_result import UDFResult


_DECLARE = Hint.of("declare each feature that it computes, e.g. `Feature('area', 'int64')`")


def validate_features(label: str, features: Iterable[object]) -> tuple[Feature, ...]:
    """Return the features to compute; UDFError if they are invalid."""
    valid_features: list[Feature] = []
    for feature in features:
        if not isinstance(feature, Feature):
            raise UDFError(
                f"{label}: expected a Feature, got {type(feature).__name__}",
                code="invalid-udf",
                hint=_DECLARE,
            )
        if feature.sequence:
            raise UDFError(
                f"{label}: cannot compute a sequence feature ({feature.name!r})",
                code="invalid-udf",
                hint=Hint.of("leave out ", Option("sequence"), ": new features are in the context"),
                feature=feature.name,
            )
        if feature.name in {other.name for other in valid_features}:
            raise UDFError(
                f"{label}: duplicate feature {feature.name!r}",
                code="duplicate-feature",
                feature=feature.name,
            )
        valid_features.append(feature)
    if not valid_features:
        raise UDFError(f"{label}: no features declared", code="no-features", hint=_DECLARE)
    return tuple(valid_features)


def validate_reads(label: str, reads: object) -> tuple[str, ...]:
    """Return the names of the features to read; UDFError if they are invalid."""
    if isinstance(reads, str) or not isinstance(reads, list | tuple):
        raise UDFError(
            f"{label}: invalid reads: expected a list of names",
            code="invalid-argument",
            hint=Hint.of("pass a list such as `reads=['image']`"),
        )
    names = tuple(reads)
    if not names or not all(isinstance(name, str) for name in names):
        raise UDFError(
            f"{label}: invalid reads: expected at least 1 feature name", code="invalid-argument"
        )
    for name in names:
        if names.count(name) > 1:
            raise UDFError(
                f"{label}: duplicate feature {name!r} in reads",
                code="duplicate-feature",
                feature=name,
            )
    return names


def validate_code(label: str, code: object) -> None:
    """Raise UDFError for an invalid code version."""
    if code is None:
        return
    if not isinstance(code, str) or not code:
        raise UDFError(
            f"{label}: invalid code version: expected a string",
            code="invalid-argument",
            hint=Hint.of("pass a string, e.g. ", Option("code", "1")),
        )
    validate_text(f"the code version of {label}", code)


def select_features(label: str, reads: tuple[str, ...] | None, schema: Schema) -> list[Feature]:
    """Return the features of these names, or the whole context without names.

    A name in both the context and the feature_lists means the context feature.
    """
    if schema.payload == "opaque":
        raise SchemaMismatchError(
            f"{label}: opaque records have no features", code="opaque-records"
        )
    known = {feature.key: feature for feature in schema.features}
    if reads is None:
        context = [feature for feature in schema.features if not feature.sequence]
        if not context:
            raise SchemaMismatchError(
                f"{label}: the context has no features to read",
                code="no-features",
                hint=Hint.of("name the features of the feature_lists that it reads in `reads`"),
            )
        return context
    selected = []
    for name in reads:
        feature = known.get((False, name)) or known.get((True, name))
        if feature is None:
            names = [feature.name for feature in schema.features]
            close = Hint.closest(
                name, (other_name for other_name in names if other_name not in reads)
            )
            has = f"the schema has {', '.join(map(repr, names)) or 'none'}"
            raise SchemaMismatchError(
                f"{label}: unknown feature {name!r}",
                code="unknown-feature",
                hint=Hint.of(close, " " if close else "", has),
                feature=name,
            )
        selected.append(feature)
    return selected


class UDF(Protocol):
    """Source of new features: a function or a table."""

    @property
    def features(self) -> tuple[Feature, ...]:
        """Features that the UDF computes, as declared."""
        ...

    @property
    def reads(self) -> tuple[str, ...] | None:
        """Names of the features that the UDF reads; None for the whole context."""
        ...

    @property
    def label(self) -> str:
        """Label for messages, e.g. "function 'area'" or "table labels.csv"."""
        ...

    def identity(self) -> Json | None:
        """Return everything the results depend on besides the records.

        Returns None if that is unknown, as for a function without a code version: earlier results
        then cannot be reused.
        """
        ...

    def settled(self) -> UDF:
        """Return a copy with external state, such as a table, loaded once.

        On the copy, `features`, `identity` and `bind` all refer to the same content.
        """
        ...

    def bind(self, schema: Schema) -> BoundUDF:
        """Bind to records of this schema.

        Raises SchemaMismatchError if the records lack what the UDF reads, UDFError if the UDF is
        otherwise unusable.
        """
        ...


def describe_udf(udf: UDF) -> StoredUDF:
    """Return what an entry stores of a UDF, for people and for lineage."""
    return StoredUDF(
        label=udf.label,
        features=tuple(feature.name for feature in udf.features),
        reads=None if udf.reads is None else tuple(udf.reads),
        identity=udf.identity(),
        deterministic=is_deterministic(udf),
    )


_METHODS = ("identity", "settled", "bind")


def is_udf(value: object) -> bool:
    """Return True for a UDF, without touching properties, because those of a table read it."""
    return all(callable(getattr(type(value), name, None)) for name in _METHODS)


def is_deterministic(fields: UDF) -> bool:
    """Return True unless the UDF declares that equal records may give different results."""
    return bool(getattr(fields, "deterministic", True))


class BoundUDF(ABC):
    """UDF bound to records of one schema; close it after the last record.

    `reads` are its input features, `features` its output features.
    """

    def __init__(self, reads: list[Feature], features: tuple[Feature, ...]) -> None:
        self.reads = reads
        self.features = features
        self._names = [feature.name for feature in reads]

    @abstractmethod
    def compute(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """Compute the new features of some records; callable on several threads at once.

        Args:
            batch: Columns of `reads`, as `readers.arrow_columns` makes them.
            every: Report every failing row; otherwise, possibly only the first.
        """

    def stream(
        self, batches: Iterable[pa.RecordBatch], *, every: bool, workers: int | None = None
    ) -> Iterator[UDFResult]:
        """Yield the new features of all batches in order, computed some batches ahead.

        Up to `workers` batches are computed at once, and about twice as many are held. An error,
        including an error of `batches` itself, is raised after the results of all earlier batches.
        """

        def work(batch: pa.RecordBatch | Exception) -> UDFResult:
            if isinstance(batch, Exception):
                raise batch
            return self.compute(batch, every=every)

        return run_tasks(work, _iter_with_error(batches), workers=workers, stop=self._abort)

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """Stop background work."""

    def _abort(self) -> None:  # noqa: B027 - most UDFs have nothing to abort
        """Abort work of a stream whose results are no longer needed, where possible."""

    def _select_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of a batch that the UDF reads."""
        return batch if batch.schema.names == self._names else batch.select(self._names)


def _iter_with_error(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch | Exception]:
    """Yield the batches, then the exception that reading them raised, if any."""
    try:
        yield from batches
    except Exception as error:  # noqa: BLE001 - raised again in its place
        yield error


@dataclass(frozen=True, slots=True)
class FunctionUDF(ABC):
    """Function with declared features, still callable as written.

    With `deterministic` off, the same record may give different features, and an audit does not
    compare them. With `check_source` off, a version may be continued with a changed function.
    """

    function: Callable[[Any], Any]
    features: tuple[Feature, ...]
    reads: tuple[str, ...] | None
    code: str | None
    deterministic: bool = True
    check_source: bool = True

    maker: ClassVar[str]
    """Kind of function."""

    def __post_init__(self) -> None:
        """Raise UDFError for invalid options."""
        if not callable(self.function):
            raise UDFError(
                f"invalid UDF: expected a function, got {type(self.function).__name__}",
                code="invalid-udf",
            )
        object.__setattr__(self, "features", validate_features(self.label, self.features))
        if self.reads is not None:
            object.__setattr__(self, "reads", validate_reads(self.label, self.reads))
        validate_code(self.label, self.code)

    def __reduce__(self) -> tuple[Any, ...]:
        # The function's name now refers to this object, so only cloudpickle can send it.
        function, *declared = (
            getattr(self, declared_field.name) for declared_field in fields(self)
        )
        sending = _SENDING.__dict__.setdefault("fields", set[int]())
        if id(self) in sending:  # The function refers to itself.
            return type(self), (function, *declared)
        sending.add(id(self))
        try:
            return _recreate_udf, (type(self), cloudpickle.dumps(function), *declared)
        finally:
            sending.discard(id(self))

    def __call__(self, argument: Any) -> Any:  # noqa: ANN401 - the function's own
        """Call the function."""
        return self.function(argument)

    @property
    def name(self) -> str:
        """Name of the function."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def label(self) -> str:
        """Function label for messages."""
        return f"function {self.name!r}"

    def identity(self) -> Json | None:
        """Return everything the results depend on besides the records, or None.

        Returns None without a code version. A source hash would miss imported code and model files,
        so a code version must be declared; `source_digest` only detects changes without a new code
        version.
        """
        if self.code is None:
            return None
        return {
            "maker": self.maker,
            "function": f"{_get_module(self.function)}:{self.name}",
            "features": describe_features(self.features),
            "reads": None if self.reads is None else list(self.reads),
            "code": self.code,
        }

    def source_digest(self) -> str | None:
        """Return a digest of the function's source, or None without source."""
        return source_digest(self.function)

    def settled(self) -> FunctionUDF:
        """Return the function unchanged, because it has no external state."""
        return self

    @abstractmethod
    def bind(self, schema: Schema) -> BoundUDF:
        """Bind the function to records of this schema."""

    def validate(self, schema: Schema) -> None:
        """Raise SchemaMismatchError if records of this schema lack what the function reads."""
        self._select_features(schema)

    def _select_features(self, schema: Schema) -> list[Feature]:
        return select_features(self.label, self.reads, schema)


def _get_module(function: Callable[[Any], Any]) -> str:
    """Return the module of a function, loaded by name or, as commands may, by path.

    Reuse then works from another folder, or under the other name.
    """
    name = str(getattr(function, "__module__", ""))
    return PurePath(name).stem if "/" in name else name


_SENDING = local()


def _recreate_udf(
    kind: type[FunctionUDF],
    function: bytes,
    *declared: Any,  # noqa: ANN401 - the fields of the class
) -> FunctionUDF:
    return kind(pickle.loads(function), *declared)  # noqa: S301 - part of what is being loaded


def describe_features(features: Iterable[Feature]) -> list[Json]:
    """Serialize features for an identity, without docs."""
    return [replace(feature, doc="").to_dict() for feature in features]
