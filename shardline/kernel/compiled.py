"""Compiled kernel: the functions of `reference` at memory speed, without the GIL."""

from shardline.kernel._decode import decode
from shardline.kernel._encode import encode
from shardline.kernel._facts import facts, validate
from shardline.kernel._frames import (
    crc32c,
    crc32c_combine,
    crc_source,
    find_end,
    find_next,
    frame,
    scan,
)
from shardline.kernel._join import join
from shardline.kernel._splice import insides

NAME = "compiled"

__all__ = [
    "NAME",
    "crc32c",
    "crc32c_combine",
    "crc_source",
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
