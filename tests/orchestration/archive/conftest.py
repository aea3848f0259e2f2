"""A broker, an embedded S3 and a simulated cluster for the tests of this folder, without Spark.

``PENSTOCK_TEST_KAFKA`` names another Kafka to run the cluster's tests against (Apache's, say).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from freezing import SPEC

from penstock_platform.resources.freezer import freeze_due
from penstock_platform.resources.kafka import KafkaCluster
from penstock_platform.resources.windows import WindowStore
from penstock_platform.settings import KafkaSettings, Settings
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH, ManualClock
from penstock_platform.testing.cluster import MemoryCluster
from penstock_platform.testing.services import Services, settings_on_free_ports

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


@pytest.fixture
def world():
    """A simulated cluster with a topic of two partitions, its clock, the store, and a freezer."""
    cluster, clock = MemoryCluster(), ManualClock()
    cluster.add_topic("t", 2)
    store = WindowStore(MemoryArchive())

    def freeze(spec=SPEC, **options):
        return freeze_due(cluster, store, spec, clock, start=EPOCH, **options)

    return cluster, clock, store, freeze
