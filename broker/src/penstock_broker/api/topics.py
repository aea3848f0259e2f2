"""Topics for the handlers: looked up, made, changed and deleted, with what follows from it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Mapping

from penstock_broker.cluster.metadata_store import MetadataStore
from penstock_broker.cluster.topic import Topic
from penstock_broker.config import BrokerConfig, ConfigEntry, ConfigError
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.replication.internal_topic import creation_of
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.steps import Step, run

DEFAULT_PARTITIONS = -1


class TopicAdmin:
    """What admin requests do to topics. ``on_deleted`` is called with each deleted topic's name."""

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

    def use_config(self, config: BrokerConfig) -> None:
        """The broker's settings have changed."""
        self._config = config

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
        """Create a topic at once. KafkaError as :meth:`creating`."""
        return run(self.creating(name, partitions, configs, validate_only=validate_only))

    def create_internal(self, name: str) -> Topic:
        """Create one of the broker's own topics, with the settings of its own, when it is first
        asked for. KafkaError as :meth:`creating`."""
        return run(self.creating_internal(name))

    def creating_internal(self, name: str) -> Generator[Step, None, Topic]:
        """:meth:`create_internal` step by step."""
        return (yield from self.creating(name, *creation_of(name, self._config)))

    def creating(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> Generator[Step, None, Topic]:
        """Create a topic step by step, -1 partitions meaning the broker's default. KafkaError as
        :meth:`ReplicaManager.create_topic`, and POLICY_VIOLATION where there is no space."""
        if partitions == DEFAULT_PARTITIONS:
            partitions = self._config.num_partitions
        self._metadata.check_new_topic(name, partitions, configs)
        self._check(configs)
        if validate_only:
            return Topic(name, uuid.uuid4(), (), configs, 0)
        self._require_space(partitions)
        return (yield from self._replicas.creating_topic(name, partitions, configs))

    def delete(self, topic: Topic) -> None:
        """Delete a topic at once. KafkaError as :meth:`ReplicaManager.delete_topic`."""
        run(self.deleting(topic))

    def deleting(self, topic: Topic) -> Generator[Step, None, None]:
        """Delete a topic step by step. KafkaError as :meth:`ReplicaManager.delete_topic`."""
        _require_not_internal(topic)
        try:
            yield from self._replicas.deleting_topic(topic.name)
        finally:
            if self._metadata.topic(topic.name) is None:
                self._on_deleted(topic.name)

    def growing(
        self, topic: Topic, total: int, *, validate_only: bool = False
    ) -> Generator[Step, None, None]:
        """Let a topic have ``total`` partitions, step by step. KafkaError."""
        _require_not_internal(topic)
        self._metadata.check_new_partitions(topic.name, total)
        if not validate_only:
            self._require_space(total - len(topic.partitions))
            yield from self._replicas.creating_partitions(topic.name, total)

    def _require_space(self, partitions: int) -> None:
        most = self._config.max_broker_partitions
        if self._replicas.total_partitions + partitions > most:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{self._replicas.total_partitions} and {partitions} more partitions are more than "
                f"max.broker.partitions, {most}.",
            )

    def setting_configs(
        self, topic: Topic, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> Generator[Step, None, None]:
        """Replace a topic's overrides; INVALID_CONFIG."""
        self._check(configs)
        if not validate_only:
            yield from self._replicas.setting_configs(topic.name, configs)

    def _check(self, configs: Mapping[str, str]) -> None:
        """INVALID_CONFIG unless they are valid, together and with the broker's own."""
        try:
            self._config.log.check_overrides(configs)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def describe(self, topic: Topic, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The settings of a topic with their sources."""
        return self._config.describe_topic(topic.configs, names)


def _require_not_internal(topic: Topic) -> None:
    """The broker finds what it keeps in its own topics by their partition count."""
    if topic.is_internal:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is the broker's own topic."
        )
