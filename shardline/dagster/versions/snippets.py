"""How to read a snapshot, as code that works when it is pasted."""

import json
import re
import shlex
from itertools import chain
from typing import TYPE_CHECKING

from shardline.errors import ShardlineError
from shardline.schema.spec_text import parse_text, spec_text

if TYPE_CHECKING:
    from shardline import Snapshot

_FILES_SHOWN = 12
_LIST = "files.txt"


def read_it(snapshot: "Snapshot") -> str:
    """Markdown with the code: through Shardline, and by TensorFlow alone where it can."""
    parts = ["As a `tf.data.Dataset`, once its checks have passed:", fenced(_ours(snapshot))]
    try:
        plain = _plain(snapshot, snapshot.files())
    except ShardlineError as error:
        parts.append(f"Not by TensorFlow alone: {error.describe()}")
    else:
        parts += ["The same files by TensorFlow alone:", fenced(plain)] if plain else []
    return "\n\n".join(parts)


def command(snapshot: "Snapshot", *arguments: str) -> str:
    """A `shardline` command on the root of a snapshot, ready to paste."""
    return shlex.join(("shardline", *arguments, "--root", snapshot.store.uri))


def fenced(code: str, language: str = "python") -> str:
    """Code as a Markdown block that nothing in it can end."""
    ticks = max(chain((2,), (len(run) for run in re.findall("`+", code)))) + 1
    return f"{'`' * ticks}{language}\n{code}\n{'`' * ticks}"


def _ours(snapshot: "Snapshot") -> str:
    options = "parse=False" if snapshot.schema.payload == "opaque" else ""
    return (
        "import shardline\n\n"
        f"version = shardline.Version({snapshot.store.uri!r}, {snapshot.version!r})\n"
        f"dataset = version.snapshot({snapshot.number}).to_tf({options})"
    )


def _plain(snapshot: "Snapshot", paths: list[str]) -> str:
    """Code without Shardline; none for files that TensorFlow cannot reach."""
    if any("://" in path for path in paths):
        return ""
    compression = snapshot.compression
    packed = f", compression_type={compression!r}" if compression else ""
    if len(paths) <= _FILES_SHOWN:
        first = ["import tensorflow as tf\n"]
        listed = "".join(f"    {json.dumps(path, ensure_ascii=False)},\n" for path in paths)
        files = [f"files = [\n{listed}]"]
    else:
        first = ["from pathlib import Path\n", "import tensorflow as tf\n"]
        listing = command(snapshot, "files", str(snapshot))
        files = [
            f"# {len(paths)} files, listed by: {listing} > {_LIST}",
            f'files = Path("{_LIST}").read_text().splitlines()',
        ]
    parse = parse_text(snapshot.schema)
    mapped = [f"dataset = dataset.map({parse})"] if parse else []
    read = f"dataset = tf.data.TFRecordDataset(files{packed})"
    return "\n".join([*first, *files, spec_text(snapshot.schema) + read, *mapped])
