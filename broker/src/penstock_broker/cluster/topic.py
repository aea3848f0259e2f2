"""Topics as immutable values, and what makes a name valid."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock_broker.errors import ErrorCode, KafkaError

TOPIC_NAME_MAX = 249
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The replicas of a partition."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its id is never given out again, its name may be."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionMetadata, ...]
    configs: Mapping[str, str]
    """Its overrides, as text."""
    created_ms: int

    @property
    def is_internal(self) -> bool:
        """Whether it is one of the broker's own."""
        return self.name in INTERNAL_TOPICS


def check_topic_name(name: str) -> None:
    """KafkaError INVALID_TOPIC_EXCEPTION unless the name is one that Kafka takes."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_MAX:
        problem = f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_MAX}"
    elif not _NAME.fullmatch(name):
        problem = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def check_collisions(name: str, others: Iterable[str]) -> None:
    """KafkaError INVALID_TOPIC_EXCEPTION where another name is the same in metrics, in which '.'
    and '_' are one. Only names that have one of these can be."""
    if "." not in name and "_" not in name:
        return
    in_metrics = name.replace(".", "_")
    for other in others:
        if len(other) == len(name) and other.replace(".", "_") == in_metrics and other != name:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )
