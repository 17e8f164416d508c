"""Pure functions over record bytes, in two implementations with the same results.

The compiled kernel is used where it was built, the plain-Python kernel elsewhere. Set the
environment variable SHARDLINE_KERNEL to `compiled` or `reference` to require one of them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shardline.errors import KernelUnavailableError
from shardline.hints import Hint

# ruff: noqa: F403 - both implementations list their names in `__all__`.
if TYPE_CHECKING:
    from shardline.kernel.reference import *
else:
    _required = os.environ.get("SHARDLINE_KERNEL", "")
    if _required not in {"", "compiled", "reference"}:
        raise KernelUnavailableError(
            f"unknown kernel {_required!r} in SHARDLINE_KERNEL",
            code="unknown-kernel",
            hint=Hint.of("set it to 'compiled' or 'reference', or unset it"),
        )
    try:
        if _required == "reference":
            from shardline.kernel.reference import *
        else:
            from shardline.kernel.compiled import *
    except ImportError as _error:
        if _required == "compiled":
            raise KernelUnavailableError(
                "compiled kernel not built",
                hint=Hint.of(
                    "install a C compiler and the Python headers, then install shardline again"
                ),
            ) from _error
        from shardline.kernel.reference import *
