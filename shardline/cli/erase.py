"""`shardline erase`."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.checked import checked_by
from shardline.cli.erase_proof import prove, refuse_place
from shardline.cli.erased import erased_json, plan_json, print_erased, print_plan
from shardline.cli.errors import UsageError, reported_as_usage
from shardline.cli.json_told import tell_json
from shardline.cli.options import (
    json_option,
    limit_options,
    limits,
    no_check_option,
    root_option,
    workers_option,
)
from shardline.cli.outcome import print_not_done
from shardline.cli.references import looks_like_reference, open_root, refuse_missing
from shardline.cli.steps import drawing_engine

if TYPE_CHECKING:
    from typing import TextIO

    from shardline.cli.checked import Checked
    from shardline.operations.erase import ErasePlan, EraseReport
    from shardline.storage import Store
    from shardline.tfrecord import Limits

_MAKER = re.compile(r"[\w./-]+:\w+")


@click.command(
    short_help="Erase records from every version of a dataset.",
    epilog="""\b
Examples:
  shardline erase digits --where 'label == 3' --dry-run
  shardline erase digits --where "label == 3 and not source in ['a', 'b']"
  shardline erase users --key user_id --values ids.txt --request 'ticket 81'
  shardline erase users --where choose.py:forgotten
\b
  shardline vacuum users --delete --keep 0       delete the files that held them
  shardline erase users --proof proof.md         what is gone, and what is left
  shardline erase users --proof proof.md --key user_id --values ids.txt
                                                 ... after searching every file once more

A predicate compares features that hold one value: == != < <= > >=, in [...], is missing; and, or,
not, and brackets. Texts stand in quotes. A record that is meant in one version goes from all.

Neither the predicate nor the values of a key are written down anywhere. --request is, for people:
name no one there.""",
)
@click.argument("dataset", metavar="NAME")
@click.option("--where", metavar="PREDICATE", help="Which records; or module:object that chooses.")
@click.option("--key", metavar="FEATURE", help="Choose records by the values of this feature.")
@click.option("value", "--value", multiple=True, help="A value of the key. May be repeated.")
@click.option(
    "--values",
    type=click.File("r", encoding="utf-8-sig"),
    metavar="FILE",
    help="A file with a value of the key on each line; - for standard input.",
)
@click.option("--request", default="", metavar="TEXT", help="What to tell of it in the log.")
@click.option(
    "--quarantine",
    is_flag=True,
    help="Delete also those lines of quarantine files that cannot be searched.",
)
@click.option("--dry-run", is_flag=True, help="Only tell what would be erased.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--proof",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Erase nothing: write what is proved to be gone, as Markdown, or JSON if FILE ends so. "
    "An earlier proof is replaced.",
)
@click.option("--overwrite", is_flag=True, help="Let the proof replace any other file.")
@no_check_option
@workers_option
@limit_options
@root_option
@json_option
def erase(
    dataset: str,
    *,
    where: str | None,
    key: str | None,
    value: tuple[str, ...],
    values: TextIO | None,
    request: str,
    quarantine: bool,
    dry_run: bool,
    yes: bool,
    proof: Path | None,
    overwrite: bool,
    no_check: bool,
    workers: int | None,
    max_record: int,
    max_unpacked: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Erase records from every version of a dataset, for good; or prove that they are gone.

    It tells first what it will touch, and asks. Each shard that holds the records is written once
    more without them; the old ones, and the snapshots that hold them, can never be restored, and
    'shardline vacuum' deletes their files. What else may hold the records is listed, with what to
    do.

    Exits with 0 if they are gone from all that is known here, but for files that vacuum deletes;
    with 1 if something is listed that still holds them, or may and could not be searched, or if a
    check fails on what is left; with --proof also while such files are there, or if nothing was
    erased. A dry run exits with 0.
    """
    store = open_root(root)
    _refuse_no_dataset(store, dataset)
    refuse_place(proof, store, dataset, values, overwrite=overwrite)
    within = limits(max_record, max_unpacked)
    chosen = _chosen(where, key, value, values)
    if proof is not None:
        asked = chosen.get("where") is not None or chosen.get("key") is not None
        again = _planned(store, dataset, chosen, within, workers) if asked else None
        prove(store, dataset, proof, again, request or None, as_json=as_json)
    if as_json and not (yes or dry_run):
        raise UsageError(
            "--json cannot ask for confirmation",
            code="confirmation-required",
            hint="add `--yes`, or `--dry-run` to see the plan",
        )
    plan = _planned(store, dataset, chosen, within, workers)
    if not as_json:
        print_plan(plan)
    nothing = plan.idle and not (quarantine and plan.quarantine)
    stopped = nothing and not no_check and bool(plan.unchecked)  # an erase, before its checks
    if dry_run or (nothing and not stopped):
        if as_json:
            tell_json(plan_json(plan, dry_run=dry_run))
        elif not nothing:
            print_not_done()
        left = any(one.open for one in plan.holders) and not dry_run
        raise SystemExit(1 if left else 0)
    if not yes and not stopped and not _confirmed():
        click.echo("Nothing was changed.")
        raise SystemExit(0)
    options = {"request": request, "quarantine": quarantine, "check": not no_check}
    report, seconds = _done(plan, within, workers, options)
    checked = _checked(report)
    if as_json:
        tell_json(erased_json(report, checked, seconds))
    else:
        print_erased(report, checked, seconds)
    raise SystemExit(0 if report.ok else 1)


