"""The transaction coordinator with what it needs, put together for a broker."""

from __future__ import annotations

from collections.abc import Callable

from penstock_broker.api.topics import TopicAdmin
from penstock_broker.clock import Clock, Timers
from penstock_broker.cluster.metadata_store import MetadataStore
from penstock_broker.cluster.topic import TRANSACTIONS_TOPIC
from penstock_broker.config import BrokerConfig
from penstock_broker.groups.coordinator import GroupCoordinator
from penstock_broker.metrics import Metrics
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.server.background import BackgroundJobs
from penstock_broker.transactions.coordinator import TransactionCoordinator, TransactionLimits
from penstock_broker.transactions.markers import MarkerWriter
from penstock_broker.transactions.topic import TransactionsTopic


class Transactions:
    """The coordinator, its topic and its jobs."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        timers: Timers,
        metadata: MetadataStore,
        replicas: ReplicaManager,
        topics: TopicAdmin,
        groups: GroupCoordinator,
        next_producer_id: Callable[[], int],
        metrics: Metrics,
    ) -> None:
        self._config = config
        self.topic = TransactionsTopic(
            clock=clock,
            metadata=metadata,
            replicas=replicas,
            create=lambda: topics.create_internal(TRANSACTIONS_TOPIC),
        )
        self.coordinator = TransactionCoordinator(
            clock=clock,
            timers=timers,
            store=self.topic,
            markers=MarkerWriter(clock, replicas, groups.offsets.transaction_decided),
            new_producer_id=next_producer_id,
            limits=TransactionLimits(
                config.transaction_max_timeout_ms,
                config.transactional_id_expiration_ms,
                config.transaction_verification_enable,
                config.transaction_coordinator_max_ids,
            ),
            metrics=metrics,
        )

    def load(self) -> None:
        """Take over what the log says, and finish what was decided.

        After the groups have been loaded: markers decide about their offsets.
        """
        self.coordinator.load(self.topic.load())
        self.coordinator.resume()

    def start(self, jobs: BackgroundJobs) -> None:
        """Look at the time every now and then."""
        config = self._config
        jobs.every(config.transaction_abort_interval_ms, self.coordinator.abort_expired)
        jobs.every(config.transaction_remove_interval_ms, self.coordinator.expire_ids)

    def stop(self) -> None:
        """Leave what is not finished to the next start."""
        self.coordinator.close()
