"""The platform's jobs: their executor and their tags, for all of them in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from penstock_platform.topics.names import job_tags

# Of our own jobs alone; the project's executor is the project's. Their steps follow one another, do
# little themselves (Spark's server does the work) and share one set of connections: a process, pod
# or task a step, as the project's executor might start, would cost a minutely window more time than
# its landing, and would need a configuration of that executor which a sensor cannot know.
EXECUTOR = dg.in_process_executor


def build_job(
    name: str,
    selection: dg.AssetSelection,
    *,
    job: str,
    cluster: str,
    description: str,
    topic: str = "",
    run_tags: Mapping[str, str] | None = None,
) -> Any:
    """An asset job of the platform. ``job``: the value of its tag ``penstock/job``; ``run_tags``
    are put on its runs alone."""
    tags = job_tags(job, cluster, topic)
    return dg.define_asset_job(
        name,
        selection=selection,
        description=description,
        executor_def=EXECUTOR,
        tags=tags,
        run_tags={**tags, **(run_tags or {})},
    )