def _confirmed() -> bool:
    """Whether someone said yes; a usage error where nobody can."""
    try:
        return click.confirm("Erase this for good?", err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise UsageError(
            "no confirmation given (nothing was changed)",
            code="confirmation-required",
            hint="add `--yes` to erase without being asked",
        ) from None


def _refuse_no_dataset(store: Store, dataset: str) -> None:
    from shardline.storage import check_name

    if looks_like_reference(dataset):
        raise UsageError(
            f"{dataset}: erase works on a whole dataset",
            code="dataset-required",
            hint=f"write `{dataset.partition('/')[0]}`: all versions may contain such records",
            version=dataset,
        )
    if not store.folders(check_name(dataset, "dataset")):
        refuse_missing(store, dataset)


def _chosen(
    where: str | None, key: str | None, value: tuple[str, ...], values: TextIO | None
) -> dict[str, Any]:
    """What was said of which records are meant, as `plan_erase` takes it."""
    lines = [] if values is None else [line.rstrip("\r\n") for line in values]
    told = [*value, *(line for line in lines if line.strip())]
    if key is None and (value or values is not None):
        raise UsageError(
            "--value and --values require --key", code="missing-option", hint="add `--key FEATURE`"
        )
    if key is not None and not told:
        raise UsageError(
            f"--key {key}: missing values",
            code="missing-option",
            hint="add `--value VALUE` or `--values FILE`",
            feature=key,
        )
    if where is not None and key is not None:
        raise UsageError("--where and --key exclude each other", code="conflicting-options")
    if where is not None and _MAKER.fullmatch(where):
        from shardline.cli.maker_arguments import load_maker

        return {"where": load_maker(where, "--where")}
    return {"where": where} if where is not None else {"key": key, "values": told}


def _planned(
    store: Store, dataset: str, chosen: dict[str, Any], within: Limits, workers: int | None
) -> ErasePlan:
    from shardline.operations.erase import plan_erase

    with reported_as_usage(), drawing_engine(workers) as engine:
        return plan_erase(store, dataset, **chosen, limits=within, engine=engine)


def _done(
    plan: ErasePlan, within: Limits, workers: int | None, options: dict[str, Any]
) -> tuple[EraseReport, float]:
    from shardline.operations.erase import carry_out

    began = time.perf_counter()
    with drawing_engine(workers) as engine:
        report = carry_out(plan, **options, limits=within, engine=engine)
    return report, time.perf_counter() - began


def _checked(report: EraseReport) -> list[Checked]:
    """What checking found of each version, as it stands now."""
    from shardline.log.version import StoredVersion

    store = report.plan.history.store
    return [checked_by(StoredVersion(store, name), check) for name, check in report.checks.items()]
