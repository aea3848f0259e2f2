"""An unreachable cluster is reported at once, in a sentence that says what to do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock_platform.kafka.cluster import KafkaCluster
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.settings import KafkaSettings, Settings


def test_a_refused_connection_names_address_and_remedy(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = Settings(home=tmp_path, kafka=KafkaSettings(bootstrap_servers=address))
        with pytest.raises(ClusterError, match=f"{address}.*penstock up"):
            KafkaCluster(settings).cluster_id()
