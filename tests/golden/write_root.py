"""Write the root of release 0.1.0: `python -m tests.golden.write_root FOLDER`.

The story uses the commands as people do, and the Python API where there is no command. Golden data
is never rewritten (see README.md): this script describes how it was made, and shows what a later
release has to write when it adds a folder of its own.

FOLDER gets `landing` (the sources), `root` (the datasets), `people-proof.json` (the proof of an
erasure) and `expected.json` (what every snapshot holds).
"""

from __future__ import annotations

import base64
import json
import shlex
import sys
from contextlib import chdir, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from shardline import Checks, Version
from shardline.log.model import Attestation
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.example_file import write_examples
from shardline.operations.vacuum import vacuum
from shardline.storage.local_store import LocalStore
from shardline.tfrecord import write_records
from tests.cli.command import shardline
from tests.golden.environment import fixed_environment
from tests.golden.expected import OPERATIONS, operations_in, write_expected

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
KINDS = ("cat", "dog", "eel")
PETS = {
    "payload": "example",
    "doc": "pets, and an eel",
    "features": [
        {"name": "id", "kind": "int64"},
        {"name": "kind", "kind": "int64", "meaning": {"is": "category", "labels": KINDS}},
        {"name": "name", "kind": "bytes", "meaning": {"is": "text"}},
        {"name": "weight", "kind": "float", "required": False, "nan": True},
    ],
}


def run(command: str, *, code: int = 0) -> str:
    """Run a command as people write it, in the folder of the story."""
    result = shardline(*shlex.split(command), cwd=Path.cwd(), SHARDLINE_ROOT="root")
    if result.code != code:
        raise RuntimeError(f"{command}: exit code {result.code}\n{result.out}{result.err}")
    return result.out


def pets(first: int, count: int) -> list[dict[str, Any]]:
    """Return pets with the ids from `first` on."""
    rows = []
    for number in range(first, first + count):
        row = {"id": number, "kind": number % 3, "name": f"pet {number} ✓"}
        rows.append(row if number % 4 == 3 else {**row, "weight": number / 4})
    return rows


def table(first: int, count: int) -> pa.Table:
    """Return pets as an Arrow table."""
    return pa.Table.from_pylist(pets(first, count))


def json_lines(path: str, rows: list[dict[str, Any]]) -> None:
    """Write a source of JSON lines."""
    Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def flip(version: str, position: int) -> None:
    """Flip a bit in a shard of the latest snapshot, as a bad disk does."""
    opened = Version("root", version)
    path = Path("root", opened.shard_name(opened.latest().shards[position]))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def forget_folder(dataset: str) -> None:
    """Let quarantine files name shards relative to the folder of the story.

    Extend writes the whole path of a shard there, which is different on every machine.
    """
    for path in Path("root", dataset, "quarantine").glob("*.jsonl"):
        path.write_text(path.read_text().replace(f"{Path.cwd()}/", ""))


def append_every_format() -> None:
    """Append to pets/v1 from every kind of source."""
    Path("pets.json").write_text(json.dumps(PETS))
    json_lines("landing/monday.jsonl", pets(0, 4))
    run("append pets/v1 landing/monday.jsonl --schema pets.json")
    # The second row has no number as id: it goes to quarantine.
    Path("landing/tuesday.csv").write_text("id,kind,name,weight\n4,1,pet 4,1.0\nx,1,bad,\n5,2,o,\n")
    run("append pets/v1 landing/tuesday.csv --max-quarantined 50%")
    pyarrow.parquet.write_table(table(6, 2), "landing/wednesday.parquet")
    pyarrow.feather.write_feather(table(8, 2), "landing/thursday.arrow", compression="uncompressed")
    run("append pets/v1 landing/wednesday.parquet landing/thursday.arrow --compression gzip")
    write_examples(Path("landing/friday.tfrecord"), table(10, 2).to_pydict())
    write_examples(
        Path("landing/saturday.tfrecord.gz"), table(12, 2).to_pydict(), compression="gzip"
    )
    run("append pets/v1 landing/friday.tfrecord landing/saturday.tfrecord.gz")
    # Rows in memory are known by the name of their batch.
    version = Version("root", "pets/v1", run="run-7", code="3f2a91c")
    append(version, pets(14, 2), batch="sunday rows")
    append(version, table(16, 2), batch="sunday table", compression="gzip")
    check_version(version)


