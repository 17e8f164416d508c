"""Erase finds a refused row however its source spells the values, or lists it as uncertain."""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shardline.api import Version
from shardline.lineage.audit.root_audit import audit
from shardline.log.changes import RewriteSidecars
from shardline.log.model import RECEIPT
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.erase import erase, execute_erase_plan, plan_erase
from shardline.operations.erasure.condition import KeyCondition, WhereCondition
from shardline.operations.erasure.erasure_proof import prove_erasure
from shardline.operations.erasure.quarantine import search_quarantine
from shardline.operations.extend import extend
from shardline.provenance.log_index import LogIndex
from shardline.schema.predicate import Predicate
from shardline.schema.schema import Feature, Schema, Text
from shardline.sidecars.receipt import parse_receipt
from shardline.storage import open_store
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.udf import batch_udf
from tests.operations.erasures import DyingStore, emptied, opened
from tests.sampling import drawn
from tests.storage.faulty import FaultyStore
from tests.tfrecord.samples import example_of, write_by_tensorflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from shardline.operations.erase import ErasePlan
    from shardline.operations.erasure.condition import Condition
    from shardline.tfrecord.reader import Limits
    from tests.storage.faulty import Result

SCHEMA = Schema(
    (
        Feature("id", "int64"),
        Feature("name", "bytes", meaning=Text()),
        Feature("score", "float", required=False),
    )
)
RELEASE_0_1_0 = Path(__file__).parents[1] / "golden/0.1.0/root"
HEADER = "id,name,score\n"
FINE = {"id": 1000, "name": "fine", "score": 0.5}


def land(folder: Path, source: object, limits: Limits = DEFAULT_LIMITS) -> Version:
    """Append a source of which a single row is fine."""
    version = Version(folder / "root", "digits/v1")
    batch = "rows" if isinstance(source, list) else None
    append(version, source, schema=SCHEMA, max_quarantined=0.99, batch=batch, limits=limits)
    return opened(version)


def file_with(folder: Path, kind: str, rows: bytes) -> Path:
    """A source file with a row that is fine and other bytes."""
    folder.mkdir(exist_ok=True)
    head = {"csv": f"{HEADER}1000,fine,0.5\n", "jsonl": json.dumps(FINE) + "\n"}[kind]
    path = folder / f"source.{kind}"
    path.write_bytes(head.encode() + rows)
    return path


def planned(folder: Path, **chosen: Any) -> ErasePlan:  # noqa: ANN401 - of plan_erase
    return plan_erase(folder / "root", "digits", **chosen)


def verdict(folder: Path, **chosen: Any) -> str:  # noqa: ANN401 - of plan_erase
    """What is told of the only line that is refused."""
    files = planned(folder, **chosen).quarantine
    if not files:
        return "other"
    (file,) = files
    assert len(file.matches) + len(file.uncertain) == 1
    return "meant" if file.matches else "uncertain"


def forget_formats(folder: Path) -> None:
    """Make the lines of quarantine files those of an older release."""
    for path in (folder / "root/digits/quarantine").iterdir():
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        for line in lines:
            del line["format"]
            line.pop("columns", None)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        Version(folder / "root", "digits/v1").commit(RewriteSidecars({path.name: digest}, {}))


