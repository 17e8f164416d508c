"""Pure functions over record bytes, in two implementations with the same results.

The compiled kernel is used where it was built, the plain-Python kernel elsewhere. Set the
environment variable SHARDLINE_KERNEL to `compiled` or `reference` to require one of them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shardline.errors import KernelUnavailableError
from shardline.hints import Hint

if TYPE_CHECKING:
    from shardline.kernel import reference as kernel
else:
    _asked = os.environ.get("SHARDLINE_KERNEL", "")
    if _asked not in {"", "compiled", "reference"}:
        raise KernelUnavailableError(
            f"unknown kernel {_asked!r} in SHARDLINE_KERNEL",
            code="unknown-kernel",
            hint=Hint.of("set it to 'compiled' or 'reference', or unset it"),
        )
    try:
        if _asked == "reference":
            from shardline.kernel import reference as kernel
        else:
            from shardline.kernel import compiled as kernel
    except ImportError as _error:
        if _asked == "compiled":
            raise KernelUnavailableError(
                "compiled kernel not built",
                hint=Hint.of(
                    "install a C compiler and the Python headers, then install shardline again"
                ),
            ) from _error
        from shardline.kernel import reference as kernel

NAME: str = kernel.NAME
crc32c = kernel.crc32c
crc32c_combine = kernel.crc32c_combine
decode = kernel.decode
encode = kernel.encode
facts = kernel.facts
find_end = kernel.find_end
find_next = kernel.find_next
frame = kernel.frame
insides = kernel.insides
join = kernel.join
scan = kernel.scan
validate = kernel.validate

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
