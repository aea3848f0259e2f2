"""What of a Dagster instance is the platform's own: the alert sensor looks at nothing else.

An instance belongs to several projects. A run is ours when a job of ours made it (its tags say so,
with the cluster, for two projects may use the platform), or when all it selects are assets of ours:
a click on Materialize, or a backfill.
"""

from collections.abc import Iterable, Sequence

import dagster as dg

from penstock_platform.landing.maintenance_assets import ORPHANS_KEY, SNAPSHOTS_KEY
from penstock_platform.reconciliation.reverify import REVERIFY_KEY
from penstock_platform.topics.names import CLUSTER_TAG, JOB_TAG
from penstock_platform.topics.plan import TopicPlan


class Own:
    """The assets, checks and runs of these topics on one cluster."""

    def __init__(self, plans: Sequence[TopicPlan], cluster: str) -> None:
        self._cluster = cluster
        self._assets = {key for plan in plans for key in asset_keys(plan)}
        if any(plan.spec.land is not None for plan in plans):
            self._assets |= {REVERIFY_KEY, SNAPSHOTS_KEY, ORPHANS_KEY}

    def checks(self, keys: Iterable[dg.AssetCheckKey]) -> list[dg.AssetCheckKey]:
        """Those of the keys that are checks of our assets."""
        return [key for key in keys if key.asset_key in self._assets]

    def run(self, run: dg.DagsterRun) -> bool:
        if run.tags.get(JOB_TAG):
            return run.tags.get(CLUSTER_TAG) == self._cluster
        selected = set(run.asset_selection or ())
        selected |= {check.asset_key for check in run.asset_check_selection or ()}
        return bool(selected) and selected <= self._assets


def asset_keys(plan: TopicPlan) -> list[dg.AssetKey]:
    """The assets of a topic."""
    landing = plan.landing_keys if plan.spec.land is not None else []
    swept = [plan.retention_key] if plan.swept else []
    return [plan.topic_key, *landing, *swept]
