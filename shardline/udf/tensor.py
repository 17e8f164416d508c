"""What tells in the text of a TensorFlow error, which comes behind long lists of where it was."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from shardline.errors import FieldsError, SchemaMismatchError
from shardline.hints import Hint
from shardline.schema.arrow_types import is_list, misfit
from shardline.schema.conversion import Fitted, cut, fit
from shardline.sources.tensors import column_of, type_of
from shardline.udf.base import Bound, FunctionFields
from shardline.udf.batch_call import Batchwise, copied
from shardline.udf.results import RAISED, BatchMisfit, in_words, of_piece, put_together
from shardline.udf.tensor_stream import tensor_stream
from shardline.udf.tensors import Form, tensorflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from shardline.schema.schema import Feature, Schema
    from shardline.udf.results import Made
    from shardline.udf.tensors import Parts, Tensor

    TensorFunction = Callable[[dict[str, Tensor]], Mapping[str, Tensor]]


_BATCH = 4096
SEVERAL = "holds a list of {} values, and one value belongs there"


def tensor_fields(
    *features: Feature,
    reads: Sequence[str],
    code: str | None = None,
    batch: int = _BATCH,
    deterministic: bool = True,
    check_source: bool = True,
) -> Callable[[TensorFunction], TensorFields]:
    """Declare that a TensorFlow function of a batch of records makes these fields.

    It is given a dict of tensors, whose first dimension is the record, in the forms that
    `Snapshot.to_tf` gives, and returns a dict of dense or ragged tensors with as many records. An
    empty row of a field that is not required is a field that is missing.

    It is traced once, with a batch dimension that is not known, and runs in a tf.data pipeline: so
    it must be made of TensorFlow's operations. What it makes of a record must not depend on which
    others are in the batch: where it fails, it is called on parts of the batch until the records
    are found that make it fail.

    `reads` names the features that it needs, `batch` how many records it is given at most: as many
    as there is memory for what it computes. `code` is the version of all that its results depend
    on, models included: change it when they would change. Without it nothing is used again that
    the function made before.

    A function that may make something else of the same records another time says so with
    `deterministic=False`: then an audit does not call it again to compare.

    A function whose source has changed while its `code` has not is refused, since one version would
    mix results of both. If the results are the same, set `check_source=False` for the next run.
    """
    return partial(
        TensorFields,
        features=features,
        reads=reads,  # type: ignore[arg-type] # checked there
        code=code,
        deterministic=deterministic,
        check_source=check_source,
        batch=batch,
    )


@dataclass(frozen=True, slots=True)
class TensorFields(FunctionFields):
    """A TensorFlow function of batched tensors."""

    batch: int = _BATCH

    maker: ClassVar[str] = "tensor function"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        FunctionFields.__post_init__(self)
        if type(self.batch) is not int or self.batch < 1:
            raise FieldsError(
                f"{self.shown}: invalid batch: expected an integer of at least 1",
                code="invalid-argument",
            )

    def bind(self, schema: Schema) -> Bound:
        """The function for records of this schema; it is traced here."""
        reads = self._found(schema)
        work = TensorWork(self.shown, self.function, self.features, reads)
        return BoundTensors(work, reads, self.batch)


class TensorWork(Batchwise):
    """The function, traced, and called with the parts that tensors are put together of."""

    def __init__(
        self,
        shown: str,
        function: TensorFunction,
        features: tuple[Feature, ...],
        reads: list[Feature],
    ) -> None:
        self.shown = shown
        self.features = features
        self.tf = tensorflow(shown)
        self._forms = [Form(feature) for feature in reads]
        self._specs = [form.specs(self.tf) for form in self._forms]
        self._function = function
        self.traced = self._trace()

    @property
    def specs(self) -> tuple[Any, ...]:
        """What the parts of a batch are, all features' behind each other."""
        return tuple(spec for specs in self._specs for spec in specs)

    def prepare(self, batch: pa.RecordBatch) -> Parts:
        """The parts of a batch; ColumnError where it does not hold what was declared."""
        pairs = zip(self._forms, batch.columns, strict=True)
        return [part for form, column in pairs for part in form.parts(column)]

    def call(self, prepared: Parts) -> dict[str, Tensor]:
        """What the function makes of them, outside of a pipeline."""
        given = zip(prepared, self.specs, strict=True)
        made: dict[str, Tensor] = self.traced(
            *(self.tf.convert_to_tensor(part, spec.dtype) for part, spec in given)
        )
        return made

    def fitted(self, result: dict[str, Tensor], rows: int) -> list[Fitted]:
        """The columns that it made."""
        made = []
        for feature in self.features:
            tensor = result[feature.name]
            self.refuse_rows(feature.name, tensor.shape[0] if tensor.shape.rank else None, rows)
            ragged = isinstance(tensor, self.tf.RaggedTensor)
            column = column_of(tensor)
            fits = _missing_or_not(feature, column) if ragged else fit(feature, column)
            made.append(fits)
        return made

    def _trace(self) -> Any:  # noqa: ANN401 - TensorFlow's own
        # The function is one of its own, inside: so it may have conditions on tensors, as usual.
        inner = self.tf.function(self._function)

        def call(*parts: Tensor) -> dict[str, Tensor]:
            return self._checked(inner(self._put_together(parts)))

        traced = self.tf.function(call, input_signature=self.specs, autograph=False)
        try:
            return traced.get_concrete_function()
        except FieldsError:
            raise
        except RAISED as error:
            why = in_words(error).rstrip(".")
            raise FieldsError(
                f"{self.shown}: TensorFlow cannot trace it: {why}",
                code="udf-trace-failed",
                hint=Hint.of("use TensorFlow operations only, or declare it with `batch_fields`"),
            ) from error

    def _put_together(self, parts: Sequence[Tensor]) -> dict[str, Tensor]:
        left = list(parts)
        tensors = {}
        for form, specs in zip(self._forms, self._specs, strict=True):
            tensors[form.feature.name] = form.put_together(self.tf, left[: len(specs)])
            del left[: len(specs)]
        return tensors

    def _checked(self, result: object) -> dict[str, Tensor]:
        """The tensors that it gives, if they can be what is declared."""
        tf = self.tf
        if not isinstance(result, Mapping):
            raise FieldsError(
                f"{self.shown}: invalid result of type {type(result).__name__}",
                code="invalid-udf-result",
                hint=Hint.of("return a dict of tensors"),
            )
        self.refuse_names(result)
        made = {}
        for feature in self.features:
            tensor = result[feature.name]
            if not isinstance(tensor, tf.Tensor | tf.RaggedTensor):
                raise FieldsError(
                    f"{self.shown}: invalid column {feature.name!r} of type "
                    f"{type(tensor).__name__}",
                    code="invalid-udf-result",
                    hint=Hint.of("return a dense or a ragged tensor"),
                    feature=feature.name,
                )
            why = self._misfit(feature, tensor)
            if why is not None:
                raise FieldsError(
                    f"{self.shown}, feature {feature.name!r}: {why}",
                    code="value-mismatch",
                    feature=feature.name,
                )
            made[feature.name] = tensor
        return made

    def _misfit(self, feature: Feature, tensor: Tensor) -> str | None:
        """Why no tensor of this kind can be the field; None if it may be."""
        if tensor.shape.rank is None:
            return None
        if tensor.shape.rank == 0:
            return "holds one value, and one for each record is wanted"
        try:
            kind = type_of(feature.name, tensor).value_type
        except SchemaMismatchError:
            return f"is of {tensor.dtype.name}, which no kind of feature can hold"
        optional = not feature.required and not feature.shape and is_list(kind)
        return misfit(feature, kind.value_type if optional else kind)


