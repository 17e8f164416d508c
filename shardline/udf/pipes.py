"""Messages between this process and those in which functions run: batches, and their results."""

from __future__ import annotations

import pickle
import traceback
from typing import TYPE_CHECKING

import cloudpickle
import pyarrow as pa

from shardline.errors import FieldsError
from shardline.schema.arrow_validation import find_fault
from shardline.schema.conversion import Fitted
from shardline.udf.results import Made, in_words

if TYPE_CHECKING:
    from shardline.execution.pipe_messages import Message, Part
    from shardline.schema.schema import Feature


def request(batch: pa.RecordBatch, *, every: bool) -> tuple[Part, ...]:
    """The message that asks for the new fields of a batch."""
    return bytes([every]), _packed(batch)


def asked(message: Message) -> tuple[pa.RecordBatch, bool]:
    """What such a message asks for."""
    return _unpacked(message[1]), bool(message[0][0])


def reply(made: Made) -> tuple[Part, ...]:
    """The message that tells what became of a batch."""
    arrays = [fitted.array for _, fitted in made.columns]
    columns = pa.RecordBatch.from_arrays(arrays, [str(place) for place in range(len(arrays))])
    bad = [fitted.bad for _, fitted in made.columns]
    error = b"" if made.error is None else _pickled(made.error)
    return b"made", pickle.dumps((bad, made.reasons)), _packed(columns), error


def reply_of_error(error: Exception) -> tuple[Part, ...]:
    """The message that tells what was raised instead."""
    return b"error", _pickled(error)


def answered(features: tuple[Feature, ...], message: Message) -> Made:
    """What such a message tells; raises what was raised there."""
    if bytes(message[0]) == b"error":
        error: Exception = pickle.loads(message[1])  # noqa: S301 - from a process of ours
        raise error
    bad, reasons = pickle.loads(message[1])  # noqa: S301 - from a process of ours
    arrays = _unpacked(message[2]).columns
    fault = find_fault(arrays)  # user code may have damaged the memory of its process
    if fault is not None:
        name = features[fault.position].name
        raise FieldsError(
            f"corrupt column {name!r} from another process: {fault.detail}",
            code="corrupt-columns",
            feature=name,
        )
    columns = [
        (feature, Fitted(array, wrong))
        for feature, array, wrong in zip(features, arrays, bad, strict=True)
    ]
    first = pickle.loads(message[3]) if message[3] else None  # noqa: S301 - from a process of ours
    return Made(columns, reasons, first)


def _packed(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _unpacked(part: memoryview) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(part)) as reader:
        return reader.read_next_batch()


def _pickled(error: BaseException) -> bytes:
    """An error, with its traceback in words: that is all that can be sent of it."""
    told = "".join(traceback.format_exception(error)).rstrip()
    error.add_note(f"In the process that raised it:\n{told}")
    try:
        data: bytes = cloudpickle.dumps(error)
        pickle.loads(data)  # noqa: S301 - just made, to see whether it can be
    except Exception:  # noqa: BLE001 - whatever its class does
        plain = FieldsError(in_words(error))
        plain.add_note(error.__notes__[-1])
        data = cloudpickle.dumps(plain)
    return data
