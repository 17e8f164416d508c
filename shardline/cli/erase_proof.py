"""Where `shardline erase --proof` may write, and the proof that it writes there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shardline.cli.erased import print_proof
from shardline.cli.errors import UsageError
from shardline.cli.json_told import tell_json
from shardline.cli.references import next_command
from shardline.cli.replacing import refuse_existing, refuse_in_root
from shardline.text import escaped

if TYPE_CHECKING:
    from typing import NoReturn, TextIO

    from shardline.operations.erase import ErasePlan
    from shardline.storage import Store

_LARGEST = 64 * 1024 * 1024
"""No proof is longer; what is need not be read to know that it is none."""


def refuse_place(
    file: Path | None, store: Store, dataset: str, values: TextIO | None, *, overwrite: bool
) -> None:
    """Refuse to write a proof in the root, or over anything but an earlier one of the dataset."""
    if file is None:
        if overwrite:
            raise UsageError(
                "--overwrite requires --proof",
                code="missing-option",
                hint="add `--proof FILE`, or leave it out",
            )
        return
    inside = store.local_path("x")
    refuse_in_root(file, None if inside is None else str(inside.parent))
    if values is not None and file.exists() and _is_file(values.name, file):
        raise UsageError(
            f"{file} is the list of values",
            code="output-is-input",
            hint="name another file for the proof",
            path=file,
        )
    refuse_existing(file, store, overwrite=overwrite or _is_proof(file, dataset))


def _is_file(name: str, file: Path) -> bool:
    return Path(name).exists() and file.samefile(name)


def _is_proof(file: Path, dataset: str) -> bool:
    """Whether a file is an earlier proof of the same dataset."""
    from shardline.operations.erasing.proof_page import title_of

    if file.is_symlink() or not file.is_file() or file.stat().st_size > _LARGEST:
        return False
    data = file.read_bytes()
    if data.startswith(f"{title_of(dataset)}\n".encode()):
        return True
    try:
        told = json.loads(data)
    except ValueError:
        return False
    known = isinstance(told, dict) and {"complete", "still_there", "remaining"} <= told.keys()
    return known and told.get("dataset") == dataset


def prove(
    store: Store,
    dataset: str,
    file: Path,
    plan: ErasePlan | None,
    request: str | None,
    *,
    as_json: bool,
) -> NoReturn:
    """Write what is proved, and end with whether that is all."""
    from shardline.operations.erasing.proof import prove_erasure
    from shardline.operations.erasing.proof_page import proof_page
    from shardline.storage.durable_file import DurableFile

    proof = prove_erasure(store, dataset, request=request, plan=plan)
    told = proof.to_json(next_command)
    as_data = file.suffix == ".json"
    page = json.dumps(told, indent=2) + "\n" if as_data else proof_page(proof, next_command)
    with DurableFile(file, overwrite=file.exists()) as written:
        written.write(page.encode())
    if as_json:
        tell_json({**told, "proof": str(file)})
    else:
        click.echo(f"wrote {escaped(str(file))}")
        print_proof(proof, request)
    raise SystemExit(0 if told["ok"] else 1)