def reject_and_append_again() -> None:
    """Reject sources and snapshots of pets/v1, and append some of them once more."""
    # A file that was cut off cannot be appended. Its neighbor is, and later what is intact of it.
    write_examples(Path("landing/torn.tfrecord"), table(18, 4).to_pydict())
    torn = Path("landing/torn.tfrecord")
    torn.write_bytes(torn.read_bytes()[:-9])
    json_lines("landing/whole.jsonl", pets(22, 1))
    run("append pets/v1 landing/torn.tfrecord landing/whole.jsonl --skip-invalid", code=1)
    run("append pets/v1 landing/torn.tfrecord --salvage --retry-rejected")
    # A shard is damaged before its first check: the check rejects the snapshot.
    json_lines("landing/spoiled.jsonl", pets(23, 2))
    run("append pets/v1 landing/spoiled.jsonl --no-check")
    flip("pets/v1", -1)
    run("check pets/v1", code=1)
    # Publishing needs a check of the whole snapshot for a while. It fails, by mistake.
    version = Version("root", "pets/v1")
    version.require(Checks(("integrity", "schema"), ("volume",)))
    json_lines("landing/few.jsonl", pets(25, 1))
    run("append pets/v1 landing/few.jsonl --no-check")
    version.refresh()
    content = version.latest().content
    failed = Attestation("volume", passed=False, content=content, detail="1 record is too few")
    version.reject(version.latest().number, [failed], reason="volume failed")
    run("append pets/v1 landing/few.jsonl --no-check --retry-rejected")
    version.refresh()
    volume = Attestation("volume", passed=True, content=version.latest().content)
    version.attest([volume])
    run("check pets/v1")
    version.refresh()
    version.require(Checks())
    version.log.write_checkpoint(version.state)


def name_snapshots() -> None:
    """Restore snapshots of pets/v1, and hold some by tags, pins and consumers."""
    run("tag pets/v1@1 first")
    run("tag pets/v1@2 best")
    run("tag pets/v1@3 best")
    run("tag pets/v1@1 gone")
    run("tag pets/v1 --delete gone")
    version = Version("root", "pets/v1")
    version.pin("training-12", 4, "the model in use")
    run("consumers pets/v1@3 --register pets-cnn --run 42 --commit 1f3c9d2")
    run("consumers pets/v1@2 --register pets-rnn")
    run("consumers pets/v1 --release pets-rnn")
    run("restore pets/v1@4")
    run("restore pets/v1@5")
    # The restore rolled back what came after snapshot 5: one of these sources comes in again.
    run("append pets/v1 landing/few.jsonl --retry-rejected")


def derive_pets() -> None:
    """Extend, migrate and rebuild pets/v1 into other versions; some of them twice, as it grows."""
    run("rebuild pets/v1")
    Path("landing/sounds.csv").write_text("kind,sound,legs\n0,meow,4\n1,woof,4\n")
    join = "extend pets/v1 --into v3 --join landing/sounds.csv --key kind --on-missing absent"
    rewrite = (
        "extend pets/v1 --into v4 --mode rewrite --udf tests.golden.fields:larger_id "
        "--udf tests.golden.fields:is_even --replace id --drop weight"
    )
    run("extend pets/v1 --into v2 --udf tests.golden.fields:length")
    run(join)
    run(rewrite)
    run(
        "migrate pets/v1 --into v5 --rename name=called --drop kind --cast id=float "
        "--default weight=0.5 --compression gzip"
    )
    # An overlay on an overlay, with one record in quarantine.
    run("extend pets/v2 --into v7 --udf tests.golden.fields:inverse --max-quarantined 50%")
    forget_folder("pets")
    # Both overlays folded in: whole records in new shards.
    run("rebuild pets/v7 --into v6 --target-size 1000")
    json_lines("landing/second-monday.jsonl", pets(26, 2))
    run("append pets/v1 landing/second-monday.jsonl")
    run(join)
    run(rewrite)


def append_other_records() -> None:
    """Append images, SequenceExamples and records that are no Examples."""
    for kind, number in (("cat", 0), ("dog", 1)):
        photo = Path(f"landing/photos/{kind}/{number}.png")
        photo.parent.mkdir(parents=True, exist_ok=True)
        photo.write_bytes(PNG)
    run("append photos/v1 landing/photos")
    walks = {"walker": ["ann", "bo"], "place": [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]]}
    write_examples(Path("landing/walks.tfrecord"), walks)
    run("append walks/v1 landing/walks.tfrecord")
    run("migrate walks/v1 --into v2 --rename walker=person")
    write_records(Path("landing/blobs.tfrecord"), [b"\xff\x00 no Example", b"", b"\x80blob"])
    Path("blobs.json").write_text('{"payload": "opaque", "features": []}')
    run("append blobs/v1 landing/blobs.tfrecord --schema blobs.json")