def _missing_or_not(feature: Feature, column: pa.Array) -> Fitted:
    """A ragged column, in which an empty row is missing if it may be."""
    if feature.required:
        return fit(feature, column)
    cuts, values = cut(column)
    lengths = np.diff(cuts)
    if feature.shape:
        empty = pa.array(lengths == 0)
        return fit(feature, pa.ListArray.from_arrays(column.offsets, column.values, mask=empty))
    several = {at: SEVERAL.format(lengths[at]) for at in np.flatnonzero(lengths > 1).tolist()}
    alone = fit(feature, values.take(pa.array(cuts[:-1], mask=lengths != 1)))
    return Fitted(alone.array, alone.bad | several)


class BoundTensors(Bound):
    """A TensorFlow function for records of one schema."""

    def __init__(self, work: TensorWork, reads: list[Feature], batch: int) -> None:
        super().__init__(reads, work.features)
        self._work = work
        self._batch = batch

    def compute(self, batch: pa.RecordBatch, *, every: bool) -> Made:
        """The new fields of some records."""
        cut = _cut(self._given(batch), self._batch)
        parts = []
        for at, piece in enumerate(cut):
            with of_piece(at * self._batch):
                parts.append(self._work(piece, every=every))
        return put_together(self.features, parts, batch.num_rows)

    def stream(
        self, batches: Iterable[pa.RecordBatch], *, every: bool, workers: int | None = None
    ) -> Iterator[Made]:
        """The new fields of all batches, in order, by one tf.data pipeline."""
        begun: deque[tuple[int, int]] = deque()

        def pieces() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                cut = _cut(self._given(batch), self._batch)
                begun.append((len(cut), batch.num_rows))
                yield from cut

        parts: list[Made] = []
        try:
            for made in tensor_stream(self._work, pieces(), every=every, workers=workers):
                parts.append(made)
                count, rows = begun[0]
                if len(parts) == count:
                    begun.popleft()
                    yield put_together(self.features, parts, rows)
                    parts = []
        except BatchMisfit as error:
            raise error.moved(len(parts) * self._batch) from error.__cause__


def _cut(batch: pa.RecordBatch, rows: int) -> list[pa.RecordBatch]:
    """A batch in pieces of so many rows at most."""
    if batch.num_rows <= rows:
        return [batch]
    return [copied(batch.slice(first, rows)) for first in range(0, batch.num_rows, rows)]