SPELLED = {
    "jsonl": [
        (r'{"id": 1, "name": "Jos\u00e9", "score": "x"}', "name", "José"),
        (r'{"id": 2, "name": "\ud83d\ude00", "score": "x"}', "name", "😀"),
        (r'{"id": 3, "name": "a\"b\/c\\d", "score": "x"}', "name", 'a"b/c\\d'),
        (r'{"score": "x", "name" : "n", "id" :14.0}', "id", 14),
        ('{"id": 15e0, "name": "n", "score": "x"}', "id", 15),
        ('{"id": "016", "name": "n"}', "id", 16),
        ('{"id": " 17.0", "name": "n"}', "id", 17),
        ('{"id": true, "name": 7}', "id", 1),
        ('{"id": 4, "name": 77}', "name", "77"),
        ('{"id": 5, "name": 78.0}', "name", "78"),
        ('{"id": 6, "name": false}', "name", "false"),
    ],
    "csv": [
        ('1,"a ""b"" c",x', "name", 'a "b" c'),
        ('2,"a, b\nc",x', "name", "a, b\nc"),
        ('" 014 ",n,x', "id", 14),
        ("15.0,n,x", "id", 15),
        ("+16e0,n,x", "id", 16),
    ],
}
UNPARSABLE: dict[str, list[bytes]] = {
    "jsonl": [
        b'{"id": 5, "name": "n", "score": "x"',
        b'{"id": 5, "id": 6, "name": "n"}',
        b'{"Id": 5, "name": "n"}',
        b'{"id": 5, "name": "\xe9"}',
        b'{"id": [5], "name": "n"}',
        b'{"id": 5, "name": "' + b"n" * 60_000 + b'"}',
    ],
    "csv": [b"5,n,1,2", b"5,\xe9,1", b"five,n,1", b'5,"n,1'],
}
OTHERS = {
    "jsonl": [b'{"name": "n", "score": "x"}', b'{"id": 6, "name": "5", "score": "5"}'],
    "csv": [b",n,1", b"6,5,x"],
}


def looked_through(folder: Path, *conditions: Condition) -> tuple[int, int]:
    """How many lines are meant, and how many are uncertain."""
    history = LogIndex(folder / "root").dataset("digits")
    files = list(search_quarantine(history, conditions, {}, ()))
    return sum(len(f.matches) for f in files), sum(len(f.uncertain) for f in files)


@pytest.mark.parametrize("kind", SPELLED)
def test_look_through_finds_values_however_spelled(tmp_path: Path, kind: str) -> None:
    rows = "".join(f"{row}\n" for row, _, _ in SPELLED[kind])
    land(tmp_path, file_with(tmp_path, kind, rows.encode()))
    found = {key: looked_through(tmp_path, KeyCondition(key, ("77777",))) for key in ("id", "name")}
    # What a value means that is not of its feature's kind cannot be told for sure.
    unfit = {"jsonl": {"id": 2, "name": 4}, "csv": {"id": 0, "name": 0}}[kind]
    assert found == {key: (0, count) for key, count in unfit.items()}
    for row, key, value in SPELLED[kind]:
        shown = str(value).replace("\\", "\\\\")
        text = f"{key} == {shown}" if isinstance(value, int) else f"{key} == '{shown}'"
        where = WhereCondition(Predicate(text))
        expected = 2 if (kind, value) == ("jsonl", 1) else 1
        assert looked_through(tmp_path, KeyCondition(key, (str(value),)))[0] == expected, row
        assert looked_through(tmp_path, where)[0] == expected, row
    forget_formats(tmp_path)
    for row, key, value in SPELLED[kind]:
        assert sum(looked_through(tmp_path, KeyCondition(key, (str(value),)))) >= 1, row


@pytest.mark.parametrize("kind", UNPARSABLE)
def test_look_through_doubts_what_cannot_be_parsed(tmp_path: Path, kind: str) -> None:
    rows = b"".join(row + b"\n" for row in (*OTHERS[kind], *UNPARSABLE[kind]))
    limits = replace(DEFAULT_LIMITS, max_record_bytes=50_000)
    land(tmp_path, file_with(tmp_path, kind, rows), limits=limits)
    for condition in (KeyCondition("id", (5,)), WhereCondition(Predicate("id == 5"))):
        assert looked_through(tmp_path, condition) == (0, len(UNPARSABLE[kind]))
    forget_formats(tmp_path)
    assert sum(looked_through(tmp_path, KeyCondition("id", (5,)))) >= len(UNPARSABLE[kind])


