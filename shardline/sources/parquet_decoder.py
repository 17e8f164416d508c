"""Decoder process for Parquet and Arrow IPC files; the parent side is `parquet_source`.

A foreign file may crash pyarrow, which then ends only this process. The module imports
little, because each append starts a decoder, and the process exits together with its
parent.
"""

from __future__ import annotations

import _thread
import io
import marshal
import os
import resource
import select
import stat
from struct import Struct

import pyarrow as pa

from shardline.execution.pipe_messages import receive, send
from shardline.schema.arrow_validation import find_fault, format_arrow_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import BufferedReader, BufferedWriter
    from typing import Any

    Request = dict[str, Any]

IDLE_SECONDS = 60.0
_BUFFER_BYTES = 1024 * 1024
_MOST_ROWS = 64 * 1024
"""Row limit per batch: repeated values are stored once, so file sizes may be too small."""
_BYTES_PER_COLUMN = 8 * 1024 * 1024
_FEWER = 16
_STREAM_BYTES = 4096
"""Bytes of a stream apart from its schema and rows."""
ARROW_MAGIC = b"ARROW1"
POSITION = Struct("<2q")
"""First row of a batch and bytes of the file read so far; or an offset and a size."""
_NUMBERS = Struct("<3q")
_UNKNOWN = -1


def main(requests: int, replies: int) -> None:
    """Decode files for the process at the other ends of these pipes, until it closes them."""
    for number in (requests, replies):
        os.set_inheritable(number, False)  # noqa: FBT003 - the system's own
    _thread.start_new_thread(_watch, (requests,))
    incoming = os.fdopen(requests, "rb", closefd=False)
    outgoing = os.fdopen(replies, "wb", closefd=False)
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        try:
            request = marshal.loads(receive(incoming)[0])  # noqa: S302 - from our own process
        except EOFError:
            return
        try:
            _DecodeTask(request, incoming, outgoing).run()
        except (BrokenPipeError, EOFError):
            return


def _watch(requests: int) -> None:
    """End this process with its parent, even during work."""
    poll = select.poll()
    poll.register(requests, 0)  # Only the end is reported.
    poll.poll()
    os._exit(0)


