"""What a command talks to: the services of its own project, and no one else's.

Commands open ``Connections`` and ``DagsterApi`` from here. The first use of the cluster and of the
archive compares their ids with the recorded ones (``resources.identity``); Dagster is asked only
while this project's own webserver runs, because another's may hold its port.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock_platform.domain.clock import Clock
from penstock_platform.resources import dagster_api
from penstock_platform.resources.dagster_api import DagsterApiError
from penstock_platform.resources.identity import OwnConnections
from penstock_platform.services.errors import ServiceError
from penstock_platform.services.supervisor import Supervisor
from penstock_platform.settings import Settings


class Connections(OwnConnections):
    """Connections to the services of the project in which the command was typed."""


class DagsterApi(dagster_api.DagsterApi):
    """This project's own Dagster. Raises DagsterApiError where it does not run."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        super().__init__(settings, clock)
        self._settings = settings

    def query(self, text: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
        supervisor = Supervisor(self._settings)
        try:
            states = supervisor.states() if supervisor.pid() is not None else {}
        except ServiceError:
            states = {}
        webserver = states.get("webserver")
        if webserver is None or webserver.pid is None:
            raise DagsterApiError(
                f"Dagster of this project ({self._settings.home}) does not run, and what answers "
                f"at {self._settings.dagster_url}, if anything, is another's; start it with "
                "`penstock up`"
            )
        return super().query(text, variables)
