"""Kernel in plain Python: the specification of how Shardline handles record bytes.

A TFRecord file is a sequence of frames:

    uint64 length (little endian) | masked crc32c of those 8 bytes | data | masked crc32c of data

The data is usually a serialized Example or SequenceExample, but may be any bytes.

| task                            | specified in        | compiled twin |
|---------------------------------|---------------------|---------------|
| frames, checksums, corruption   | reference_frames.py | _frames.pyx   |
| wire format                     | reference_wire.py   | _wire.pyx     |
| validation, facts               | reference_facts.py  | _facts.pyx    |
| decoding features into columns  | reference_decode.py | _decode.pyx   |
| encoding columns into records   | reference_encode.py | _encode.pyx   |
| splitting records               | reference_splice.py | _splice.pyx   |
| joining records                 | reference_splice.py | _join.pyx     |

The twins have the same functions with the same results and errors.
"""

from shardline.kernel.reference_decode import decode
from shardline.kernel.reference_encode import encode
from shardline.kernel.reference_facts import facts, validate
from shardline.kernel.reference_frames import (
    crc32c,
    crc32c_combine,
    find_end,
    find_next,
    frame,
    scan,
)
from shardline.kernel.reference_splice import insides, join

NAME = "reference"

__all__ = [
    "NAME",
    "crc32c",
    "crc32c_combine",
    "decode",
    "encode",
    "facts",
    "find_end",
    "find_next",
    "frame",
    "insides",
    "join",
    "scan",
    "validate",
]
