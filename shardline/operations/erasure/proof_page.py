"""The proof of an erasure as a document for people, in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.provenance.retainers import get_plain_command, get_vacuum_command
from shardline.release import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from shardline.operations.erasure.erasure_proof import ErasedShard, ErasureEntry, ErasureProof
    from shardline.provenance.retainers import Command


_KINDS = {
    "descendant": "a version that was made of them",
    "origin": "a version that they were made of",
    "shared": "a version that they were made of, and others too",
    "virtual": "a version whose pairs are made when it is read",
    "quarantine": "a quarantine file",
    "uncommitted": "a file that was never committed",
    "source": "a source file",
    "found": "a version",
    "unsearched": "not searched",
}
"""What holds records, where a word of ours does not tell it to strangers."""


def get_title(dataset: str) -> str:
    """The first line of a proof, by which it is known."""
    return f"# Erasure in {dataset}"


def render_proof_page(proof: ErasureProof, command: Command = get_plain_command) -> str:
    """The whole document; `command` words the commands in it."""
    return "\n".join(_iter_lines(proof, command)) + "\n"


def _iter_lines(proof: ErasureProof, command: Command) -> Iterator[str]:
    yield get_title(proof.dataset)
    yield ""
    yield (
        f"Made on {_format_time(proof.time)} by Shardline {__version__}, of the dataset "
        f"`{_format_code(proof.dataset)}` in `{_format_code(proof.root)}`."
    )
    yield ""
    yield f"**{_format_verdict(proof, command)}**"
    yield ""
    yield "## What was erased"
    yield ""
    yield from _format_table(
        ("version", "log entry", "time (UTC)", "request", "records", "chosen by", "entry's digest"),
        [_format_entry_row(one) for one in proof.entries],
    )
    yield ""
    yield (
        "Records are counted in the snapshot that was the newest of its version. The log holds no "
        "value by which they were chosen. Each digest is that of an entry in a chain of digests, "
        f"which `shardline verify {_format_code(proof.dataset)}/VERSION` works out again."
    )
    yield ""
    yield "## Which snapshots held them, and cannot be restored"
    yield ""
    yield from _format_table(
        ("version", "snapshots"),
        [(one.version, _format_numbers(one.snapshots)) for one in proof.entries],
    )
    yield ""
    yield "## Which shards held them"
    yield ""
    yield (
        "A shard is a file of records; an index of offsets, which holds no records, may lie beside "
        "it. Both are looked for."
    )
    yield ""
    yield from _format_table(
        ("shard", "records", "bytes", "sha256", "deleted by vacuum (UTC)", "looked for now"),
        [_format_shard_row(gone) for one in proof.entries for gone in one.shards],
    )
    yield ""
    yield "## What still holds them"
    yield ""
    yield from _iter_remaining(proof, command)
    yield ""
    yield "## What this does not prove"
    yield ""
    yield (
        "Copies that were made beyond this root are not known here: exported files, backups, older "
        "versions of objects that a store keeps, what readers took with them, and models that were "
        "trained on the records."
    )
    if not proof.searched:
        yield (
            "The files that are left were not searched once more, since it was not told for what: "
            "give the same --where, or --key and --values, together with --proof."
        )


def _format_verdict(proof: ErasureProof, command: Command) -> str:
    if not proof.entries:
        return "Nothing was erased from this dataset, or not under this request."
    left = len(proof.shards)
    if left:
        shards = (
            "1 shard with erased records is"
            if left == 1
            else f"{left:,} shards with erased records are"
        )
        vacuum = command(*get_vacuum_command(proof.dataset))
        return (
            f"Not complete: {shards} still there. `{_format_code(vacuum)}` deletes what "
            "nobody holds, and "
            "tells who holds the rest."
        )
    if proof.files:
        return "Not complete: the shards are gone, and files beside them are still there: vacuum."
    if proof.holders:
        return (
            "Not complete: the files of this dataset are gone; what is listed below still holds "
            "some of the records."
        )
    searched = ", and a search of every file that is left found none of them" * proof.searched
    if not proof.complete:
        return (
            f"Not complete: every file that is known to have held the records is gone{searched}; "
            "what is listed below may hold some, and was not searched."
        )
    look = "; look into what is listed below, which may tell of them" * bool(proof.remaining)
    return f"Complete: every file that held the records is gone{searched}{look}."


def _format_entry_row(one: ErasureEntry) -> tuple[str, ...]:
    entry = one.entry
    return (
        one.version,
        str(entry.number),
        _format_time(entry.time),
        one.request or "-",
        f"{one.records:,}",
        ", ".join(one.parameters.features) or "-",
        f"`{entry.digest}`",
    )


def _format_shard_row(gone: ErasedShard) -> tuple[str, ...]:
    shard = gone.shard
    deleted = "not yet" if gone.vacuumed_at is None else _format_time(gone.vacuumed_at)
    if gone.vacuumed is not None:
        deleted += f", entry {gone.vacuumed}"
    return (
        f"`{shard.name}`",
        f"{shard.records:,}",
        f"{shard.bytes:,}",
        f"`{shard.sha256}`",
        deleted,
        "**still there**" if gone.files else "gone",
    )


def _iter_remaining(proof: ErasureProof, command: Command) -> Iterator[str]:
    """Who holds them, and below that what to do: each advice once."""
    if not proof.remaining:
        yield "Nothing that is known here."
        return
    advised: dict[str, dict[tuple[str, ...], None]] = {}
    for one in proof.remaining:
        advised.setdefault(one.advice, {}).update(dict.fromkeys(one.commands))
    numbers = {advice: str(number) for number, advice in enumerate(advised, 1)}
    yield from _format_table(
        ("holds them", "what it is", "where", "how that is known", "what to do"),
        [
            (
                "yes" if one.certain else "maybe",
                _KINDS.get(one.kind, f"a {one.kind}"),
                f"`{_format_code(one.where)}`",
                one.what,
                f"see {numbers[one.advice]}",
            )
            for one in proof.remaining
        ],
    )
    yield ""
    for advice, commands in advised.items():
        yield f"{numbers[advice]}. {advice[:1].upper()}{advice[1:]}."
        yield from (f"   - `{_format_code(command(*one))}`" for one in commands)


def _format_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def _format_numbers(numbers: Sequence[int]) -> str:
    """`1-4, 6`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans) or "none"


def _format_time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"


def _format_code(text: str) -> str:
    return text.replace("`", "'")
