"""The asset event of a reset: who rewound which group of a topic, why, from where to where."""

from __future__ import annotations

from penstock_platform.cli.dagster_api import DagsterApiError
from penstock_platform.cli.project import Connections, DagsterApi
from penstock_platform.cli.topic import declarations
from penstock_platform.groups.model.rewind import ResetPlan, plain
from penstock_platform.topics.model.declaration import topic_key


def report_reset(penstock: Connections, done: ResetPlan, by: str, undo: str) -> str:
    """Record an observation of the topic's asset. Returns why there is none, empty where it was
    recorded: the offsets are committed either way."""
    declared = declarations(penstock)
    if declared is None:
        return "this project's Dagster does not answer"
    if done.topic not in declared:
        return f"topic {done.topic} is not declared in this project, so it has no asset"
    offsets = plain(done)
    try:
        DagsterApi(penstock.settings, penstock.clock).report_observation(
            topic_key(penstock.settings.cluster, done.topic),
            f"Group {done.group} was reset by {by} ({done.target}): {done.reason}",
            {
                "kafka/group": done.group,
                "by": by,
                "reason": done.reason,
                "target": done.target,
                "offsets_before": offsets["before"],
                "offsets_after": offsets["after"],
                "undo": undo,
            },
        )
    except DagsterApiError as error:
        return str(error)
    return ""
