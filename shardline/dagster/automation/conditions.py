"""The automation condition of derived versions, and the sensor that evaluates it."""

import os
from typing import Any

import dagster as dg

from shardline.errors import InvalidArgumentError

FOLLOW = "follow_published"
FOLLOW_SECONDS_VARIABLE = "SHARDLINE_FOLLOW_SECONDS"
_FOLLOW_SECONDS = "30"


def build_follow_condition() -> dg.AutomationCondition[Any]:
    """Return the condition of an asset that is derived from published versions.

    Like `eager`, except that an input that is reported again with the same content is not a reason.
    Dagster's own blocking checks of the inputs must have passed, in whatever run. `published` is
    one of them, so each input has a published snapshot. Blocking checks of users count as well. An
    input that lacks partitions does not hold the asset back.
    """
    condition = dg.AutomationCondition
    changed = condition.any_deps_match(
        (condition.data_version_changed() & ~condition.executed_with_root_target())
        | condition.will_be_requested()
    )
    # Only a request handles a change of an input, because a request waits until the inputs are
    # published. A materialization does not: its run may have started before the change.
    handled = condition.newly_requested() & ~changed
    return (
        (condition.newly_missing() | changed).since(condition.initial_evaluation() | handled)
        & ~condition.any_deps_in_progress()
        & ~condition.in_progress()
        & condition.all_deps_blocking_checks_passed()
    ).with_label("an input has new published content")


def build_follow_sensor() -> dg.AutomationConditionSensorDefinition:
    """Return the sensor that evaluates the conditions. It is on by default."""
    return dg.AutomationConditionSensorDefinition(
        FOLLOW,
        target=dg.AssetSelection.all(),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=get_follow_seconds(),
        description="Request derived versions when an input has new published content.",
    )


def get_follow_seconds() -> int:
    """Return the interval of the sensors, from the environment."""
    text = os.environ.get(FOLLOW_SECONDS_VARIABLE) or _FOLLOW_SECONDS
    if not (text.isascii() and text.isdigit() and int(text)):
        raise InvalidArgumentError(
            f"invalid {FOLLOW_SECONDS_VARIABLE} {text!r}: expected a number of seconds, 1 or more",
            code="out-of-range",
        )
    return int(text)
