"""When a derived version is requested: an input has other content, and all passed their checks."""

import os
from typing import Any

import dagster as dg

from shardline.errors import InvalidArgumentError

FOLLOW = "follow_published"
FOLLOW_SECONDS_VARIABLE = "SHARDLINE_FOLLOW_SECONDS"
_FOLLOW_SECONDS = "30"


def build_follow_condition() -> dg.AutomationCondition[Any]:
    """Return the condition of an asset that is derived from published versions.

    Like `eager`, but an input that is reported again with the same content is no reason. Dagster's
    own blocking checks hold it back, whichever run they ran in: `published` is one of them, so each
    input has a published snapshot, and the blocking checks of a user count as well. An input that
    lacks some partitions is no obstacle.
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
        & ~condition.any_deps_in_progress()
        & ~condition.in_progress()
        & condition.all_deps_blocking_checks_passed()
    ).with_label("its input was published with other content")


def build_follow_sensor() -> dg.AutomationConditionSensorDefinition:
    """The sensor that acts on the conditions; it is on unless someone turns it off."""
    return dg.AutomationConditionSensorDefinition(
        FOLLOW,
        target=dg.AssetSelection.all(),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=get_follow_seconds(),
        description="Makes derived versions anew when what they are made of was published.",
    )


def get_follow_seconds() -> int:
    """Return how long a sensor that follows waits before its next tick, by the environment."""
    text = os.environ.get(FOLLOW_SECONDS_VARIABLE) or _FOLLOW_SECONDS
    if not (text.isascii() and text.isdigit() and int(text)):
        raise InvalidArgumentError(
            f"invalid {FOLLOW_SECONDS_VARIABLE} {text!r}: expected a number of seconds, 1 or more",
            code="out-of-range",
        )
    return int(text)
