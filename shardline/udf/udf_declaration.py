"""What a maker of fields declares, checked before anything is read."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from pathlib import PurePath
from threading import local
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import cloudpickle

from shardline.errors import FieldsError, SchemaMismatchError
from shardline.execution.threads import run_tasks
from shardline.hints import Hint, Option
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


def validate_features(shown: str, features: Iterable[object]) -> tuple[Feature, ...]:
    """The features that are made; FieldsError if they cannot be."""
    found: list[Feature] = []
    for feature in features:
        if not isinstance(feature, Feature):
            raise FieldsError(
                f"{shown}: expected a Feature, got {type(feature).__name__}",
                code="invalid-udf",
                hint=_DECLARE,
            )
        if feature.sequence:
            raise FieldsError(
                f"{shown}: cannot compute a sequence feature ({feature.name!r})",
                code="invalid-udf",
                hint=Hint.of("leave out ", Option("sequence"), ": new features are in the context"),
                feature=feature.name,
            )
        if feature.name in {other.name for other in found}:
            raise FieldsError(
                f"{shown}: duplicate feature {feature.name!r}",
                code="duplicate-feature",
                feature=feature.name,
            )
        found.append(feature)
    if not found:
        raise FieldsError(f"{shown}: no features declared", code="no-features", hint=_DECLARE)
    return tuple(found)


def validate_reads(shown: str, reads: object) -> tuple[str, ...]:
    """The names of the features that are read; FieldsError if these are none."""
    if isinstance(reads, str) or not isinstance(reads, list | tuple):
        raise FieldsError(
            f"{shown}: invalid reads: expected a list of names",
            code="invalid-argument",
            hint=Hint.of("pass a list such as `reads=['image']`"),
        )
    names = tuple(reads)
    if not names or not all(isinstance(name, str) for name in names):
        raise FieldsError(
            f"{shown}: invalid reads: expected at least 1 feature name", code="invalid-argument"
        )
    for name in names:
        if names.count(name) > 1:
            raise FieldsError(
                f"{shown}: duplicate feature {name!r} in reads",
                code="duplicate-feature",
                feature=name,
            )
    return names


def validate_code(shown: str, code: object) -> None:
    """Refuse what is no code version."""
    if code is None:
        return
    if not isinstance(code, str) or not code:
        raise FieldsError(
            f"{shown}: invalid code version: expected a string",
            code="invalid-argument",
            hint=Hint.of("pass a string, e.g. ", Option("code", "1")),
        )
    validate_text(f"the code version of {shown}", code)


def select_features(shown: str, reads: tuple[str, ...] | None, schema: Schema) -> list[Feature]:
    """The features of these names; without names all of the context.

    A name that stands in the context and in the feature_lists means that in the context.
    """
    if schema.payload == "opaque":
        raise SchemaMismatchError(
            f"{shown}: opaque records have no features", code="opaque-records"
        )
    known = {feature.key: feature for feature in schema.features}
    if reads is None:
        context = [feature for feature in schema.features if not feature.sequence]
        if not context:
            raise SchemaMismatchError(
                f"{shown}: the context has no features to read",
                code="no-features",
                hint=Hint.of("name the features of the feature_lists that it reads in `reads`"),
            )
        return context
    found = []
    for name in reads:
        feature = known.get((False, name)) or known.get((True, name))
        if feature is None:
            names = [feature.name for feature in schema.features]
            close = Hint.closest(name, (one for one in names if one not in reads))
            has = f"the schema has {', '.join(map(repr, names)) or 'none'}"
            raise SchemaMismatchError(
                f"{shown}: unknown feature {name!r}",
                code="unknown-feature",
                hint=Hint.of(close, " " if close else "", has),
                feature=name,
            )
        found.append(feature)
    return found


class UDF(Protocol):
    """Where new fields of records come from: a function, or a table."""

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features that it makes, as they are declared."""
        ...

    @property
    def reads(self) -> tuple[str, ...] | None:
        """The features that it reads; None for all of the context."""
        ...

    @property
    def shown(self) -> str:
        """It as messages call it: "function 'area'", "table labels.csv"."""
        ...

    def identity(self) -> Json | None:
        """All that its results depend on besides the records.

        None if that cannot be told, as of a function without a code version: then nothing that it
        made before can be used again.
        """
        ...

    def settled(self) -> UDF:
        """The same, with what lies outside of this process read, once: a table is.

        So `features`, `identity` and `bind` of what is settled all speak of the same content.
        """
        ...

    def bind(self, schema: Schema) -> BoundUDF:
        """It for records of this schema.

        Raises SchemaMismatchError if they lack what it reads, FieldsError if it cannot work.
        """
        ...


def describe_udf(fields: UDF) -> Json:
    """A maker of fields as an entry tells it, for people and for lineage."""
    return {
        "by": fields.shown,
        "features": [feature.name for feature in fields.features],
        "reads": None if fields.reads is None else list(fields.reads),
        "identity": fields.identity(),
        **({} if is_deterministic(fields) else {"deterministic": False}),
    }