def test_erase_searches_payloads_and_rows_in_memory(tmp_path: Path) -> None:
    fine = example_of(id=[1000], name=[b"fine"], score=[0.5])
    bad = example_of(id=[5], name=[b"Ann"], score=[b"x"])
    land(tmp_path, write_by_tensorflow(tmp_path / "a.tfrecord", [fine, bad]))
    assert verdict(tmp_path, key="id", values=[5]) == "meant"
    assert verdict(tmp_path, key="name", values=["Ann"]) == "meant"
    assert verdict(tmp_path, where="id == 6") == "other"
    odd = example_of(id=[b"5"], name=[b"Ann"])
    land(tmp_path / "odd", write_by_tensorflow(tmp_path / "odd.tfrecord", [fine, odd]))
    assert verdict(tmp_path / "odd", key="id", values=[5]) == "uncertain"
    rows = [FINE, {"id": 5, "name": PurePosixPath("ann"), "score": 1.0}]
    land(tmp_path / "rows", rows)
    assert verdict(tmp_path / "rows", key="name", values=[str(PurePosixPath("ann"))]) == "meant"
    assert verdict(tmp_path / "rows", key="id", values=[5]) == "meant"
    assert verdict(tmp_path / "rows", key="id", values=[6]) == "other"


def test_function_selects_refused_rows(tmp_path: Path) -> None:
    @batch_udf(Feature("meant", "int64"), reads=["name"], processes=False)
    def ann(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"meant": [int(name == "Ann") for name in batch["name"].to_pylist()]}

    rows = b'{"id": 5, "name": "\\u0041nn", "score": "x"}\n'
    land(tmp_path, file_with(tmp_path, "jsonl", rows))
    assert verdict(tmp_path, where=ann) == "meant"


def test_doubtful_lines_make_the_proof_incomplete_until_struck(tmp_path: Path) -> None:
    rows = b'{"id": 5, "name": "Ann"}\n{"id": 6, "name": "Bo"\n'
    source = file_with(tmp_path, "jsonl", rows)
    land(tmp_path, source)
    source.unlink()
    root = tmp_path / "root"
    report = erase(root, "digits", key="id", values=[5])
    assert [one.kind for one in report.open_copies] == ["quarantine"]
    assert not report.ok
    emptied(tmp_path)
    for plan in (None, planned(tmp_path, key="id", values=[5])):
        proof = prove_erasure(root, "digits", plan=plan)
        assert not proof.complete
        (left,) = proof.remaining
        assert (left.kind, left.certain) == ("quarantine", False)
        assert left.commands
    assert erase(root, "digits", key="id", values=[5], quarantine=True).lines == 1
    again = planned(tmp_path, key="id", values=[5])
    assert prove_erasure(root, "digits", plan=again).complete
    assert prove_erasure(root, "digits").complete


def test_strike_names_lines_by_content(tmp_path: Path) -> None:
    """Another erase between plan and strike moves the lines."""
    rows = [{"id": number, "name": {}} for number in range(5, 8)]
    source = file_with(tmp_path, "jsonl", "".join(json.dumps(r) + "\n" for r in rows).encode())
    land(tmp_path, source)
    source.unlink()
    plan = planned(tmp_path, key="id", values=[6])
    erase(tmp_path / "root", "digits", key="id", values=[5])
    assert execute_erase_plan(plan).lines == 1
    (path,) = (tmp_path / "root/digits/quarantine").iterdir()
    left = [json.loads(json.loads(line)["content"])["id"] for line in path.open()]
    assert left == [7]


def test_erase_clears_reasons_in_the_receipt(tmp_path: Path) -> None:
    version = land(tmp_path, file_with(tmp_path, "jsonl", b'{"id": 5, "name": {}}\n'))
    (shard,) = version.latest().shards
    name = version.shard_name(shard) + RECEIPT
    before = parse_receipt(version.store.read(name))
    assert before is not None
    assert before.reasons
    erase(tmp_path / "root", "digits", key="id", values=[5])
    after = parse_receipt(version.store.read(name))
    assert after is not None
    assert (after.reasons, after.quarantine, after.refused) == (
        (),
        before.quarantine,
        before.refused,
    )


def test_rows_refused_by_extend_of_another_dataset_are_asked(tmp_path: Path) -> None:
    @batch_udf(Feature("twice", "int64"), reads=["id"], code="1", processes=False)
    def twice(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"twice": [None if number == 5 else number for number in batch["id"].to_pylist()]}

    source = [FINE, {"id": 5, "name": "José"}, {"id": 6, "name": "Bo"}]
    version = Version(tmp_path / "root", "people/v1")
    append(version, source, schema=SCHEMA, batch="people")
    check_version(version)
    into = Version(tmp_path / "root", "digits/v1")
    extend(version, twice, into, mode="rewrite", max_quarantined=0.9)
    assert verdict(tmp_path, key="name", values=["José"]) == "meant"
    assert verdict(tmp_path, key="name", values=["Bo"]) == "other"


