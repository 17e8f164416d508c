"""The steps of the model: what people, programs and accidents do to a platform.

A step first makes what it needs, such as a rejected source to retry, and asserts that it happened.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import dagster as dg

from shardline.api import Version
from shardline.errors import ShardlineError
from shardline.operations.check import check_version
from shardline.operations.example_file import write_examples
from shardline.operations.rejected_sources import dismiss, open_sources
from shardline.operations.repair import repair
from shardline.operations.restore import restore_version
from tests.dagster.model import (
    BASE,
    GROWING,
    OWN_CHECK_FAILS,
    WARNS,
    Model,
)

Step: TypeAlias = Callable[[Model], None]
SAMPLE = 20
"""How many sequences get the steps of a deck. As many are run by default."""
_COPIES = 2
"""How often a deck has each step."""


class KilledError(Exception):
    """Stands for the end of a process in the middle of a step."""


def deal_steps(seed: int) -> list[str]:
    """Return the steps of a sequence. Those of SAMPLE sequences together are every step."""
    deck_number, hand = divmod(seed, SAMPLE)
    deck = sorted(STEPS) * _COPIES
    random.Random(f"deck {deck_number}").shuffle(deck)
    return deck[hand::SAMPLE]


def take_step(model: Model, name: str) -> None:
    """Take a step, and note it."""
    model.trace.append(name)
    STEPS[name](model)


def land_good(model: Model) -> None:
    path = model.land(model.ids())
    model.append_landed()
    assert str(path) not in rejected_paths(model)


def land_mismatch(model: Model) -> None:
    path = model.land(model.ids(), weight=1.5)
    model.append_landed()
    assert str(path) in rejected_paths(model)


def land_corrupt(model: Model) -> None:
    """Land a TFRecord file with a flipped bit in a record."""
    ids = list(model.ids())
    model.files += 1
    path = model.platform.landing / f"{model.files}.tfrecord"
    write_examples(path, {"id": ids, "name": [f"note {number}" for number in ids]})
    flip_bit(path, 14)
    model.append_landed()
    (fault,) = [found for found in open_sources(model.base).rejected if _name(found) == str(path)]
    assert (fault.check, fault.record) == ("integrity", 0)


def land_duplicate(model: Model) -> None:
    original = landed_file(model)
    model.files += 1
    path = model.platform.landing / f"{model.files}{original.suffix}"
    path.write_bytes(original.read_bytes())
    model.append_landed()


def land_changed(model: Model) -> None:
    path = landed_file(model)
    before = model.base.state.number
    ids = model.ids()
    model.files += 1  # No other file has these ids.
    changed = model.platform.land(path.stem, ids)
    assert changed == path
    model.append_landed()
    assert model.base.state.number > before


def warn(model: Model) -> None:
    """Land rows that make the suite warn."""
    path = _land_suspicious(model, WARNS)
    assert str(path) not in rejected_paths(model)


def fail(model: Model) -> None:
    """Land rows that fail the suite; their snapshot is rejected, or corrupt and unpublished."""
    path = _land_suspicious(model, model.fails)
    if model.is_corrupt:  # The suite reads no corrupt shard.
        assert not model.is_published
    else:
        assert str(path) in rejected_paths(model)


def _land_suspicious(model: Model, first: int) -> Path:
    assert model.has_suite
    path = model.land(model.ids(first))
    model.append_landed()
    return path


def materialize_all(model: Model) -> None:
    """Materialize every asset with its checks, also the audit."""
    model.land(model.ids())
    model.run(set(model.platform.defs.resolve_all_asset_keys()), None)
    assert model.has_snapshot


def materialize_some(model: Model) -> None:
    """Materialize some assets with some of their checks, or with none."""
    derived = model.derived_key
    assets = {*model.draw.choice([(GROWING,), (GROWING,), (GROWING, derived), (derived,)])}
    known = model.check_keys(*assets)
    chosen = set(model.draw.sample(known, model.draw.randrange(len(known))))
    more = model.draw.choice([{}, {}, {"weight": 1.5}])
    model.land(model.ids(), **more)
    model.run(assets, model.draw.choice([set(), chosen]))


def run_checks(model: Model) -> None:
    """Execute some checks of an asset without the asset."""
    key = model.draw.choice([GROWING, GROWING, model.derived_key])
    known = model.check_keys(key)
    chosen = set(model.draw.sample(known, model.draw.randint(1, len(known))))
    config = {f"{key.to_user_string()}_checks": {"reread": model.draw.random() < 0.3}}
    ours = any(check.name != "own" for check in chosen)
    model.run(set(), chosen, **(config if ours else {}))


def overlap(model: Model) -> None:
    """Run a second materialization when the first is about to begin, or to be checked."""
    model.land(model.ids())
    at = model.draw.choice([1, 2])
    opened = runs = 0

    def happen(name: str) -> None:
        nonlocal opened, runs
        opened += name == BASE
        if opened == at and name == BASE and not runs:
            runs += 1
            model.land(model.ids())
            model.run({GROWING}, None)

    model.interrupted(happen, lambda: model.run({GROWING}, None))
    assert runs == 1


def kill_checks(model: Model) -> None:
    """End a run between its commit and its checks."""
    model.land(model.ids())
    opened = 0

    def happen(name: str) -> None:
        nonlocal opened
        opened += name == BASE
        if opened > 1:
            raise KilledError

    model.interrupted(happen, lambda: model.run({GROWING}, None))
    assert opened > 1
    assert not model.is_published


def kill_before_report(model: Model) -> None:
    """End a run after its commit, before it could report it; run monitoring notices later."""
    job = model.platform.defs.resolve_implicit_global_asset_job_def()
    run = model.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    model.append_outside(Version(model.folder / "root", BASE, run=run.run_id), model.ids())
    if model.draw.random() < 0.5:
        assert model.reconciling.tick() == []
    assert not model.is_published
    model.instance.report_run_failed(run)


def commit_outside(model: Model) -> None:
    """Append by another program, which may check what it commits."""
    first = model.draw.choice([0, 0, WARNS, model.fails]) if model.has_suite else 0
    version = model.base
    model.append_outside(version, model.ids(first))
    if model.draw.random() < 0.5:
        check_version(version)


def restore(model: Model) -> None:
    """Restore an older snapshot."""
    while not model.has_snapshot or model.base.state.snapshot < 2:
        commit_outside(model)
    version = model.base
    number = model.draw.randint(1, version.state.snapshot - 1)
    model.note("to", number)
    restore_version(version, str(number))


def repair_shard(model: Model) -> None:
    """Flip a bit in a shard, and repair it as well as possible."""
    while not model.has_snapshot or not model.base.latest().shards:
        commit_outside(model)
    version = model.base
    shard = model.draw.choice(version.latest().shards)
    path = model.folder / "root" / version.shard_name(shard)
    flip_bit(path, model.draw.randrange(path.stat().st_size))
    try:
        report = repair(version, allow_data_loss=True)
    except ShardlineError as error:
        model.note("not repaired", error.code)
    else:
        assert report.repaired
        model.note("made by", [repaired.method for repaired in report.repaired])


def fail_own_check(model: Model) -> None:
    """Let the blocking check of a user fail on what lands next."""
    (model.folder / "reports" / OWN_CHECK_FAILS).touch()
    model.land(model.ids())
    assert not model.run({GROWING}, None)


def pass_own_check(model: Model) -> None:
    """Let the blocking check of a user pass again, on the same snapshot or on the next."""
    (model.folder / "reports" / OWN_CHECK_FAILS).unlink(missing_ok=True)
    if model.draw.random() < 0.5:
        model.land(model.ids())
        model.run({GROWING}, None)
    else:
        assert model.run(set(), {dg.AssetCheckKey(GROWING, "own")})


def retry(model: Model) -> None:
    """Append rejected sources again; a suite that was changed before may accept them."""
    if not model.base.exists or not open_sources(model.base).rejected:
        (fail if model.has_suite else land_mismatch)(model)
    before = set(rejected_paths(model))
    if model.has_suite:
        model.widen_suite()
    model.run({GROWING}, None, notes_v1={"retry_rejected": True})
    model.note("accepted", len(before - set(rejected_paths(model))), "of", len(before))


def dismiss_sources(model: Model) -> None:
    """Dismiss everything that waits for a decision; no dismissed file is new again."""
    if not model.base.exists or not open_sources(model.base).all:
        land_mismatch(model)
    before = model.list_new()
    report = dismiss(model.base, open_sources(model.base).all)
    assert report.dismissed
    assert open_sources(model.base).all == ()
    assert model.list_new() == before


def reset_reconciler(model: Model) -> None:
    model.reconciling.cursor = None


def reset_automation(model: Model) -> None:
    model.ticks.cursor = None


def reset_landing(model: Model) -> None:
    model.landing.cursor = None


def restart_daemon(model: Model) -> None:
    model.start_daemon()


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        *(land_good, land_mismatch, land_corrupt, land_duplicate, land_changed),
        *(warn, fail, fail_own_check, pass_own_check),
        *(materialize_all, materialize_some, run_checks),
        *(overlap, kill_checks, kill_before_report),
        *(commit_outside, restore, repair_shard, retry, dismiss_sources),
        *(reset_reconciler, reset_automation, reset_landing, restart_daemon),
    )
}
SUITE_STEPS = frozenset({"warn", "fail"})
"""The steps that need a suite of expectations."""


def landed_file(model: Model) -> Path:
    """Return a file of JSON lines in the landing folder; let one land if there is none."""
    known = sorted(model.platform.landing.glob("*.jsonl"))
    if not known:
        land_good(model)
        known = sorted(model.platform.landing.glob("*.jsonl"))
    return model.draw.choice(known)


def rejected_paths(model: Model) -> list[str]:
    """Return the rejected sources that wait for a decision."""
    return [_name(found) for found in open_sources(model.base).rejected]


def _name(found: object) -> str:
    return str(found.source.path)  # type: ignore[attr-defined]


def flip_bit(path: Path, position: int) -> None:
    """Flip a bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