_METHODS = ("identity", "settled", "bind")


def is_udf(value: object) -> bool:
    """Whether a value is a maker of fields. No property is touched: those of a table read it."""
    return all(callable(getattr(type(value), name, None)) for name in _METHODS)


def is_deterministic(fields: UDF) -> bool:
    """Whether it makes the same of the same records each time, as far as it declares."""
    return bool(getattr(fields, "deterministic", True))


class BoundUDF(ABC):
    """A maker of fields for records of one schema. Close it when the last record is done.

    `reads` are the features that it is given, `features` those that it makes.
    """

    def __init__(self, reads: list[Feature], features: tuple[Feature, ...]) -> None:
        self.reads = reads
        self.features = features
        self._names = [feature.name for feature in reads]

    @abstractmethod
    def compute(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:
        """The new fields of some records; may be asked on several threads at once.

        `batch` has the columns of `reads`, as `readers.arrow_columns` makes them. With `every`
        each row that gives nothing is told, else the first of them may be all that is.
        """

    def stream(
        self, batches: Iterable[pa.RecordBatch], *, every: bool, workers: int | None = None
    ) -> Iterator[UDFResult]:
        """The new fields of all batches, in order, worked out some batches ahead of their taking.

        So many `workers` are at it at once, and about twice as many batches are held. An error,
        also one of `batches` itself, comes behind the results of all batches before it.
        """

        def work(batch: pa.RecordBatch | Exception) -> UDFResult:
            if isinstance(batch, Exception):
                raise batch
            return self.compute(batch, every=every)

        return run_tasks(work, _iter_with_error(batches), workers=workers, stop=self._hurry)

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End what it has running."""

    def _hurry(self) -> None:  # noqa: B027 - most work ends by itself
        """End work of a stream whose results are no longer waited for, where that is sudden."""

    def _given(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those columns of a batch that it reads."""
        return batch if batch.schema.names == self._names else batch.select(self._names)


def _iter_with_error(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch | Exception]:
    """The batches, and behind them what reading them raised."""
    try:
        yield from batches
    except Exception as error:  # noqa: BLE001 - raised again in its place
        yield error


@dataclass(frozen=True, slots=True)
class FunctionUDF(ABC):
    """A function and the fields that it makes. It can still be called as it was written.

    One that is not `deterministic` may make others of the same record another time: an audit does
    not ask it again. With `check_source` off, a version may be continued with a changed function.
    """

    function: Callable[[Any], Any]
    features: tuple[Feature, ...]
    reads: tuple[str, ...] | None
    code: str | None
    deterministic: bool = True
    check_source: bool = True

    maker: ClassVar[str]
    """Which kind of function this is."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not callable(self.function):
            raise FieldsError(
                f"invalid UDF: expected a function, got {type(self.function).__name__}",
                code="invalid-udf",
            )
        object.__setattr__(self, "features", validate_features(self.shown, self.features))
        if self.reads is not None:
            object.__setattr__(self, "reads", validate_reads(self.shown, self.reads))
        validate_code(self.shown, self.code)

    def __reduce__(self) -> tuple[Any, ...]:
        # The function's name stands for this object now, so that only cloudpickle can send it.
        function, *declared = (getattr(self, one.name) for one in fields(self))
        sending = _SENDING.__dict__.setdefault("fields", set[int]())
        if id(self) in sending:  # the function refers to itself
            return type(self), (function, *declared)
        sending.add(id(self))
        try:
            return _recreate_udf, (type(self), cloudpickle.dumps(function), *declared)
        finally:
            sending.discard(id(self))

    def __call__(self, given: Any) -> Any:  # noqa: ANN401 - the function's own
        """What the function makes."""
        return self.function(given)

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def shown(self) -> str:
        """The function as messages call it."""
        return f"function {self.name!r}"

    def identity(self) -> Json | None:
        """All that its results depend on besides the records; None without a code version.

        A hash of its source would miss imported code and files of models, so that a code version
        has to be declared; `source_digest` only notices changes that it was not changed for.
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
        """Return a digest of the function's source; None if it has none."""
        return source_digest(self.function)

    def settled(self) -> FunctionUDF:
        """The same: a function is what it is."""
        return self

    @abstractmethod
    def bind(self, schema: Schema) -> BoundUDF:
        """The function for records of this schema."""

    def validate(self, schema: Schema) -> None:
        """Raise SchemaMismatchError if records of this schema lack what it reads."""
        self._found(schema)

    def _found(self, schema: Schema) -> list[Feature]:
        return select_features(self.shown, self.reads, schema)


def _get_module(function: Callable[[Any], Any]) -> str:
    """The module of a function, whether it was loaded by its name or, as commands may, by its path.

    So what was computed is found again in another folder, or under the other name.
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
    """The features as an identity tells them: docs make no difference."""
    return [replace(feature, doc="").to_dict() for feature in features]
