"""When a derived version is made anew: its input has other content, and has passed its checks."""

import dagster as dg

FOLLOW = "follow_published"


def follows_published() -> dg.AutomationCondition[dg.AssetKey | dg.AssetCheckKey]:
    """The condition of every version that is made of others.

    Like `eager`, but an input that is reported again with the same content is no reason, and one
    whose blocking checks have not passed holds it back, whichever run they ran in.
    """
    condition = dg.AutomationCondition
    moved = condition.any_deps_match(
        (condition.data_version_changed() & ~condition.executed_with_root_target())
        | condition.will_be_requested()
    )
    # What moved while the run for the move before was ending has not been handled by that run:
    # `since_last_handled` would forget it.
    handled = (condition.newly_requested() | condition.newly_updated()) & ~moved
    return (
        (condition.newly_missing() | moved).since(condition.initial_evaluation() | handled)
        & ~condition.any_deps_missing()
        & ~condition.any_deps_in_progress()
        & ~condition.in_progress()
        & condition.all_deps_blocking_checks_passed()
    ).with_label("its input was published with other content")


def follow_sensor() -> dg.AutomationConditionSensorDefinition:
    """The sensor that acts on the conditions; it is on unless someone turns it off."""
    return dg.AutomationConditionSensorDefinition(
        FOLLOW,
        target=dg.AssetSelection.all(),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Makes derived versions anew when what they are made of was published.",
    )
