"""Topics for the handlers: looked up, made, changed and deleted, with what follows from it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping

from penstock_broker.cluster.metadata_store import MetadataStore
from penstock_broker.cluster.topic import Topic
from penstock_broker.config import BrokerConfig, ConfigEntry
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.replication.replica_manager import ReplicaManager

DEFAULT_PARTITIONS = -1


class TopicAdmin:
    """What admin requests do to topics. ``on_deleted`` is told each deleted topic's name."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataStore,
        replicas: ReplicaManager,
        *,
        on_deleted: Callable[[str], None],
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._replicas = replicas
        self._on_deleted = on_deleted

    def all(self) -> Iterable[Topic]:
        """Every topic."""
        return self._metadata.topics.values()

    def by_name(self, name: str) -> Topic:
        """A topic; UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self._metadata.topic(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def by_id(self, topic_id: uuid.UUID) -> Topic:
        """A topic; UNKNOWN_TOPIC_ID."""
        topic = self._metadata.topic_by_id(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic

    def has_partition(self, name: str, index: int) -> bool:
        """Whether the metadata knows this partition."""
        topic = self._metadata.topic(name)
        return topic is not None and 0 <= index < len(topic.partitions)

    def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic, -1 partitions meaning the broker's default. KafkaError as
        :meth:`ReplicaManager.create_topic`."""
        if partitions == DEFAULT_PARTITIONS:
            partitions = self._config.num_partitions
        if validate_only:
            self._metadata.check_new_topic(name, partitions, configs)
            return Topic(name, uuid.UUID(int=0), (), configs, 0)
        return self._replicas.create_topic(name, partitions, configs)

    def delete(self, topic: Topic) -> None:
        """Delete a topic. KafkaError as :meth:`ReplicaManager.delete_topic`."""
        _require_not_internal(topic)
        self._replicas.delete_topic(topic.name)
        self._on_deleted(topic.name)

    def grow(self, topic: Topic, total: int, *, validate_only: bool = False) -> None:
        """Let a topic have ``total`` partitions. KafkaError."""
        _require_not_internal(topic)
        if validate_only:
            self._metadata.check_new_partitions(topic.name, total)
        else:
            self._replicas.create_partitions(topic.name, total)

    def set_configs(
        self, topic: Topic, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace a topic's overrides; INVALID_CONFIG."""
        try:
            self._config.topic_config(configs)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        if not validate_only:
            self._replicas.set_configs(topic.name, configs)

    def describe(self, topic: Topic, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The settings of a topic with their sources."""
        return self._config.describe_topic(topic.configs, names)


def _require_not_internal(topic: Topic) -> None:
    """The broker finds what it keeps in its own topics by their partition count."""
    if topic.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is the broker's own topic."
        )
