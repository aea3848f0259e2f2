"""Replica assignments that a client gives itself, checked in the words of Apache Kafka."""

from __future__ import annotations

from collections.abc import Sequence

from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ErrorCode, KafkaError


def invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def check_replicas(broker_ids: Sequence[int], broker_id: int) -> None:
    """INVALID_REPLICA_ASSIGNMENT unless the only broker is the only replica."""
    if not broker_ids:
        raise invalid("The manual partition assignment includes an empty replica list.")
    for number in sorted(broker_ids):
        if broker_ids.count(number) > 1:
            raise invalid(
                f"The manual partition assignment includes the broker {number} more than once."
            )
        if number != broker_id:
            raise invalid(
                f"The manual partition assignment includes broker {number}, but no such broker is "
                "registered."
            )


def check_replication(factor: int, config: BrokerConfig) -> None:
    """INVALID_REPLICATION_FACTOR unless one broker can meet it; -1 is
    ``default.replication.factor``."""
    if factor == -1:
        factor = config.default_replication_factor
    if factor == 1:
        return
    text = "Replication factor must be larger than 0, or -1 to use the default value."
    if factor > 1:
        text = (
            f"Unable to replicate the partition {factor} time(s): The target replication factor of "
            f"{factor} cannot be reached because only 1 broker(s) are registered."
        )
    raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)


def check_partitions(indexes: Sequence[int]) -> int:
    """How many partitions are assigned; INVALID_REPLICA_ASSIGNMENT unless they begin at 0 and
    none is missing or there twice."""
    for index in sorted(set(indexes)):
        if indexes.count(index) > 1:
            raise invalid(f"Found multiple manual partition assignments for partition {index}")
    if sorted(indexes) != list(range(len(indexes))):
        raise invalid("partitions should be a consecutive 0-based integer sequence")
    return len(indexes)
