"""Decode Parquet and Arrow IPC files in another process, so that a pyarrow crash is an error.

Decoders start on demand and are reused for the next file. They exit after some idle time
and together with this process, however it ends. They are fresh interpreters, because a fork
would lack the threads of this process.
"""

from __future__ import annotations

import atexit
import marshal
import os
import subprocess
import sys
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa

from shardline.errors import SourceError
from shardline.execution.child_process import ChildProcess
from shardline.hints import Hint
from shardline.schema.encoding import TOO_LARGE_HINT
from shardline.sources.column_source import GET_AGAIN_HINT, SourceBatch, make_corrupt_columns_error
from shardline.sources.parquet_decoder import POSITION, DecoderFault
from shardline.sources.source import CHUNK_BYTES
from shardline.tfrecord.hashing import VerifiedFile
from shardline.tfrecord.input_file import StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    from shardline.execution.pipe_messages import Message
    from shardline.sources.source_identity import FileIdentity
    from shardline.tfrecord.reader import Limits

    Encoding = Literal["parquet", "arrow"]
    Want = Literal["types", "shapes", "rows"]

    from shardline.schema.schema import Schema


_PROGRAM = """\
import _signal, gc, os, sys
_signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # Ctrl-C is for the process that started us
gc.disable()
start, folder, requests, replies = sys.argv[1:5]
sys.path[:] = sys.argv[5:]
sys.setdlopenflags(os.RTLD_LAZY)  # only a small part of Arrow is used
for name in ("numpy", "cloudpickle"):  # pyarrow does without them, and starts in half the time
    sys.modules[name] = None
for name, path in (("shardline", ""), ("shardline.execution", "/execution"),
                   ("shardline.sources", "/sources")):
    module = sys.modules[name] = type(sys)(name)  # a package without what it imports
    module.__path__ = [folder + path]
unused = "pickle platform queue re signal socket textwrap uuid".split() if start == "fast" else []
if unused:
    class Unused(str):
        __new__ = lambda *arguments: ""
    class Module(type(sys)):
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return Unused
    for name in unused:  # pyarrow imports them, and decodes without them
        sys.modules[name] = Module(name)
try:
    from shardline.sources.parquet_decoder import main
    for name in unused:
        del sys.modules[name]
except Exception:
    if not unused:
        raise
    os.execv(sys.executable, [*sys.orig_argv[:4], "plain", *sys.argv[2:]])
gc.freeze()
gc.enable()
main(int(requests), int(replies))
os._exit(0)  # there is nothing to clean up
"""
"""Program of a decoder; stubbing unused modules saves most of the start time."""
_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(256 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(256 * 2**20),
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "OMP_NUM_THREADS": "1",
}
"""Allocator settings: memory is reused between batches, and usage is counted.

With huge pages, first use of memory, and hence a short decoding, takes a third of the time.
"""
_COMPARED_BYTES = 4 * 1024 * 1024
_MEMORY_BYTES = 2**30
"""Memory limit of a decoder apart from rows; see also `_BYTES_PER_COLUMN` in the child."""
_BYTES_PER_RECORD_BYTE = 8
"""Maximum ratio of column bytes to record bytes: the integer 1 takes 8 bytes, 1 in a record."""


def decode_types(origin: FileIdentity, encoding: Encoding, limits: Limits) -> pa.Schema:
    """Return the schema of a file."""
    schema, batches = _decode(origin, encoding, limits, want="types")
    for _ in batches:
        pass
    return schema


def decode_batches(
    origin: FileIdentity,
    encoding: Encoding,
    limits: Limits,
    start: int,
    *,
    without_bytes: bool = False,
) -> Iterator[SourceBatch]:
    """Yield the rows of a file from number `start`.

    The rows are valid unless the decoder's memory is corrupt, so validate them again. With
    `without_bytes`, binary values are empty, which suffices for inference, and the file is not
    compared with the hashed bytes.
    """
    want: Want = "shapes" if without_bytes else "rows"
    return _decode(origin, encoding, limits, start=start, want=want)[1]


def get_max_row_bytes(limits: Limits) -> int:
    """Return the size limit of a row of columns in bytes."""
    return _BYTES_PER_RECORD_BYTE * limits.max_record_bytes