def kinds_of(plan: ErasePlan) -> list[tuple[str, bool]]:
    """The folders of uncommitted files that are listed, and whether they surely hold records."""
    listed = [one for one in plan.residual_copies if one.kind == "uncommitted"]
    return [(one.location.split("/")[-2], one.certain) for one in listed]


def test_shard_of_a_dead_append_is_found(tmp_path: Path) -> None:
    version = land(tmp_path, [FINE])
    root = tmp_path / "root"
    dying = Version(DyingStore(root), version.name)
    rows = [{"id": 5, "name": "José"}, {"id": 6, "name": "Bo"}, {"id": 7, "name": {}}]
    with pytest.raises(DyingStore.Died):
        append(dying, rows, max_quarantined=0.9, batch="more")
    # The receipt quotes reasons, and the name of the row that it refused cannot be read.
    found = kinds_of(planned(tmp_path, key="name", values=["José"]))
    assert found == [("quarantine", False), ("shards", True), ("shards", False)]
    found = kinds_of(planned(tmp_path, key="id", values=[7]))
    assert found == [("quarantine", True), ("shards", False)]
    report = erase(root, "digits", key="id", values=[1000])
    assert not report.ok
    proof = prove_erasure(root, "digits")
    assert {one.kind for one in proof.remaining} == {"uncommitted"}
    assert not proof.complete
    assert all(
        one.commands == (("vacuum", "digits", "--delete", "--retention", "0"),)
        for one in proof.remaining
    )
    emptied(tmp_path)
    assert prove_erasure(
        root, "digits", plan=planned(tmp_path, key="name", values=["José"])
    ).complete
    assert prove_erasure(root, "digits").complete


def test_leftovers_that_cannot_be_read_are_doubtful(tmp_path: Path) -> None:
    version = land(tmp_path, [FINE, {"id": 5, "name": "Ann"}])
    (shard,) = version.latest().shards
    folder = tmp_path / "root/digits"
    data = (folder / "shards" / shard.name).read_bytes()
    stem = "0" * 32
    (folder / f"shards/.v1.{stem}.tfrecord.0123456789ab.tmp").write_bytes(data[:-3])
    (folder / f"shards/v1.{stem}.tfrecord").write_bytes(data[:-3])
    (folder / f"shards/v9.{stem}.tfrecord").write_bytes(data)
    (folder / f"quarantine/v9.{stem}.jsonl").parent.mkdir(exist_ok=True)
    (folder / f"quarantine/v9.{stem}.jsonl").write_text("{}\n")
    (folder / "notes.txt").write_text("Ann")
    (folder / "shards/.probe-0123456789abcdef").write_bytes(b"x")
    found = kinds_of(planned(tmp_path, key="id", values=[1000]))
    assert sorted(found) == [
        ("digits", False),
        ("quarantine", False),
        ("shards", True),
        ("shards", True),
        ("shards", True),
    ]
    found = kinds_of(planned(tmp_path, key="id", values=[77]))
    assert sorted(found) == [("digits", False), ("quarantine", False)] + [("shards", False)] * 3


WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
PEOPLE = st.tuples(
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-9, 99)),
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=3, max_size=8),
)


