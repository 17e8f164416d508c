"""Print which kernel is in use: `python -m shardline.kernel`."""

import sys

from shardline import kernel

if kernel.NAME == "compiled":
    from shardline.kernel.compiled import crc_source

    sys.stdout.write(f"kernel: compiled (crc32c: {crc_source()})\n")
else:
    sys.stdout.write(
        "kernel: plain Python, which is much slower. For the compiled one, install a C compiler "
        "and the Python headers, then install shardline again.\n"
    )
