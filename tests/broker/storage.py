"""The storage of one broker, without a network, as the composition root builds it."""

from __future__ import annotations

from pathlib import Path

from penstock_broker.cluster.metadata_store import LocalMetadataStore
from penstock_broker.cluster.topic import OFFSETS_TOPIC
from penstock_broker.config import BrokerConfig
from penstock_broker.groups.offsets import OffsetsTopic
from penstock_broker.log.files import Files
from penstock_broker.log.manager import LogManager
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.testing import SimClock


class Storage:
    """Logs, metadata and replicas on a simulated or a real disk, started."""

    def __init__(
        self, data_dir: Path, clock: SimClock, files: Files, settings: dict[str, str]
    ) -> None:
        config = BrokerConfig.parse(settings)
        self._clock = clock
        self.logs = LogManager(data_dir, clock, files)
        self.logs.open()
        path = data_dir / "metadata.json"
        self.metadata = LocalMetadataStore(path, files, clock, config.broker_id)
        self.replicas = ReplicaManager(config, self.metadata, self.logs)
        self.replicas.start()

    def offsets_topic(self) -> OffsetsTopic:
        """The topic of committed offsets; of two partitions, if it has to be made."""
        return OffsetsTopic(
            clock=self._clock,
            metadata=self.metadata,
            replicas=self.replicas,
            create=lambda: self.replicas.create_topic(OFFSETS_TOPIC, 2, {}),
        )
