"""The broker's own topics: how they are made.

Kafka makes them alike for a coordinator and for a client that merely asks for their metadata
(``AutoTopicCreationManager.creatableTopic``). With the settings of other topics retention would
delete what the coordinators have to remember.
"""

from __future__ import annotations

from penstock_broker.cluster.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock_broker.config import BrokerConfig


def creation_of(name: str, config: BrokerConfig) -> tuple[int, dict[str, str]]:
    """Partitions and overrides of an internal topic. ValueError for any other name."""
    if name == OFFSETS_TOPIC:
        return config.offsets_topic_num_partitions, {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
    if name == TRANSACTIONS_TOPIC:
        return config.transaction_log_num_partitions, {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_log_min_isr),
            "segment.bytes": str(config.transaction_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
    raise ValueError(f"{name} is not an internal topic")
