"""What Dagster reports of itself: whether the definitions load, and when each daemon last reported.

One GraphQL query with a time limit. What does not answer is a fact, not an exception.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from penstock_platform.alerts.model.chain_health import PlatformFacts
from penstock_platform.settings import LOCATION_NAME, Settings
from penstock_platform.system_clock import SystemClock

CALL_SECONDS = 5.0
# What runs must be launched with; assets and freshness daemons may follow later.
DAEMONS = ("SENSOR", "SCHEDULER", "QUEUED_RUN_COORDINATOR")
_QUERY = """{ workspaceOrError { __typename
  ... on PythonError { message causes { message } }
  ... on Workspace { locationEntries { name loadStatus
    locationOrLoadError { __typename ... on PythonError { message causes { message } } } } } }
  instance { daemonHealth { allDaemonStatuses { daemonType lastHeartbeatTime } } } }"""


class DagsterSilentError(RuntimeError):
    """Dagster's webserver does not answer, or not with data; the text says what was seen."""


def managed(settings: Settings) -> bool:
    """Whether Dagster is one of the services of this home, started by ``penstock up``."""
    return settings.supervisor_conf.is_file()


def dagster_facts(settings: Settings, seconds: float = CALL_SECONDS) -> PlatformFacts:
    """Dagster's part of the facts; where it is silent only that is known."""
    try:
        answer = graphql(settings, _QUERY, seconds)
    except DagsterSilentError as error:
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


def graphql(settings: Settings, query: str, seconds: float = CALL_SECONDS) -> dict[str, Any]:
    """The ``data`` of one GraphQL answer; DagsterSilentError where there is none."""
    request = urllib.request.Request(
        f"{settings.dagster_url}/graphql",
        data=json.dumps({"query": query}).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never by a proxy
    try:
        with opener.open(request, timeout=seconds) as response:
            answer = json.load(response)
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise DagsterSilentError(str(error)) from error
    if answer.get("errors") or not isinstance(answer.get("data"), dict):
        raise DagsterSilentError(f"GraphQL: {answer.get('errors')}")
    data: dict[str, Any] = answer["data"]
    return data


def first_cause(error: dict[str, Any]) -> str:
    """The innermost message of a GraphQL PythonError, on one line."""
    messages = [cause["message"] for cause in error.get("causes", ())] or [error["message"]]
    return " ".join(messages[-1].split())[:400]