def combine_pairs() -> None:
    """Pair the records of two versions: written, and virtual."""
    run("combine pets/v1@1 photos/v1 --into pairs/v1")
    run("combine pets/v1@2 photos/v1 --into pairs/v1")
    run("combine pets/v1@1 photos/v1 --into pairs/v2 --mode virtual")
    run("combine pets/v1@2 photos/v1 --into pairs/v2 --mode virtual")
    run(
        "combine photos/v1 photos/v1 --into pairs/v3 --mode virtual --unordered "
        "--on-collision prefix --left-prefix a_ --right-prefix b_"
    )
    run(
        "combine pets/v1@2 pets/v3@1 --into pairs/v4 --on id --how left "
        "--on-collision prefix --right-prefix r_ --where tests.golden.fields:wanted"
    )
    run("combine pets/v1@2 photos/v1 --into pairs/v5 --sample 5 --seed 7")
    version = Version("root", "pairs/v2")
    version.log.write_checkpoint(version.state)


def repair_notes() -> None:
    """Repair damaged shards of notes in each way that there is."""
    notes = [{"id": number, "text": f"note {number}"} for number in range(8)]
    json_lines("landing/notes-0.jsonl", notes[:2])
    json_lines("landing/notes-1.jsonl", notes[2:4])
    run("append notes/v1 landing/notes-0.jsonl landing/notes-1.jsonl")
    flip("notes/v1", 0)
    run("repair notes/v1")
    # Rebuilt from shards that are there.
    run("rebuild notes/v1")
    flip("notes/v1", 0)
    run("repair notes/v1")
    # Rows in memory are gone: what was rebuilt from them has a copy.
    version = Version("root", "notes/v2")
    append(version, notes[4:6], batch="four and five")
    check_version(version)
    run("rebuild notes/v2 --into v3")
    flip("notes/v2", 0)
    run("repair notes/v2")
    # There is no copy: one record is lost.
    version = Version("root", "notes/v4")
    append(version, notes[6:], batch="six and seven")
    check_version(version)
    flip("notes/v4", 0)
    run("repair notes/v4", code=1)
    run("repair notes/v4 --allow-data-loss", code=1)


def erase_people() -> None:
    """Erase two people from every version, delete their files, and prove it."""
    people = [{"id": number, "name": f"person {number}"} for number in range(5)]
    json_lines("landing/people.jsonl", [*people[:3], {"id": 1, "name": 5}])
    features = [{"name": "id", "kind": "int64"}, {"name": "name", "kind": "bytes"}]
    Path("people.json").write_text(json.dumps({"payload": "example", "features": features}))
    run("append people/v1 landing/people.jsonl --schema people.json --max-quarantined 50%")
    append(Version("root", "people/v1"), people[3:], batch="visitors")
    run("check people/v1")
    run("extend people/v1 --into v2 --udf tests.golden.fields:length")
    run("migrate people/v1 --into v3 --rename name=called")
    run("erase people --key id --value 1 --value 4 --request 'ticket 81' --yes", code=1)
    for name in ("people/v1", "people/v2", "people/v3"):
        run(f"check {name}")
    Path("landing/people.jsonl").unlink()
    run("vacuum people --delete --retention 0")
    run("erase people --proof people-proof.json --key id --value 1 --value 4")
    proof = json.loads(Path("people-proof.json").read_text())
    Path("people-proof.json").write_text(json.dumps({**proof, "root": "root"}, indent=2) + "\n")
    # A request of another dataset, whose files vacuum has not deleted yet.
    version = Version("root", "guests/v1")
    append(version, [{"id": 0, "name": "a"}, {"id": 1, "name": "b"}], batch="guests")
    check_version(version)
    run("""erase guests --where 'name == "b"' --yes --no-check""")


def vacuum_some() -> None:
    """Delete what nothing needs; the vacuum of notes announces files and is stopped."""
    run("vacuum pets --delete --retention 0")

    with (
        patch.object(LocalStore, "delete", side_effect=KeyboardInterrupt),
        suppress(KeyboardInterrupt),
    ):
        vacuum("root", "notes", retention=timedelta(0), dry_run=False)


def delete_indexes() -> None:
    """Delete most indexes: they are derived, and their number would only be a burden."""
    for index in Path("root").glob("*/shards/*.index"):
        if index.parts[1] != "photos":
            index.unlink()


def main(folder: Path) -> None:
    """Write everything below a folder that does not exist yet."""
    folder.mkdir(parents=True)
    with chdir(folder), fixed_environment(Path()):
        Path("landing").mkdir()
        append_every_format()
        reject_and_append_again()
        name_snapshots()
        derive_pets()
        append_other_records()
        combine_pairs()
        repair_notes()
        erase_people()
        vacuum_some()
        delete_indexes()
        missing = OPERATIONS - operations_in(Path("root"))
        if missing:
            raise RuntimeError(f"no entry of {sorted(missing)}")
        write_expected(Path("root"), Path("expected.json"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