@settings(max_examples=drawn(16), deadline=None, phases=WITHOUT_SHRINKING)
@given(
    st.lists(PEOPLE, min_size=3, max_size=3, unique_by=(lambda p: p[0], lambda p: p[1])),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_whatever_holds_an_erased_value_is_listed(
    tmp_path_factory: pytest.TempPathFactory,
    people: list[tuple[int, str]],
    ascii: bool,  # noqa: A002, FBT001 - of json.dumps
    broken: bool,  # noqa: FBT001 - drawn
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    sources = _sources(folder, people, ascii_only=ascii, broken=broken)
    version = Version(folder / "root", "digits/v1")
    append(version, [*sources], schema=SCHEMA, max_quarantined=0.99)
    died = data.draw(st.booleans())
    if died:
        rows = [{"id": number, "name": name} for number, name in people]
        with pytest.raises(DyingStore.Died):
            append(Version(DyingStore(folder / "root"), version.name), rows, batch="more")
    for source in sources:
        source.unlink()
    number, name = people[0]
    key: dict[str, Any] = data.draw(
        st.sampled_from([{"key": "id", "values": [number]}, {"key": "name", "values": [name]}])
    )
    erase(folder / "root", "digits", **key)
    if not died:
        emptied(folder)
    proof = prove_erasure(folder / "root", "digits", plan=planned(folder, **key))
    gone = {folder / "root" / file for file in proof.files}
    listed = {one.location for one in proof.remaining if one.is_open}
    for path in (folder / "root").rglob("*"):
        if path.is_file() and path not in gone and key["values"][0] in set(_values(path)):
            assert not proof.complete
            assert str(path) in listed
    if not broken and not died:
        assert proof.complete, proof.remaining


def _sources(
    folder: Path, people: list[tuple[int, str]], *, ascii_only: bool, broken: bool
) -> list[Path]:
    """The same people in three formats, each once in a row that fits and once in a bad one."""
    lines = [json.dumps(FINE)]
    cells = [[1000, "fine", 0.5]]
    payloads = [example_of(id=[1000], name=[b"fine"], score=[0.5])]
    for number, name in people:
        for score in (0.5, "x"):
            row = {"id": number, "name": name, "score": score}
            lines.append(json.dumps(row, ensure_ascii=ascii_only))
            cells.append([number, name, score])
            wired = score if isinstance(score, float) else score.encode()
            payloads.append(example_of(id=[number], name=[name.encode()], score=[wired]))
    if broken:
        lines.append(lines[-1][:-1])
        cells.append([*cells[-1], "more"])
        payloads.append(payloads[-1] + b"\x0a")
    jsonl, table = folder / "a.jsonl", folder / "b.csv"
    jsonl.write_text("\n".join(lines) + "\n", newline="")
    with table.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["id", "name", "score"], *cells])
    return [jsonl, table, write_by_tensorflow(folder / "c.tfrecord", payloads)]