def _decode(
    origin: FileIdentity, encoding: Encoding, limits: Limits, *, start: int = 0, want: Want
) -> tuple[pa.Schema, Iterator[SourceBatch]]:
    """Return the schema of a file and an iterator of its rows."""
    path = _get_local_path(origin)
    request = {
        "format": encoding,
        "path": None if path is None else os.fsencode(path),
        "size": origin.size,
        "start": start,
        "want": want,
        "chunk": CHUNK_BYTES,
        "row": get_max_row_bytes(limits),
        "memory": _MEMORY_BYTES + 4 * limits.max_record_bytes,
    }
    session = _DecoderSession(origin, limits, marshal.dumps(request), is_compared=want == "rows")
    return session.schema(), session.batches()


def _get_local_path(origin: FileIdentity) -> Path | None:
    origin.open().close()  # A missing file is reported like that of any other source.
    file = origin.file
    if isinstance(file, StoredFile):
        local = file.store.local_path(file.name)
        return None if local is None else Path(local).absolute()
    return file.absolute()


class _DecoderSession:
    """File that a decoder reads."""

    def __init__(
        self, origin: FileIdentity, limits: Limits, request: bytes, *, is_compared: bool
    ) -> None:
        self._origin = origin
        self._limits = limits
        self._request = request
        self._is_compared = is_compared
        self._decoder, self._first = self._begin()

    def _begin(self) -> tuple[_Decoder, Message]:
        """Send the request to a decoder; retry with a new decoder if an idle one exited."""
        while True:
            decoder = _take_decoder()
            try:
                return decoder, self._ask(decoder, self._request)
            except (EOFError, OSError):
                if decoder.end() or decoder.is_fresh:
                    raise self._make_died_error(decoder) from None
            except BaseException:
                decoder.kill()
                decoder.end()
                raise

    def schema(self) -> pa.Schema:
        """Return the schema, which is the first reply."""
        try:
            self._raise_fault(self._first)
            return pa.ipc.read_schema(pa.py_buffer(self._first[1]))
        except BaseException:
            self._put_back()
            raise

    def batches(self) -> Iterator[SourceBatch]:
        """Yield the rows; kill the decoder if the caller stops early."""
        done = False
        try:
            while True:
                try:
                    message = self._ask(self._decoder)
                except (EOFError, OSError):
                    self._decoder.end()
                    raise self._make_died_error(self._decoder) from None
                if bytes(message[0]) != b"batch":
                    done = True
                    self._raise_fault(message)
                    if self._is_compared:
                        self._compare()
                    return
                yield self._batch(message)
        finally:
            if done:
                self._put_back()
            else:
                self._decoder.kill()
                self._decoder.end()

    def _batch(self, message: Message) -> SourceBatch:
        first, position = POSITION.unpack(message[1])
        with pa.ipc.open_stream(pa.py_buffer(message[2])) as reader:
            rows = reader.read_next_batch()
        return SourceBatch(rows, first, position)

    def _compare(self) -> None:
        """Raise SourceError if the file differs from the hashed file.

        A decoder opens a local file itself. Therefore the whole file is compared after decoding,
        from the page cache.
        """
        file = self._origin.open()
        try:
            if isinstance(file, VerifiedFile):
                block = memoryview(bytearray(_COMPARED_BYTES))
                while file.readinto(block):
                    pass
        finally:
            file.close()

    def _ask(self, decoder: _Decoder, request: bytes | None = None) -> Message:
        message = decoder.receive() if request is None else decoder.ask(request)
        while bytes(message[0]) == b"read":
            offset, size = POSITION.unpack(message[1])
            message = decoder.ask(self._read(offset, size))
        return message

    def _read(self, offset: int, size: int) -> bytes:
        file = self._origin.open()
        try:
            return bytes(file.pread(size, offset))
        finally:
            file.close()

    def _put_back(self) -> None:
        _return_decoder(self._decoder)

    def _raise_fault(self, message: Message) -> None:
        if bytes(message[0]) == b"fault":
            fault = DecoderFault.unpack([bytes(part) for part in message[1:]])
            raise _make_decoder_error(self._origin.label, fault, self._limits)

    def _make_died_error(self, decoder: _Decoder) -> SourceError:
        return SourceError(
            f"{self._origin.label}: decoder ended with {decoder.ending}",
            code="decoder-died",
            hint=GET_AGAIN_HINT,
            path=self._origin.path,
        )


