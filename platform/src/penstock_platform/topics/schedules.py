"""Schedules that look again: never two of a kind at once, and in an order when runs have to wait.

A look that is still queued or running makes the next one pointless, and a queue of them would only
hold up what has to move. Under load landings come first but never alone: proving again goes ahead
of them, for it is one run at a time, and the damage it finds should not wait for a quiet hour.
"""

from collections.abc import Callable
from typing import Any

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from penstock_platform.topics.names import CLUSTER_TAG

PRIORITY_TAG = "dagster/priority"
PERSON, REVERIFY, LANDING, SWEEP, LOOK = "20", "15", "10", "5", "0"

Ready = Callable[[dg.ScheduleEvaluationContext], str | None]


def build_schedule(
    job: Any,
    cron: str,
    *,
    description: str,
    priority: str = LOOK,
    ready: Ready | None = None,
) -> dg.ScheduleDefinition:
    """A schedule under its job's name, running by default, that skips while the job is queued or
    running.

    ``ready`` gives a reason to skip, or None; it may use the resource ``penstock``.
    """

    @dg.schedule(
        name=job.name,
        job=job,
        cron_schedule=cron,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        required_resource_keys={"penstock"},
        description=description,
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        under_way = context.instance.get_run_records(
            dg.RunsFilter(
                job_name=job.name,
                statuses=list(NOT_FINISHED_STATUSES),
                tags={k: v for k, v in (job.tags or {}).items() if k == CLUSTER_TAG},
            ),
            limit=1,
        )
        if under_way:
            run = under_way[0].dagster_run
            return dg.SkipReason(f"run {run.run_id} is still {run.status.value.lower()}")
        reason = ready(context) if ready is not None else None
        if reason is not None:
            return dg.SkipReason(reason)
        return dg.RunRequest(tags={PRIORITY_TAG: priority})

    return schedule