class _DecodeTask:
    """Request to decode one file."""

    def __init__(
        self, request: Request, incoming: BufferedReader, outgoing: BufferedWriter
    ) -> None:
        self._request = request
        self._incoming = incoming
        self._outgoing = outgoing
        self._part = 0
        self._room: pa.Buffer | None = None

    def run(self) -> None:
        """Send the schema and the batches, or the fault."""
        try:
            with self._open() as source:
                reader = _decode_parquet if self._request["format"] == "parquet" else _decode_arrow
                self._limit(0)
                for schema, batches in reader(source, self._request):
                    self._limit(len(schema.names))
                    send(self._outgoing, b"schema", schema.serialize())
                    if self._request["want"] != "types":
                        for part, first, position, batch in batches:
                            self._part = part
                            self._send(first, position, batch)
            send(self._outgoing, b"end")
        except (BrokenPipeError, EOFError):
            raise
        except DecoderFault as fault:
            self._fail(fault)
        except MemoryError:
            self._fail(DecoderFault("record-too-large", part=self._part))
        except Exception as error:  # noqa: BLE001 - whatever pyarrow raises
            self._fail(DecoderFault("invalid-source", format_arrow_error(error), part=self._part))

    def _fail(self, fault: DecoderFault) -> None:
        send(self._outgoing, b"fault", *fault.pack())

    def _limit(self, columns: int) -> None:
        """Limit memory, so that an allocation no record can need fails."""
        size = self._request["memory"] + columns * _BYTES_PER_COLUMN
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def _open(self) -> Any:  # noqa: ANN401 - a file of pyarrow's
        path = self._request["path"]
        if path is None:
            return pa.PythonFile(_RemoteFile(self._request["size"], self._incoming, self._outgoing))
        path = os.fsdecode(path)
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - pathlib is not needed here
            raise DecoderFault("invalid-source", "not a regular file")
        return pa.OSFile(path) if self._request["format"] == "parquet" else _map_file(path)

    def _send(self, first: int, position: int, batch: pa.RecordBatch) -> None:
        """Send validated rows in parts of about one chunk."""
        fault = find_fault(batch.columns)
        if fault is not None:
            name = batch.schema.names[fault.position]
            raise DecoderFault("corrupt-columns", fault.detail, part=self._part, column=name)
        if self._request["want"] == "shapes":
            batch = _drop_bytes(batch)
        chunk = self._request["chunk"]
        size = _count_referenced_bytes(batch)
        # Each part carries the dictionary, so parts are not smaller than the dictionary.
        chunk = max(chunk, _count_dictionary_bytes(batch))
        step = max(1, batch.num_rows * chunk // max(size, 1))
        for start in range(0, batch.num_rows, step):
            self._send_part(first + start, position, batch.slice(start, step), chunk)

    def _send_part(self, first: int, position: int, part: pa.RecordBatch, chunk: int) -> None:
        size = _count_referenced_bytes(part)
        if part.num_rows > 1 and size > 4 * chunk:
            half = part.num_rows // 2  # A few rows hold most of the bytes.
            self._send_part(first, position, part.slice(0, half), chunk)
            self._send_part(first + half, position, part.slice(half), chunk)
            return
        if size > self._request["row"] and part.num_rows == 1:
            raise DecoderFault("record-too-large", part=self._part, row=first, size=size)
        send(self._outgoing, b"batch", POSITION.pack(first, position), self._serialize(part))

    def _serialize(self, part: pa.RecordBatch) -> memoryview:
        """Return the rows as an IPC stream in a reused buffer."""
        size = pa.ipc.get_record_batch_size(part) + part.schema.serialize().size + _STREAM_BYTES
        size += 2 * _count_dictionary_bytes(part)
        if self._room is None or self._room.size < size:
            self._room = None
            self._room = pa.allocate_buffer(size)
        sink = pa.FixedSizeBufferWriter(self._room)
        try:
            _write(sink, part)
        except (pa.ArrowException, OSError):  # Dictionaries inside lists are not counted.
            whole = pa.BufferOutputStream()
            _write(whole, part)
            return memoryview(whole.getvalue())
        return memoryview(self._room)[: sink.tell()]


class DecoderFault(Exception):  # noqa: N818 - raised in the decoder, and sent
    """Location and reason of a file that cannot be decoded."""

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        column: str | None = None,
        part: int | None = None,
        row: int | None = None,
        size: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.column = column
        self.part = part
        self.row = row
        self.size = size

    def pack(self) -> list[bytes]:
        """Encode as the parts of a message."""
        numbers = (self.part, self.row, self.size)
        packed = _NUMBERS.pack(*(_UNKNOWN if number is None else number for number in numbers))
        column = [] if self.column is None else [_encode(self.column)]
        return [packed, _encode(self.code), _encode(self.detail), *column]

    @classmethod
    def unpack(cls, parts: Sequence[bytes]) -> DecoderFault:
        """Decode from the parts of a message."""
        packed, code, detail, *column = parts
        part, row, size = (None if number < 0 else number for number in _NUMBERS.unpack(packed))
        return cls(
            _decode(code),
            _decode(detail),
            column=_decode(column[0]) if column else None,
            part=part,
            row=row,
            size=size,
        )


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _write(sink: Any, part: pa.RecordBatch) -> None:  # noqa: ANN401 - a sink of pyarrow's
    with pa.ipc.new_stream(sink, part.schema) as writer:
        writer.write_batch(part)


def _drop_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with empty values in place of bytes."""
    columns = [
        _empty_column(column) if pa.types.is_binary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _empty_column(column: pa.Array) -> pa.Array:
    offsets = pa.py_buffer(bytes(4 * (column.offset + len(column) + 1)))
    buffers = [column.buffers()[0], offsets, pa.py_buffer(b"")]
    return pa.Array.from_buffers(column.type, len(column), buffers, -1, column.offset)


def _count_referenced_bytes(batch: pa.RecordBatch) -> int:
    return int(batch.nbytes)


def _count_dictionary_bytes(batch: pa.RecordBatch) -> int:
    return sum(
        column.dictionary.nbytes for column in batch.columns if pa.types.is_dictionary(column.type)
    )


def _map_file(path: str) -> Any:  # noqa: ANN401 - a file of pyarrow's
    return pa.memory_map(path) if os.path.getsize(path) else pa.BufferReader(b"")  # noqa: PTH202


def _decode_parquet(source: Any, request: Request) -> Iterator[tuple[pa.Schema, Any]]:  # noqa: ANN401 - a file of pyarrow's
    file = _open_parquet(source)
    yield file.schema_arrow, _iter_row_groups(file, request)


def _open_parquet(source: Any) -> Any:  # noqa: ANN401 - a file and a reader of pyarrow's
    # Buffered, so that a column of a large row group is not loaded as a whole.
    options = {"pre_buffer": False, "buffer_size": _BUFFER_BYTES}
    try:
        from pyarrow._parquet import ParquetReader  # noqa: PLC0415 - only for Parquet

        reader = ParquetReader()
        reader.open(source, arrow_extensions_enabled=True, **options)
    except (ImportError, AttributeError, TypeError):  # Another pyarrow release.
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - imports file systems, and TLS

        source.seek(0)
        return ParquetFile(source, **options)
    return reader


def _iter_row_groups(
    file: Any,  # noqa: ANN401 - a reader of pyarrow's
    request: Request,
) -> Iterator[tuple[int, int, int, pa.RecordBatch]]:
    """Yield the rows from `start`, skipping earlier row groups without reading them."""
    start, first, position = request["start"], 0, 0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        compressed_size = sum(
            group.column(index).total_compressed_size for index in range(group.num_columns)
        )
        if first + group.num_rows > start:
            skipped = max(start - first, 0)
            for row, batch in _iter_group_rows(file, number, skipped, request["chunk"]):
                read = position + compressed_size * (row + batch.num_rows) // max(group.num_rows, 1)
                yield number, first + row, read, batch
        first += group.num_rows
        position += compressed_size


def _iter_group_rows(
    file: Any,  # noqa: ANN401 - a reader of pyarrow's
    number: int,
    skipped: int,
    chunk: int,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a row group; fewer at a time if they exceed memory."""
    group = file.metadata.row_group(number)
    wide = max(group.total_byte_size // max(group.num_rows, 1), 1)
    step = min(max(chunk // wide, 1), _MOST_ROWS)
    done = skipped
    while True:
        row = 0
        try:
            for batch in file.iter_batches(step, [number], use_threads=False):
                drop = min(max(done - row, 0), batch.num_rows)
                if drop < batch.num_rows:
                    yield row + drop, batch.slice(drop)
                row += batch.num_rows
                done = max(done, row)
        except MemoryError:
            if step == 1:
                raise
            step = max(step // _FEWER, 1)
        else:
            if row != group.num_rows:
                detail = f"row group of {group.num_rows} rows has {row}"
                raise DecoderFault("corrupt-columns", detail, part=number)
            return


def _decode_arrow(source: Any, request: Request) -> Iterator[tuple[pa.Schema, Any]]:  # noqa: ANN401 - a file of pyarrow's
    size = source.size()
    if not size:
        yield pa.schema([]), ()
        return
    magic = source.read(len(ARROW_MAGIC))
    source.seek(0)
    if magic.startswith(b"FEA1"):
        raise DecoderFault("unsupported-source")
    is_file = magic == ARROW_MAGIC
    reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
    if is_file:
        count = reader.num_record_batches
        pieces = ((size * (n + 1) // count, reader.get_batch(n)) for n in range(count))
    else:
        pieces = ((source.tell(), batch) for batch in reader)
    yield reader.schema, _iter_ipc_batches(pieces, request["start"])


def _iter_ipc_batches(
    pieces: Iterator[tuple[int, pa.RecordBatch]], start: int
) -> Iterator[tuple[int, int, int, pa.RecordBatch]]:
    """Yield the rows from `start`; earlier batches are read and dropped."""
    first = 0
    for number, (position, rows) in enumerate(pieces):
        drop = min(max(start - first, 0), rows.num_rows)
        if drop < rows.num_rows:
            yield number, first + drop, position, rows.slice(drop)
        first += rows.num_rows


class _RemoteFile(io.RawIOBase):
    """Object in a store, read by the parent process."""

    def __init__(self, size: int, incoming: BufferedReader, outgoing: BufferedWriter) -> None:
        super().__init__()
        self._size = size
        self._incoming = incoming
        self._outgoing = outgoing
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        left = max(self._size - self._position, 0)
        size = left if size < 0 else min(size, left)
        if not size:
            return b""
        send(self._outgoing, b"read", POSITION.pack(self._position, size))
        data = bytes(receive(self._incoming)[0])
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position
