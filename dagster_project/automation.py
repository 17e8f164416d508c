"""When a derived version is made anew: an input has other content, and all passed their checks."""

import os
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

import dagster as dg

from dagster_project.naming import asset_key, asset_name
from shardline.errors import InvalidArgumentError

FOLLOW = "follow_published"
FOLLOW_SECONDS_VARIABLE = "SHARDLINE_FOLLOW_SECONDS"
_FOLLOW_SECONDS = "30"


def published_tag(version: str) -> str:
    """The tag of a run whose snapshot of a version was published."""
    return f"shardline/published_{asset_name(version)}"


def follows_published(*inputs: str) -> dg.AutomationCondition[Any]:
    """The condition of a version that is made of others, or of an export.

    Like `eager`, but an input that is reported again with the same content is no reason, and one
    whose blocking checks have not passed holds it back, whichever run they ran in. A check that
    only warns has not passed for Dagster, and publishes all the same: the run's tag tells.
    """
    condition = dg.AutomationCondition
    moved = condition.any_deps_match(
        (condition.data_version_changed() & ~condition.executed_with_root_target())
        | condition.will_be_requested()
    )
    # Only a request handles a move, since it waits until the inputs are published. An update does
    # not: its run may have started before the move and read the previous snapshot.
    handled = condition.newly_requested() & ~moved
    return (
        (condition.newly_missing() | moved).since(condition.initial_evaluation() | handled)
        & ~condition.any_deps_missing()
        & ~condition.any_deps_in_progress()
        & ~condition.in_progress()
        & _published(inputs)
    ).with_label("its input was published with other content")


def _published(inputs: Sequence[str]) -> dg.AutomationCondition[Any]:
    """Whether each input passed its blocking checks, or its run saw it published all the same."""
    condition = dg.AutomationCondition
    passed = condition.all_checks_match(
        condition.check_passed() | condition.will_be_requested(), blocking_only=True
    )
    each: list[dg.AutomationCondition[Any]] = [
        condition.asset_matches(
            asset_key(name),
            passed | condition.executed_with_tags(tag_keys={published_tag(name)}),
        )
        for name in inputs
    ]
    return reduce(and_, each)


def follow_sensor() -> dg.AutomationConditionSensorDefinition:
    """The sensor that acts on the conditions; it is on unless someone turns it off."""
    return dg.AutomationConditionSensorDefinition(
        FOLLOW,
        target=dg.AssetSelection.all(),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=_follow_seconds(),
        description="Makes derived versions anew when what they are made of was published.",
    )


def _follow_seconds() -> int:
    """Return how long the sensor waits before it looks again, as the environment says."""
    text = os.environ.get(FOLLOW_SECONDS_VARIABLE) or _FOLLOW_SECONDS
    if not (text.isascii() and text.isdigit() and int(text)):
        raise InvalidArgumentError(
            f"invalid {FOLLOW_SECONDS_VARIABLE} {text!r}: expected a number of seconds, 1 or more",
            code="out-of-range",
        )
    return int(text)
