"""Makers of new fields, and what they are once the records that they read are known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from shardline.execution.threads import run_tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from shardline.fields.made import Made
    from shardline.log.facts import Json
    from shardline.log.schema import Feature, Schema


class Fields(Protocol):
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

    def settled(self) -> Fields:
        """The same, with what lies outside of this process read, once: a table is.

        So `features`, `identity` and `bind` of what is settled all speak of the same content.
        """
        ...

    def bind(self, schema: Schema) -> Bound:
        """It for records of this schema.

        Raises SchemaMismatchError if they lack what it reads, FieldsError if it cannot work.
        """
        ...


def maker_told(fields: Fields) -> Json:
    """A maker of fields as an entry tells it, for people and for lineage."""
    return {
        "by": fields.shown,
        "features": [feature.name for feature in fields.features],
        "reads": None if fields.reads is None else list(fields.reads),
        "identity": fields.identity(),
        **({} if is_deterministic(fields) else {"deterministic": False}),
    }


_METHODS = ("identity", "settled", "bind")


def is_maker(value: object) -> bool:
    """Whether a value is a maker of fields. No property is touched: those of a table read it."""
    return all(callable(getattr(type(value), name, None)) for name in _METHODS)


def is_deterministic(fields: Fields) -> bool:
    """Whether it makes the same of the same records each time, as far as it declares."""
    return bool(getattr(fields, "deterministic", True))


class Bound(ABC):
    """A maker of fields for records of one schema. Close it when the last record is done.

    `reads` are the features that it is given, `features` those that it makes.
    """

    def __init__(self, reads: list[Feature], features: tuple[Feature, ...]) -> None:
        self.reads = reads
        self.features = features
        self._names = [feature.name for feature in reads]

    @abstractmethod
    def compute(self, batch: pa.RecordBatch, *, every: bool) -> Made:
        """The new fields of some records; may be asked on several threads at once.

        `batch` has the columns of `reads`, as `readers.arrow_columns` makes them. With `every`
        each row that gives nothing is told, else the first of them may be all that is.
        """

    def stream(
        self, batches: Iterable[pa.RecordBatch], *, every: bool, workers: int | None = None
    ) -> Iterator[Made]:
        """The new fields of all batches, in order, worked out some batches ahead of their taking.

        So many `workers` are at it at once, and about twice as many batches are held. An error,
        also one of `batches` itself, comes behind the results of all batches before it.
        """

        def work(batch: pa.RecordBatch | Exception) -> Made:
            if isinstance(batch, Exception):
                raise batch
            return self.compute(batch, every=every)

        return run_tasks(work, _with_error(batches), workers=workers, stop=self._hurry)

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End what it has running."""

    def _hurry(self) -> None:  # noqa: B027 - most work ends by itself
        """End work of a stream whose results are no longer waited for, where that is sudden."""

    def _given(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those columns of a batch that it reads."""
        return batch if batch.schema.names == self._names else batch.select(self._names)


def _with_error(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch | Exception]:
    """The batches, and behind them what reading them raised."""
    try:
        yield from batches
    except Exception as error:  # noqa: BLE001 - raised again in its place
        yield error