def _values(path: Path) -> Iterator[object]:
    """Every value in a file, read by libraries that are not ours."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if ".tfrecord" in path.name and path.suffix not in {".receipt", ".rows", ".index"}:
        for record in tf.data.TFRecordDataset(str(path)):
            yield from _features(record.numpy())
    elif path.suffix == ".jsonl":
        for line in data.splitlines():
            told = json.loads(line)
            yield from _leaves({k: v for k, v in told.items() if k not in {"row", "columns"}})
            if "content_base64" in told:
                content = base64.b64decode(told["content_base64"])
            else:
                content = told["content"].encode()
            yield from _contents(content)


def _contents(content: bytes) -> Iterator[object]:
    text = content.decode(errors="replace")
    yield text
    try:
        yield from _leaves(json.loads(text))
    except ValueError:
        for row in csv.reader(io.StringIO(text, newline="")):
            for cell in row:
                yield cell
                try:
                    yield int(cell)
                except ValueError:
                    continue
    yield from _features(content)


def _features(payload: bytes) -> Iterator[object]:
    try:
        features = tf.train.Example.FromString(payload).features.feature
    except Exception:  # noqa: BLE001 - whatever protobuf raises
        return
    for feature in features.values():
        yield from feature.int64_list.value
        yield from (value.decode(errors="replace") for value in feature.bytes_list.value)


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


class SteppedStore(FaultyStore):
    """Does something once, just before the request of a number; `requests` counts them."""

    def __init__(self, root: Path, number: int, act: Callable[[], object]) -> None:
        super().__init__(open_store(root))
        self.number, self.act, self.requests = number, act, 0

    def _ask(self, operation: str, request: Callable[[], Result]) -> Result:
        self.requests += 1
        if self.requests == self.number:
            self.act()
        return super()._ask(operation, request)


def die() -> None:
    raise DyingStore.Died


def refused_ids(folder: Path) -> list[int]:
    (path,) = (folder / "root/digits/quarantine").iterdir()
    return [json.loads(json.loads(line)["content"])["id"] for line in path.open()]


def land_refused(folder: Path) -> Path:
    """A root in which the rows 5 to 9 are refused."""
    rows = "".join(json.dumps({"id": number, "name": {}}) + "\n" for number in range(5, 10))
    source = file_with(folder, "jsonl", rows.encode())
    land(folder, source)
    source.unlink()
    return folder


def carried_out(
    folder: Path, number: int, act: Callable[[], object], dataset: str = "digits", key: int = 6
) -> int:
    """Erase a row, and do something before a request of that; returns how many it makes."""
    plan = plan_erase(folder / "root", dataset, key="id", values=[key])
    store = SteppedStore(folder / "root", number, act)
    versions = {
        name: replace(one, version=Version(store, one.name))
        for name, one in plan.history.versions.items()
    }
    index = LogIndex(store, *(one.version for one in versions.values()))
    execute_erase_plan(replace(plan, history=replace(plan.history, index=index, versions=versions)))
    return store.requests


def findings(folder: Path) -> list[str]:
    report = audit(LogIndex(folder / "root"), sources=False)
    return [one.kind for one in report.findings]


def stopped(template: Path, folder: Path, dataset: str, key: int) -> Iterator[Path]:
    """Yield copies of a root in which an erase died, at each of its requests."""
    number, died = 0, True
    while died:
        number += 1
        died = False
        copy = Path(shutil.copytree(template, folder / str(number)))
        try:
            carried_out(copy, number, die, dataset, key)
        except DyingStore.Died:
            died = True
            yield copy


def test_erases_of_one_quarantine_file_never_undo_each_other(tmp_path: Path) -> None:
    template = land_refused(tmp_path / "template")
    last = carried_out(Path(shutil.copytree(template, tmp_path / "alone")), 0, die)
    assert refused_ids(tmp_path / "alone") == [5, 7, 8, 9]
    for number in range(1, last + 1):
        folder = Path(shutil.copytree(template, tmp_path / str(number)))
        root = folder / "root"
        carried_out(folder, number, partial(erase, root, "digits", key="id", values=[8]))
        assert refused_ids(folder) == [5, 7, 9]
        assert findings(folder) == []


def test_stopped_strike_is_finished_by_any_erase(tmp_path: Path) -> None:
    stale = 0
    for folder in stopped(land_refused(tmp_path / "template"), tmp_path, "digits", 6):
        pending = "stale-sidecar" in findings(folder)
        stale += pending
        erase(folder / "root", "digits", key="id", values=[8])
        assert 8 not in refused_ids(folder)
        assert not pending or 6 not in refused_ids(folder)
        erase(folder / "root", "digits", key="id", values=[6])
        assert refused_ids(folder) == [5, 7, 9]
        assert findings(folder) == []
    assert stale


class DyingRewrite(FaultyStore):
    """Dies just before a file with this suffix is replaced."""

    def __init__(self, root: Path, suffix: str) -> None:
        super().__init__(open_store(root))
        self.suffix = suffix

    def replace(self, name: str, data: bytes) -> None:
        if name.endswith(self.suffix):
            raise DyingStore.Died
        super().replace(name, data)


@pytest.mark.parametrize("suffix", [".receipt", ".jsonl"])
def test_stopped_strike_of_an_early_release_is_finished(tmp_path: Path, suffix: str) -> None:
    """Its log has no digests of sidecars before the first strike."""
    root = Path(shutil.copytree(RELEASE_0_1_0, tmp_path / "root"))
    with pytest.raises(DyingStore.Died):
        erase(DyingRewrite(root, suffix), "pets", where="id == 0")
    kinds = {one.kind for one in audit(LogIndex(root), ["pets/v7"], sources=False).findings}
    assert "stale-sidecar" in kinds
    assert "changed-sidecar" not in kinds
    assert erase(root, "pets", where="id == 0").lines == 1
    kinds = {one.kind for one in audit(LogIndex(root), ["pets/v7"], sources=False).findings}
    assert not kinds & {"stale-sidecar", "changed-sidecar"}
