"""Fixtures for tests with real services; shipped, so a user's own project can test with them.

Use them by name after ``pytest_plugins = ["penstock_services.testing.fixtures"]`` in the top
``conftest.py``. A broker, an embedded S3 and a warm Spark Connect server are started once for a
process of the test run, on free ports, and stopped at its end.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock_platform.connections import Connections
from penstock_platform.settings import Settings
from penstock_services.testing.services import (
    ServiceProcess,
    Services,
    settings_on_free_ports,
)


@pytest.fixture(scope="session")
def penstock_services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Broker, S3 and Spark Connect of one home, running."""
    home = tmp_path_factory.mktemp("penstock") / "home"
    services = Services(settings_on_free_ports(home), ["broker", "s3", "spark"])
    with services.running():
        yield services


@pytest.fixture(scope="session")
def penstock_settings(penstock_services: Services) -> Settings:
    """Their settings."""
    return penstock_services.settings


@pytest.fixture(scope="session")
def penstock_broker(penstock_services: Services) -> ServiceProcess:
    """The broker's process."""
    return penstock_services["broker"]


@pytest.fixture(scope="session")
def s3(penstock_services: Services) -> ServiceProcess:
    """The embedded S3's process."""
    return penstock_services["s3"]


@pytest.fixture(scope="session")
def spark_connect(penstock_services: Services) -> ServiceProcess:
    """The Spark Connect server's process."""
    return penstock_services["spark"]


@pytest.fixture(scope="session")
def penstock(penstock_services: Services) -> Iterator[Connections]:
    """Connections to these services."""
    connections = Connections(penstock_services.settings)
    yield connections
    connections.spark.close()
