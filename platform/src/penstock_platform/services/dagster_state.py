"""What Dagster reports of itself: whether the definitions load, and when each daemon last reported.

One GraphQL query with a time limit. What does not answer is a fact, not an exception.
"""

from __future__ import annotations

from typing import Any

from penstock_platform.domain.chain_health import PlatformFacts
from penstock_platform.resources.clock import SystemClock
from penstock_platform.services import layout
from penstock_platform.services.catalogue import LOCATION_NAME
from penstock_platform.services.probes import (
    CALL_SECONDS,
    DAEMONS,
    NotReady,
    first_cause,
    graphql,
)
from penstock_platform.settings import Settings

_QUERY = """{ workspaceOrError { __typename
  ... on PythonError { message causes { message } }
  ... on Workspace { locationEntries { name loadStatus
    locationOrLoadError { __typename ... on PythonError { message causes { message } } } } } }
  instance { daemonHealth { allDaemonStatuses { daemonType lastHeartbeatTime } } } }"""


def managed(settings: Settings) -> bool:
    """Whether Dagster is one of the services of this home, started by ``penstock up``."""
    return layout.supervisor_conf(settings).is_file()


def dagster_facts(settings: Settings, seconds: float = CALL_SECONDS) -> PlatformFacts:
    """Dagster's part of the facts; where it is silent only that is known."""
    try:
        answer = graphql(settings, _QUERY, seconds)
    except NotReady as error:
        return PlatformFacts(dagster=f"{settings.dagster_url}: {error}")
    statuses = answer["instance"]["daemonHealth"]["allDaemonStatuses"]
    beats = {s["daemonType"]: s["lastHeartbeatTime"] for s in statuses}
    now = SystemClock().now().timestamp()
    return PlatformFacts(
        dagster="",
        definitions=_definitions(answer["workspaceOrError"]),
        heartbeats={
            name: None if beats.get(name) is None else max(0.0, now - float(beats[name]))
            for name in DAEMONS
        },
    )


def _definitions(workspace: dict[str, Any]) -> str | None:
    """Why the definitions do not load; empty where they do, None while they are loading."""
    if workspace["__typename"] == "PythonError":
        return first_cause(workspace)
    mine = [e for e in workspace.get("locationEntries", ()) if e["name"] == LOCATION_NAME]
    if not mine or mine[0]["loadStatus"] != "LOADED":
        return None
    loaded = mine[0]["locationOrLoadError"]
    return "" if loaded["__typename"] == "RepositoryLocation" else first_cause(loaded)
