"""What a command talks to: the services of its own project, and no one else's.

Commands open ``Connections`` and ``DagsterApi`` from here. The first use of the cluster and of the
archive compares their ids with the recorded ones (``identity``). Dagster is asked only after the
entry points ``penstock.dagster`` let it: where ``penstock up`` runs Dagster, only while this
project's own webserver runs, because another's may hold its port.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from penstock_platform.cli import dagster_api
from penstock_platform.clock import Clock
from penstock_platform.identity import OwnConnections
from penstock_platform.lake.spark_session import CATALOG
from penstock_platform.settings import Settings

# Functions of Settings that raise DagsterApiError where what answers is not this project's Dagster.
DAGSTER_GROUP = "penstock.dagster"


class Connections(OwnConnections):
    """Connections to the services of the project in which the command was typed."""


class DagsterApi(dagster_api.DagsterApi):
    """This project's own Dagster. Raises DagsterApiError where it does not run."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        super().__init__(settings, clock)
        self._settings = settings

    def post(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        for point in entry_points(group=DAGSTER_GROUP):
            point.load()(self._settings)
        return super().post(path, document)


def in_lake(table: str) -> str:
    """The full name of a table that was given with or without its catalog."""
    return table if table.startswith(f"{CATALOG}.") else f"{CATALOG}.{table}"
