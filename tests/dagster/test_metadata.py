"""What the UI shows of a materialization, as a real run records it."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from dagster import AssetKey

from shardline import Category, Embedding, Feature, Image, Schema, Text, Version
from shardline.dagster import metadata_keys as keys
from shardline.dagster.versions.materialization import StepReport, build_snapshot_metadata
from shardline.dagster.versions.metadata_values import (
    build_column_lineage,
    build_lineage_table,
    format_read_code,
)
from shardline.provenance.feature_origin import FeatureOrigin
from tests.cli.command import shardline as run_command
from tests.dagster.landings import NAME, appended, code_blocks, image_folder, read_back
from tests.kernel.frames import framed
from tests.readers.overlays import tagged
from tests.tfrecord.samples import made, sequence_of

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = {
    "dagster/row_count",
    "shardline/published_snapshot",
    "shardline/published_rows",
    "shardline/snapshot",
    "shardline/entry",
    "shardline/bytes",
    "shardline/shards",
    "shardline/added_rows",
    "shardline/added_bytes",
    "shardline/added_shards",
    "shardline/quarantined_rows",
    "shardline/rejected_sources",
    "shardline/duplicate_sources",
    "shardline/rows_per_second",
    "shardline/bytes_per_second",
}


def rows_file(path: Path, numbers: range) -> Path:
    path.write_text("".join(json.dumps({"x": number}) + "\n" for number in numbers))
    return path


def of_numbers(tmp_path: Path, count: int = 5, **options: Any) -> tuple[Version, StepReport]:  # noqa: ANN401
    version = Version(tmp_path / "root", NAME)
    done = appended(version, rows_file(tmp_path / "a.jsonl", range(count)), **options)
    assert version.check().ok
    return version, done


def text_of(value: object) -> str:
    assert isinstance(value, str)
    return value


def test_numbers_equal_those_of_the_cli(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", NAME)
    appended(version, image_folder(tmp_path / "monday"))
    done = appended(version, image_folder(tmp_path / "tuesday", each=2))
    told = read_back(build_snapshot_metadata(version, done))
    root = str(tmp_path / "root")
    (status,) = run_command("status", NAME, "--json", "--root", root).json["versions"]
    latest = status["latest"]
    assert told["dagster/row_count"].value == latest["records"] == 18
    assert told["shardline/bytes"].value == latest["bytes"]
    assert told["shardline/shards"].value == latest["shards"] == 2
    assert told["shardline/snapshot"].value == latest["snapshot"] == 2
    assert told["shardline/entry"].value == latest["entry"]
    assert told["shardline/content_digest"].value == latest["content"]
    entry = run_command("log", NAME, "--json", "--root", root).json["entries"][0]
    assert entry["number"] == latest["entry"]
    assert told["shardline/added_rows"].value == sum(one["records"] for one in entry["added"]) == 6
    assert told["shardline/added_bytes"].value == sum(one["bytes"] for one in entry["added"])
    assert told["shardline/added_shards"].value == len(entry["added"]) == 1
    assert told["shardline/rows_per_second"].value == 3.0
    assert (
        told["shardline/bytes_per_second"].value == sum(one["bytes"] for one in entry["added"]) / 2
    )
    assert told["dagster/uri"].value == f"{root}/{NAME}"
    assert told["dagster/storage_kind"].value == "tfrecord"


def test_numbers_are_complete_without_changes(tmp_path: Path) -> None:
    version, done = of_numbers(tmp_path)
    idle = build_snapshot_metadata(version, StepReport(done.snapshot))
    busy = build_snapshot_metadata(version, done)
    for metadata in (idle, busy):
        numbers = {key for key, value in metadata.items() if type(value) in {int, float}}
        assert numbers == NUMBERS
    assert {key: type(idle[key]) for key in NUMBERS} == {key: type(busy[key]) for key in NUMBERS}
    assert (idle["shardline/rows_per_second"], idle["shardline/added_rows"]) == (0.0, 0)
    counts = {"shardline/computed_shards": 0, "shardline/reused_shards": 1}
    follows = build_snapshot_metadata(version, replace(done, counts=counts))
    assert {key: follows[key] for key in follows.keys() - busy.keys()} == counts
    assert "shardline/recovered" not in idle
    assert (
        build_snapshot_metadata(version, StepReport(done.snapshot, is_recovered=True))[
            "shardline/recovered"
        ]
        is True
    )


def test_numpy_numbers_become_plain(tmp_path: Path) -> None:
    version, done = of_numbers(tmp_path)
    count: Any = np.int64(7)
    seconds: Any = np.float32(0.5)
    flag: Any = np.bool_(1)
    strange = replace(
        done, added_rows=count, rejected_sources=count, seconds=seconds, is_recovered=flag
    )
    told = read_back(build_snapshot_metadata(version, strange))
    assert [
        told[key].value for key in (keys.ADDED_ROWS, keys.REJECTED_SOURCES, keys.RECOVERED)
    ] == [7, 7, True]
    assert told["shardline/rows_per_second"].value == 14.0


def test_columns_have_type_meaning_and_presence(tmp_path: Path) -> None:
    schema = Schema(
        (
            Feature("id", "int64", doc="unique"),
            Feature("vector", "float", (8,), meaning=Embedding(), nan=True),
            Feature("pairs", "int64", (None, 2), required=False),
            Feature("class", "int64", meaning=Category(("cat", "dog"))),
            Feature("photo", "bytes", meaning=Image("png")),
            Feature("raw", "bytes"),
            Feature("token", "bytes", meaning=Text(), sequence=True),
        ),
        "sequence_example",
    )
    version = Version(tmp_path, NAME)
    version.create(schema)
    source = made(tmp_path / "empty.tfrecord", b"")
    good = made(tmp_path / "a.tfrecord", framed(_record()))
    done = appended(version, [source, good])
    columns = {
        column.name: column
        for column in read_back(build_snapshot_metadata(version, done))[
            "dagster/column_schema"
        ].value.columns
    }
    steps = "bytes per step, text"
    assert {name: column.type for name, column in columns.items()} == {
        "id": "int64",
        "vector": "float[8], embedding",
        "pairs": "int64[?, 2]",
        "class": "int64, category",
        "photo": "bytes, image",
        "raw": "bytes",
        "token": steps,
    }
    assert columns["id"].description == "unique (required)"
    assert columns["photo"].description == "png image, required"
    assert columns["pairs"].description == "optional"
    assert (columns["pairs"].constraints.nullable, columns["id"].constraints.nullable) == (
        True,
        False,
    )
    (other,) = columns["class"].constraints.other
    assert other.endswith("cat, dog")
    assert columns["vector"].constraints.other == ["NaN allowed"]


def _record() -> bytes:
    image = b"\x89PNG\r\n\x1a\n"
    context = {"id": 1, "vector": [0.5] * 8, "class": 1, "photo": image, "raw": b"x"}
    return sequence_of(context, token=[[b"a"], [b"b"]])


def test_rebuilt_version_has_upstream_and_lineage(
    tmp_path: Path,
) -> None:
    version, done = of_numbers(tmp_path)
    single = Version(tmp_path / "root", "digits/single")
    report = version.rebuild(into=single)
    assert report.entry is not None
    metadata = build_snapshot_metadata(single, StepReport(single.latest()))
    told = read_back(metadata)
    (parent,) = [record.data for record in told["shardline/upstream_snapshots"].value.records]
    (listed,) = report.entry.inputs
    assert parent == {
        "version": NAME,
        "snapshot": done.snapshot.number,
        "entry": done.snapshot.entry,
        "digest": listed.entry,
    }
    assert listed.entry == version.log.entry(done.snapshot.entry).digest
    lineage = told["dagster/column_lineage"].value
    assert {
        column: [(dep.asset_key, dep.column_name) for dep in deps]
        for column, deps in lineage.deps_by_column.items()
    } == {"x": [(AssetKey("digits_v1"), "x")]}
    (row,) = [record.data for record in told["shardline/upstream_columns"].value.records]
    assert row == {"column": "x", "upstream": "digits_v1: x"}
    assert "shardline/sources" not in told
    appended_too = build_snapshot_metadata(version, done)
    only_derived = {
        "shardline/upstream_snapshots",
        "dagster/column_lineage",
        "shardline/upstream_columns",
        "shardline/quarantine",
    }
    assert only_derived.isdisjoint(appended_too)


def test_upstream_without_log_has_no_entry(
    tmp_path: Path,
) -> None:
    version, _ = of_numbers(tmp_path)
    single = Version(tmp_path / "root", "digits/single")
    version.rebuild(into=single)
    for file in (tmp_path / "root" / NAME / "log").iterdir():
        file.unlink()
    told = read_back(build_snapshot_metadata(single, StepReport(single.latest())))
    (parent,) = [record.data for record in told["shardline/upstream_snapshots"].value.records]
    assert (parent["version"], parent["snapshot"], parent["entry"]) == (NAME, 1, None)


def test_source_table_is_truncated(tmp_path: Path) -> None:
    paths = [rows_file(tmp_path / f"{n:02}.jsonl", range(n, n + 2)) for n in range(23)]
    version = Version(tmp_path / "root", NAME)
    done = appended(version, paths)
    records = [
        record.data
        for record in read_back(build_snapshot_metadata(version, done))[
            "shardline/sources"
        ].value.records
    ]
    assert len(records) == 21
    sources = version.log.entry(done.snapshot.entry).sources
    assert records[0] == {
        "source": sources[0].path,
        "bytes": sources[0].size,
        "sha256": (sources[0].sha256 or "")[:12],
    }
    assert records[-1]["source"] == "and 3 more"
    assert records[-1]["bytes"] == sum(source.size or 0 for source in sources[20:])
    batch = appended(version, [{"x": 1}], batch="by hand")
    (row,) = build_snapshot_metadata(version, batch)["shardline/sources"].value.records  # type: ignore[union-attr]
    assert row.data == {"source": "batch by hand", "bytes": None, "sha256": None}


def test_rejection_lists_no_sources(
    tmp_path: Path,
) -> None:
    version, _ = of_numbers(tmp_path)
    appended(version, rows_file(tmp_path / "b.jsonl", range(3)))
    entry = version.reject(2)
    assert entry is not None
    assert len(entry.sources) == 1
    metadata = build_snapshot_metadata(version, StepReport(version.latest()))
    assert (metadata["shardline/snapshot"], metadata["dagster/row_count"]) == (3, 5)
    assert "shardline/sources" not in metadata


def test_quarantined_rows_are_counted_and_linked(tmp_path: Path) -> None:
    version, _ = of_numbers(tmp_path)
    for name in ("b", "c"):
        (tmp_path / f"{name}.jsonl").write_text('{"x": 8}\n{"x": "no number"}\n')
    done = appended(version, tmp_path / "b.jsonl", max_quarantined=0.5)
    told = read_back(build_snapshot_metadata(version, done))
    assert told["shardline/quarantined_rows"].value == 1
    path = text_of(told["shardline/quarantine"].value)
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - it is pasted as a text
        assert json.loads(file.readline())["row"] == 1
    several = replace(done, quarantine=(*done.quarantine, "digits/quarantine/other.jsonl"))
    listed = text_of(
        read_back(build_snapshot_metadata(version, several))["shardline/quarantine"].value
    )
    assert listed.splitlines()[0] == f"- `{path}`"
    assert len(listed.splitlines()) == 2


def run_pasted(code: str, folder: Path) -> list[Any]:
    """The records of the dataset that pasted code makes."""
    names: dict[str, Any] = {}
    with contextlib.chdir(folder):
        exec(code, names)  # noqa: S102 - it is meant to be pasted and run
        return list(names["dataset"].as_numpy_iterator())


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_read_code_reads_records(tmp_path: Path, compression: str) -> None:
    version, done = of_numbers(tmp_path, compression=compression)
    pasted = code_blocks(
        text_of(read_back(build_snapshot_metadata(version, done))["shardline/read_code"].value)
    )
    assert ["import shardline" in code for code in pasted] == [True, False]
    for code in pasted:
        assert run_pasted(code, tmp_path) == [{"x": number} for number in range(5)]


def test_read_code_reads_many_files(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", NAME)
    paths = [rows_file(tmp_path / f"{n:02}.jsonl", range(n, n + 1)) for n in range(13)]
    done = appended(version, paths)
    assert version.check().ok
    ours, plain = code_blocks(
        text_of(read_back(build_snapshot_metadata(version, done))["shardline/read_code"].value)
    )
    (line,) = [line for line in plain.splitlines() if "shardline files" in line]
    listing, into = line.split(": ", 1)[1].split(" > ")
    result = run_command(*shlex.split(listing)[1:])
    assert result.code == 0, result.err
    (tmp_path / into).write_text(result.out)
    assert run_pasted(plain, tmp_path) == run_pasted(ours, tmp_path)
    assert sorted(record["x"] for record in run_pasted(plain, tmp_path)) == list(range(13))


def test_read_code_reads_sequences_and_opaque(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", NAME)
    source = made(tmp_path / "a.tfrecord", framed(sequence_of({"id": 1}, tokens=[[1], [2]])))
    done = appended(version, source)
    assert version.check().ok
    for code in code_blocks(
        text_of(read_back(build_snapshot_metadata(version, done))["shardline/read_code"].value)
    ):
        ((context, lists),) = run_pasted(code, tmp_path)
        assert context["id"] == 1
        assert tf.squeeze(lists["tokens"]).numpy().tolist() == [1, 2]
    opaque = Version(tmp_path / "root", "digits/v2")
    anything = made(tmp_path / "b.tfrecord", framed(b"any", b"thing"))
    done = appended(opaque, anything, schema=Schema.opaque())
    assert opaque.check().ok
    pasted = code_blocks(
        text_of(read_back(build_snapshot_metadata(opaque, done))["shardline/read_code"].value)
    )
    assert [run_pasted(code, tmp_path) for code in pasted] == [[b"any", b"thing"]] * 2


def test_read_code_of_mixed_compression(tmp_path: Path) -> None:
    version, _ = of_numbers(tmp_path)
    done = appended(version, rows_file(tmp_path / "b.jsonl", range(5, 8)), compression="gzip")
    assert version.check().ok
    text = text_of(read_back(build_snapshot_metadata(version, done))["shardline/read_code"].value)
    (ours,) = code_blocks(text)
    assert run_pasted(ours, tmp_path) == [{"x": number} for number in range(8)]
    assert f"{NAME}@2" in text.partition("TensorFlow alone cannot read it: ")[2]


def test_feature_name_cannot_end_code_block(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", NAME)
    name = "```\n# not a heading ````"
    done = appended(version, [{name: 3}], batch="one")
    assert version.check().ok
    pasted = code_blocks(
        text_of(read_back(build_snapshot_metadata(version, done))["shardline/read_code"].value)
    )
    assert [run_pasted(code, tmp_path) for code in pasted] == [[{name: 3}]] * 2


def test_shown_commands_run(tmp_path: Path) -> None:
    version = Version(tmp_path / "a root", NAME)
    done = appended(version, [{"x": 1}], batch="one")
    (code,) = code_blocks(
        text_of(read_back(build_snapshot_metadata(version, done))["shardline/commands"].value)
    )
    commands = [shlex.split(line) for line in code.splitlines()]
    assert [command[:3] for command in commands] == [
        ["shardline", "log", NAME],
        ["shardline", "verify", f"{NAME}@1"],
    ]
    for command in commands:
        result = run_command(*command[1:])
        assert result.code == 0, result.err


def test_object_store_version_has_metadata(s3_root: str, tmp_path: Path) -> None:
    version = Version(s3_root, NAME)
    done = appended(version, image_folder(tmp_path / "images"))
    assert version.check().ok
    told = read_back(build_snapshot_metadata(version, done))
    assert told["dagster/uri"].value == f"{s3_root.rstrip('/')}/{NAME}"
    assert text_of(told["shardline/preview"].value).count("data:image/png") == 3
    (ours,) = code_blocks(text_of(told["shardline/read_code"].value))
    labels = [record["label"] for record in run_pasted(ours, tmp_path)]
    assert labels == [b"blue"] * 4 + [b"green"] * 4 + [b"red"] * 4


def test_metadata_modules_import_nothing_slow() -> None:
    program = (
        "import sys; from shardline.dagster.versions import materialization, progress; "
        "from shardline.dagster.previews import pictures, preview, preview_sample; "
        "print(*sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    modules = set(result.stdout.split())
    assert "shardline.dagster.versions.materialization" in modules
    slow = {"matplotlib", "PIL", "tensorflow", "great_expectations"}
    assert modules.isdisjoint(slow)


def test_lineage_omits_columns_without_upstream() -> None:
    origins = {
        "id": FeatureOrigin("kept", (("a/v1", "key"), ("b/v1", "key"))),
        "split": FeatureOrigin("filled", ()),
    }
    deps = build_column_lineage(origins).deps_by_column
    assert {
        column: [(dep.asset_key, dep.column_name) for dep in found]
        for column, found in deps.items()
    } == {"id": [(AssetKey("a_v1"), "key"), (AssetKey("b_v1"), "key")]}


def test_lineage_of_wide_version_is_truncated() -> None:
    names = [f"x{number:03}" for number in range(103)]
    wide = {name: FeatureOrigin("kept", (("a/v1", name),)) for name in names}
    table = build_lineage_table(build_column_lineage(wide))
    assert len(table.records) == 101
    assert table.records[0].data == {"column": "x000", "upstream": "a_v1: x000"}
    assert table.records[-1].data == {"column": "and 3 more", "upstream": ""}


def test_read_code_of_overlays(tmp_path: Path) -> None:
    text = format_read_code(tagged(tmp_path))
    (ours,) = code_blocks(text)
    names: dict[str, Any] = {}
    exec(ours, names)  # noqa: S102 - that is what the reader would do
    assert [int(name["x"]) for name in names["dataset"]] == list(range(9))
    assert "digits/v3@1" in text.partition("TensorFlow alone cannot read it: ")[2]
    assert "shardline rebuild digits/v3" in text
