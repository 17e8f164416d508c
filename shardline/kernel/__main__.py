"""Print which kernel is in use: `python -m shardline.kernel`."""

import sys

from shardline import kernel


def describe_kernel() -> str:
    """Return the kernel in use and, for the plain-Python kernel, how to get the compiled one."""
    slow = "kernel: plain Python, which is much slower"
    try:
        from shardline.kernel.compiled import crc_source  # noqa: PLC0415 - it may be missing
    except ModuleNotFoundError:
        return f"{slow}. Install a C compiler and the Python headers, then shardline again."
    except ImportError:
        return f"{slow}: the compiled kernel is outdated. Install shardline again."
    if kernel.NAME == "compiled":
        return f"kernel: compiled (crc32c: {crc_source()})"
    return f"{slow}. SHARDLINE_KERNEL selects it."


if __name__ == "__main__":
    sys.stdout.write(f"{describe_kernel()}\n")
