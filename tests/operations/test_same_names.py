"""The context and the feature_lists of a SequenceExample may have the same name: none is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.errors import SchemaMismatchError
from shardline.hints import Option
from shardline.lineage.audit.root_audit import audit
from shardline.operations.check import check_version
from shardline.operations.combine_files import combine_files
from shardline.operations.extend import extend, extend_file
from shardline.operations.migrate import MigrationSpec, migrate, migrate_file
from shardline.provenance.feature_origin import infer_feature_origins
from shardline.provenance.log_index import LogIndex
from shardline.schema.schema import Feature, Schema
from shardline.udf import record_udf
from tests.cli.command import shardline
from tests.cli.datasets import on, squeezed
from tests.errors import raises
from tests.kernel.frames import framed
from tests.operations.combinations import combined, side
from tests.operations.extensions import table
from tests.tfrecord.samples import example_of, made, sequence_of

if TYPE_CHECKING:
    from pathlib import Path

STEPS = Feature("tok", "int64", sequence=True)
WALKS = Schema((Feature("id", "int64"), STEPS), "sequence_example")
BOTH = Schema((Feature("id", "int64"), Feature("tok", "int64"), STEPS), "sequence_example")
WALK = sequence_of({"id": 1}, tok=[[5], [6]])
BOTH_WALK = sequence_of({"id": 1, "tok": 9}, tok=[[5], [6]])


@record_udf(Feature("tok", "int64"), reads=["id"], code="1")
def tok(record: dict[str, Any]) -> dict[str, Any]:
    """A field of the context that is called like a feature list."""
    return {"tok": record["id"]}


def walks(root: Path, schema: Schema = WALKS, record: bytes = WALK) -> Version:
    """A published version of one walk."""
    version = side(root, "walks/v1", schema, [record])
    assert check_version(version).ok
    return version


@pytest.mark.parametrize("mode", ["overlay", "rewrite"])
def test_a_new_field_cannot_have_the_name_of_a_feature_list(tmp_path: Path, mode: Any) -> None:  # noqa: ANN401 - one of two words
    base, into = walks(tmp_path), Version(tmp_path, "walks/v2")
    with raises(SchemaMismatchError, "ambiguous-feature", feature="tok"):
        extend(base, tok, into, mode=mode)
    assert not into.exists


def test_a_new_field_takes_the_name_of_a_feature_list_that_is_dropped(tmp_path: Path) -> None:
    base, into = walks(tmp_path), Version(tmp_path, "walks/v2")
    with raises(SchemaMismatchError, "unsupported-feature", feature="tok") as caught:
        extend(base, tok, into, mode="rewrite", replaces=["tok"])
    assert caught.value.hint is not None
    assert Option("drop") in caught.value.hint.parts
    extend(base, tok, into, mode="rewrite", drop=["tok"])
    assert check_version(into).ok
    assert table(into.published()) == {"id": [1], "tok": [1]}
    assert audit(LogIndex(tmp_path)).ok


@pytest.mark.parametrize(
    "steps", [MigrationSpec(rename={"id": "tok"}), MigrationSpec(rename={"tok": "id"})]
)
def test_a_rename_cannot_make_a_name_that_the_other_side_has(
    tmp_path: Path, steps: MigrationSpec
) -> None:
    base, into = walks(tmp_path), Version(tmp_path, "walks/v2")
    (new_name,) = steps.rename.values()
    with raises(SchemaMismatchError, "ambiguous-feature", feature=new_name):
        migrate(base, steps, into)
    assert not into.exists


@pytest.mark.parametrize("rule", ["refuse", "keep-left", "keep-right"])
def test_a_pair_cannot_have_a_name_on_both_sides(tmp_path: Path, rule: str) -> None:
    left = side(tmp_path, "tokens/v1", Schema((Feature("tok", "int64"),)), [example_of(tok=3)])
    right, into = walks(tmp_path), Version(tmp_path, "pairs/v1")
    with raises(SchemaMismatchError, "ambiguous-feature", feature="tok") as caught:
        combined(left, right, into, on_collision=rule)
    assert caught.value.hint is not None
    assert Option("on_collision", "prefix") in caught.value.hint.parts
    assert not into.exists
    combined(left, right, into, on_collision="prefix", left_prefix="a_")
    assert table(into.latest()) == {"a_tok": [3], "id": [1], "tok": [[5, 6]]}


def test_a_field_of_a_pair_cannot_have_the_name_of_a_feature_list(tmp_path: Path) -> None:
    left = side(tmp_path, "others/v1", Schema((Feature("x", "int64"),)), [example_of(x=3)])
    with raises(SchemaMismatchError, "ambiguous-feature", feature="tok"):
        combined(left, walks(tmp_path), Version(tmp_path, "pairs/v1"), udfs=tok)


def test_loose_files_are_refused_alike(tmp_path: Path) -> None:
    walk, other = (
        made(tmp_path / "w", framed(WALK)),
        made(tmp_path / "x", framed(example_of(tok=1))),
    )
    out = tmp_path / "out"
    with raises(SchemaMismatchError, "ambiguous-feature", feature="tok"):
        extend_file(walk, tok, out)
    with raises(SchemaMismatchError, "ambiguous-feature", feature="tok"):
        migrate_file(walk, MigrationSpec(rename={"id": "tok"}), out)
    with raises(SchemaMismatchError, "ambiguous-feature", feature="tok"):
        combine_files(walk, other, out)
    dry = shardline("migrate", walk, "--output", out, "--rename", "id=tok", "--dry-run")
    assert dry.code == 2
    assert not out.exists()


def test_records_that_have_such_names_are_read_and_extended(tmp_path: Path) -> None:
    base, into = walks(tmp_path, BOTH, BOTH_WALK), Version(tmp_path, "walks/v2")
    migrate(base, MigrationSpec(rename={"id": "number"}), into)
    assert check_version(into).ok
    assert into.latest().to_arrow().read_all().column_names == ["number", "tok", "tok"]
    paired = Version(tmp_path, "pairs/v1")
    left = side(tmp_path, "others/v1", Schema((Feature("x", "int64"),)), [example_of(x=3)])
    combined(left, base, paired)
    assert paired.latest().records == 1


WAYS: dict[str, tuple[list[str], dict[str, list[Any]], tuple[str, str]]] = {
    "the context dropped": (
        ["--drop", "context:tok"], {"id": [1], "tok": [[5, 6]]}, ("kept", "tok"),
    ),
    "the feature list dropped": (
        ["--drop", "feature_lists:tok"], {"id": [1], "tok": [9]}, ("kept", "tok"),
    ),
    "the context renamed": (
        ["--rename", "context:tok=one"],
        {"id": [1], "one": [9], "tok": [[5, 6]]},
        ("renamed", "one"),
    ),
    "the context cast under another name": (
        ["--cast", "context:tok=float", "--rename", "context:tok=one"],
        {"id": [1], "one": [9.0], "tok": [[5, 6]]},
        ("cast", "one"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WAYS)
def test_migrate_tells_the_two_apart(tmp_path: Path, what: str) -> None:
    walks(tmp_path, BOTH, BOTH_WALK)
    steps, content, (how, name) = WAYS[what]
    result = on(tmp_path, "migrate", "walks/v1", "--into", "v2", *steps)
    assert result.code == 0, result.err
    into = Version(tmp_path, "walks/v2")
    assert table(into.published()) == content
    entry = into.log.entry(into.published().entry)
    assert infer_feature_origins(entry, [BOTH])[name].change == how
    assert audit(LogIndex(tmp_path)).ok


def test_a_name_that_may_mean_two_is_refused_with_what_to_write(tmp_path: Path) -> None:
    walks(tmp_path, BOTH, BOTH_WALK)
    result = on(tmp_path, "migrate", "walks/v1", "--into", "v2", "--drop", "tok")
    assert result.code == 2
    assert "'context:tok' or 'feature_lists:tok'" in squeezed(result.err)