def _make_decoder_error(label: str, fault: DecoderFault, limits: Limits) -> SourceError:
    """Return the error for a fault that a decoder reported."""
    if fault.code == "unsupported-source":
        return SourceError(
            f"{label}: unsupported Feather version 1",
            code="unsupported-source",
            hint=Hint.of("write the file as Feather version 2"),
        )
    if fault.code == "record-too-large":
        where = f"part {fault.part}" if fault.row is None else f"row {fault.row}"
        size = "more memory than allowed" if fault.size is None else f"{fault.size} bytes"
        return SourceError(
            f"{label}, {where}: row too large ({size}, limit {get_max_row_bytes(limits)})",
            code="record-too-large",
            hint=TOO_LARGE_HINT,
            record=fault.row,
        )
    if fault.code == "corrupt-columns":
        return make_corrupt_columns_error(label, fault.column, fault.detail, part=fault.part)
    where = "" if fault.part is None else f" (part {fault.part})"
    return SourceError(
        f"{label}: cannot read{where}: {fault.detail}",
        code=fault.code,
        hint=GET_AGAIN_HINT,
    )


class _Decoder(ChildProcess):
    """Decoder process."""

    def __init__(self) -> None:
        self.is_fresh = True
        package = str(Path(__file__).parents[1])
        super().__init__(
            lambda pipes: ["-S", "-c", _PROGRAM, "fast", package, *pipes, *sys.path],
            stderr=subprocess.DEVNULL,
            environment=_ENVIRONMENT,
            allocate=pa.allocate_buffer,
        )

    def end(self) -> int:
        """Wait for the process to exit, and forget it."""
        status = super().end()
        with _lock:
            _alive.discard(self)
        return status


_lock = Lock()
_alive: set[_Decoder] = set()
_idle: list[_Decoder] = []


def _take_decoder() -> _Decoder:
    """Return an idle decoder, or a new one."""
    while True:
        with _lock:
            decoder = _idle.pop() if _idle else None
        if decoder is None:
            decoder = _Decoder()
            with _lock:
                _alive.add(decoder)
            return decoder
        decoder.is_fresh = False
        if not decoder.has_ended:
            return decoder
        decoder.end()


def _return_decoder(decoder: _Decoder) -> None:
    with _lock:
        if len(_idle) < (os.cpu_count() or 1):
            _idle.append(decoder)
            return
    decoder.end()


def close_idle_decoders() -> None:
    """End all idle decoders."""
    with _lock:
        idle, _idle[:] = list(_idle), []
    for decoder in idle:
        decoder.hang_up()
    for decoder in idle:
        decoder.end()


def _forget_decoders() -> None:
    """Drop the decoders of the parent process after a fork."""
    global _lock  # noqa: PLW0603 - another thread may have held it
    _lock = Lock()
    for decoder in list(_alive):
        decoder.close_pipes()
    _alive.clear()
    _idle.clear()


atexit.register(close_idle_decoders)
os.register_at_fork(after_in_child=_forget_decoders)


PARQUET_MAGIC = b"PAR1"


class FileColumnReader:
    """Columns of a Parquet file, or of an Arrow IPC file or stream."""

    def __init__(self, origin: FileIdentity, encoding: Encoding, limits: Limits) -> None:
        self._origin = origin
        self._encoding = encoding
        self._limits = limits

    def types(self) -> pa.Schema:
        """Return the type of each column."""
        return decode_types(self._origin, self._encoding, self._limits)

    def batches(self, start: int, schema: Schema | None = None) -> Iterator[SourceBatch]:
        """Yield the rows from number `start`; without a schema, bytes are left out.

        Validate the rows before reading a value.
        """
        return decode_batches(
            self._origin, self._encoding, self._limits, start, without_bytes=schema is None
        )
