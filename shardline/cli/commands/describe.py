"""`shardline describe`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.arguments import resolve_path
from shardline.cli.errors import UsageError
from shardline.cli.options import json_option, root_option
from shardline.cli.output import print_json
from shardline.cli.output_file import validate_output_file
from shardline.cli.progress import show_activity, show_count_progress
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
)
from shardline.text import escape_text, format_bytes

if TYPE_CHECKING:
    from shardline.lineage.exports.dataset_card import DatasetTerms
    from shardline.log.snapshot import StoredSnapshot
    from shardline.storage import Store


@click.command(
    epilog="""\b
Examples:
  shardline describe digits/v1                                  show a dataset card
  shardline describe digits/v1 --format card -o README.md       write it
  shardline describe digits/v1@7 --format sha256sums -o SHA256SUMS
  sha256sum -c SHA256SUMS                                       verify the files
  shardline describe digits/v1 --format croissant -o meta/      write croissant.json
  shardline describe digits/v1 --format croissant -o meta/ --no-copy

\b
card        Markdown with the header that Hugging Face reads: features, counts, checks, history,
            inputs and code to read it. Shows label counts, and no other values.
sha256sums  one line for each file that the snapshot needs, from the log. Names are relative to the
            folder of the output file, on the terminal to the root.
croissant   JSON-LD for catalogs and mlcroissant, with the sha256 of each file. -o names a folder,
            which also gets a Parquet copy of the records, since Croissant has no TFRecord.

"""
    + SNAPSHOT_HELP,
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.option(
    "form",
    "--format",
    type=click.Choice(["card", "sha256sums", "croissant"]),
    default="card",
    show_default=True,
    help="What to write.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Output file, or folder for croissant.  [default: the terminal]",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@click.option("--license", "terms", default="", metavar="ID|URL", help="License of the dataset.")
@click.option("--url", default="", help="URL of the dataset.")
@click.option("--creator", default="", metavar="NAME", help="Creator of the dataset.")
@click.option("--cite", default="", metavar="TEXT", help="Citation of the dataset.")
@click.option(
    "--no-count", is_flag=True, help="card: do not count labels, which reads the records."
)
@click.option("--no-copy", is_flag=True, help="croissant: do not write a Parquet copy.")
@root_option
@json_option
def describe(
    reference: str,
    *,
    form: str,
    output: Path | None,
    overwrite: bool,
    terms: str,
    url: str,
    creator: str,
    cite: str,
    no_count: bool,
    no_copy: bool,
    root: str | None,
    as_json: bool,
) -> None:
    """Write a dataset card, checksums or Croissant metadata of a snapshot.

    An existing file is kept unless --overwrite is given. With --json, the output is one JSON object
    about the written files. Without -o, it contains the text.
    """
    from shardline.lineage.exports.dataset_card import DatasetTerms

    target = parse_reference(reference)
    _validate_options(form, output, no_count=no_count, no_copy=no_copy, overwrite=overwrite)
    store = open_root(root)
    if output is not None and form != "croissant":
        validate_output_file(output, store, overwrite=overwrite)
    snapshot = find_snapshot(open_version(store, target), target)
    dataset_terms = DatasetTerms(terms, url, creator, cite)
    if form == "croissant":
        result = _write_croissant(
            snapshot, output, dataset_terms, copy=not no_copy, overwrite=overwrite
        )
    elif form == "card":
        card = _render_card(store, snapshot, dataset_terms, count=not no_count)
        result = _write_file(card, output, overwrite=overwrite)
    else:
        result = _write_file(_render_checksums(snapshot, output), output, overwrite=overwrite)
    if as_json:
        subject = {"version": snapshot.version, "snapshot": snapshot.number, "as": form}
        print_json({"ok": True, **subject, **result})
    elif "text" in result:
        click.echo(result["text"], nl=False)
    else:
        for file in result["files"]:
            size = format_bytes(Path(file).stat().st_size)
            click.echo(f"{escape_text(file)}: {form} of {snapshot}, {size}")


def _validate_options(
    form: str, output: Path | None, *, no_count: bool, no_copy: bool, overwrite: bool
) -> None:
    if no_count and form != "card":
        raise UsageError(
            "--no-count applies to --format card only",
            code="option-not-applicable",
            hint="leave it out",
        )
    if no_copy and form != "croissant":
        raise UsageError(
            "--no-copy applies to --format croissant only",
            code="option-not-applicable",
            hint="leave it out",
        )
    if overwrite and output is None:
        raise UsageError(
            "--overwrite requires -o",
            code="missing-option",
            hint="name the file with `-o`, or leave it out",
        )


def _write_croissant(
    snapshot: StoredSnapshot,
    output: Path | None,
    terms: DatasetTerms,
    *,
    copy: bool,
    overwrite: bool,
) -> dict[str, Any]:
    from shardline.lineage.exports.croissant import (
        CROISSANT_FILE,
        RECORDS_FILE,
        build_croissant,
        write_croissant,
    )

    if output is None and copy:
        raise UsageError(
            "no output folder given",
            code="missing-option",
            hint="pass `-o FOLDER` for croissant.json and its records, or `--no-copy` for the JSON",
        )
    if output is None:
        metadata = build_croissant(snapshot, None, terms=terms)
        return {"text": json.dumps(metadata, indent=2, ensure_ascii=False) + "\n"}
    if output.exists() and not output.is_dir():
        raise UsageError(
            f"{output} is a file", code="output-is-file", hint="name a folder", path=output
        )
    for name in (CROISSANT_FILE, *([RECORDS_FILE] if copy else [])):
        validate_output_file(output / name, snapshot.store, overwrite=overwrite)
    with show_count_progress("copying") as progress:
        file = write_croissant(
            snapshot, output, terms=terms, copy=copy, overwrite=overwrite, progress=progress
        )
    records = output / RECORDS_FILE
    return {"files": [str(file), *([str(records)] if copy and records.exists() else [])]}


def _render_card(
    store: Store, snapshot: StoredSnapshot, terms: DatasetTerms, *, count: bool
) -> str:
    from shardline.lineage.exports.dataset_card import count_labels, render_dataset_card
    from shardline.lineage.exports.snapshot_files import list_removed_files
    from shardline.provenance.log_index import LogIndex

    catalog = LogIndex(store)
    with show_activity("counting labels"):
        is_countable = count and not list_removed_files(catalog, snapshot)
        counts = count_labels(snapshot) if is_countable else ()
    return render_dataset_card(catalog, snapshot, terms=terms, counts=counts)


def _render_checksums(snapshot: StoredSnapshot, output: Path | None) -> str:
    from shardline.lineage.exports.snapshot_files import render_sha256sums

    return render_sha256sums(snapshot, None if output is None else resolve_path(output).parent)


def _write_file(text: str, output: Path | None, *, overwrite: bool) -> dict[str, Any]:
    from shardline.storage.durable_file import DurableFile

    if output is None:
        return {"text": text}
    with DurableFile(output, overwrite=overwrite) as file:
        file.write(text.encode())
    return {"files": [str(output)]}
