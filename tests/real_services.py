"""A broker and an embedded S3 alone, without Spark: started once a process of the run.

``PENSTOCK_TEST_KAFKA`` names another Kafka to run the cluster's tests against (Apache's, say).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from penstock_platform.kafka.cluster import KafkaCluster
from penstock_platform.settings import KafkaSettings, Settings
from penstock_services.testing.services import Services, settings_on_free_ports

FOREIGN_KAFKA = "PENSTOCK_TEST_KAFKA"


@pytest.fixture(scope="session")
def embedded_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a running S3Proxy."""
    services = Services(settings_on_free_ports(tmp_path_factory.mktemp("s3") / "home"), ["s3"])
    with services.running():
        yield services.settings


@pytest.fixture(scope="session")
def cluster_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a running broker of ours, or of the one that is named."""
    home = tmp_path_factory.mktemp("kafka") / "home"
    if address := os.environ.get(FOREIGN_KAFKA):
        yield Settings(home=home, kafka=KafkaSettings(bootstrap_servers=address))
        return
    services = Services(settings_on_free_ports(home), ["broker"])
    with services.running():
        yield services.settings


@pytest.fixture(scope="session")
def kafka(cluster_settings: Settings) -> KafkaCluster:
    return KafkaCluster(cluster_settings)
