"""The cluster's metadata: its id, topics with their ids and settings, producer ids.

:class:`MetadataStore` is what the rest of the broker uses; :class:`LocalMetadataStore` keeps it in
one file (``metadata_file.py``), for a broker on its own. Readers get immutable values; changes are
made in steps, and are on the disk when these have ended.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from penstock_broker.clock import Clock
from penstock_broker.cluster.metadata_file import MetadataFile, MetadataState
from penstock_broker.cluster.topic import (
    PartitionMetadata,
    Topic,
    check_collisions,
    check_topic_name,
)
from penstock_broker.config import ConfigError, LogConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.files import Files
from penstock_broker.log.keys import TopicPartition
from penstock_broker.log.saving import Saver
from penstock_broker.steps import Commit, Made, run

PARTITIONS_MAX = 10_000
"""The most partitions of one topic: a request for 2^31 of them would fill the disk."""
PRODUCER_ID_BLOCK = 1_000


Change = Generator[Commit, None, Made]
"""A change to the metadata in steps (``penstock_broker/steps.py``): a thread saves it, together
with all others that are made meanwhile, and only then readers see it. OSError: nothing changed."""


class MetadataStore(Protocol):
    """What the brokers of a cluster agree on."""

    @property
    def cluster_id(self) -> str:
        """22 characters, as Kafka makes them; the same for as long as the data lives."""
        ...

    @property
    def broker_id(self) -> int:
        """This broker's id."""
        ...

    @property
    def version(self) -> int:
        """Grows with each change: what was made from an older one is stale."""
        ...

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name, sorted; a value that does not change under its holder."""
        ...

    def topic(self, name: str) -> Topic | None:
        """A topic by name."""
        ...

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """A topic by id."""
        ...

    def check_new_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Whether it could be created. KafkaError: INVALID_TOPIC_EXCEPTION,
        TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG."""
        ...

    def creating_topic(
        self, name: str, partitions: int, configs: Mapping[str, str], topic_id: uuid.UUID
    ) -> Change[Topic]:
        """Add a topic whose logs are there already. KafkaError as :meth:`check_new_topic`."""
        ...

    def check_new_partitions(self, name: str, total: int) -> Topic:
        """Whether a topic could have ``total`` partitions. KafkaError:
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS."""
        ...

    def adding_partitions(self, name: str, total: int) -> Change[Topic]:
        """Let a topic have ``total`` partitions. KafkaError as :meth:`check_new_partitions`."""
        ...

    def setting_configs(self, name: str, configs: Mapping[str, str]) -> Change[Topic]:
        """Replace a topic's overrides. KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG."""
        ...

    def deleting_topic(self, name: str) -> Change[Topic]:
        """Remove a topic, and remember that its logs have to go. UNKNOWN_TOPIC_OR_PARTITION."""
        ...

    def deleting(self) -> Mapping[uuid.UUID, str]:
        """Topics that were deleted and whose logs may still be there."""
        ...

    def remove_deleted(self, topic_ids: Iterable[uuid.UUID]) -> None:
        """Their logs are gone, and that is on the disk; the next change writes it down. Until then
        a start looks for logs that are gone, which costs nothing."""
        ...

    def raising_leader_epochs(self, partitions: Iterable[TopicPartition]) -> Change[None]:
        """Begin a new leader epoch for partitions that may have lost records."""
        ...

    def allocating_producer_ids(self) -> Change[range]:
        """A block of producer ids that is allocated once."""
        ...

    def section(self, name: str) -> Mapping[str, Any]:
        """What another part of the broker keeps here: a JSON object, empty at first."""
        ...

    def putting_section(self, name: str, value: Mapping[str, Any]) -> Change[None]:
        """Replace a section."""
        ...

    def put_section(self, name: str, value: Mapping[str, Any]) -> None:
        """The same at once. OSError: nothing changed."""
        ...


class LocalMetadataStore:
    """The metadata of a broker on its own, in one file. Owned by the event loop.

    There are two states of it: what readers see, which is always on the disk, and what was offered
    to be saved, from which the next change is made.
    """

    def __init__(self, path: Path, files: Files, clock: Clock, broker_id: int) -> None:
        """Read the file, or begin it. :class:`MetadataError`, OSError."""
        self._clock = clock
        self._broker_id = broker_id
        self._version = 0
        file = MetadataFile(path, files, broker_id)
        self._seen = file.load()
        self._cluster_id = file.cluster_id
        self._by_id = {topic.topic_id: topic for topic in self._seen.topics.values()}
        self._saver = Saver(file.save, self._seen, name=str(path), builds=True)

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def broker_id(self) -> int:
        return self._broker_id

    @property
    def version(self) -> int:
        return self._version

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self._seen.topics

    def topic(self, name: str) -> Topic | None:
        return self._seen.topics.get(name)

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    # -- changes -----------------------------------------------------------------------------

    @property
    def _newest(self) -> MetadataState:
        return self._saver.offered

    def _change(self, state: MetadataState) -> Change[None]:
        """Have a state saved that was made from the newest one, then let readers see it."""
        ticket = self._saver.offer(state)
        try:
            yield Commit(partial(self._saver.save, ticket))
        except OSError:
            self._saver.take_back(ticket)
            raise
        before, self._seen = self._seen, self._saver.saved
        if self._seen.topics is not before.topics:
            self._by_id = {topic.topic_id: topic for topic in self._seen.topics.values()}
            self._version += 1
        elif self._seen.sections is not before.sections:
            self._version += 1

    def check_new_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        check_topic_name(name)
        topics = self._newest.topics
        if name in topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        check_collisions(name, topics)
        if partitions < 1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            )
        if partitions > PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
            )
        _check_configs(configs)

    def creating_topic(
        self, name: str, partitions: int, configs: Mapping[str, str], topic_id: uuid.UUID
    ) -> Change[Topic]:
        self.check_new_topic(name, partitions, configs)
        parts = self._new_partitions(0, partitions)
        topic = Topic(name, topic_id, parts, MappingProxyType(dict(configs)), self._clock.now_ms())
        yield from self._change(self._newest.with_topics(topic))
        return topic

    def check_new_partitions(self, name: str, total: int) -> Topic:
        topic = self._known(name)
        count = len(topic.partitions)
        if total <= count:
            text = f"The topic {name} currently has {count} partition(s); {total} would not be an "
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic already has {count} partition(s)."
                if total == count
                else text + "increase.",
            )
        if total > PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"The most that a topic may have is {PARTITIONS_MAX}."
            )
        return topic

    def adding_partitions(self, name: str, total: int) -> Change[Topic]:
        topic = self.check_new_partitions(name, total)
        more = self._new_partitions(len(topic.partitions), total)
        topic = replace(topic, partitions=topic.partitions + more)
        yield from self._change(self._newest.with_topics(topic))
        return topic

    def setting_configs(self, name: str, configs: Mapping[str, str]) -> Change[Topic]:
        topic = self._known(name)
        _check_configs(configs)
        topic = replace(topic, configs=MappingProxyType(dict(configs)))
        yield from self._change(self._newest.with_topics(topic))
        return topic

    def deleting_topic(self, name: str) -> Change[Topic]:
        topic = self._known(name)
        yield from self._change(self._newest.without_topic(topic))
        return topic

    def deleting(self) -> Mapping[uuid.UUID, str]:
        return self._newest.deleting

    def remove_deleted(self, topic_ids: Iterable[uuid.UUID]) -> None:
        self._saver.offer(self._newest.without_deleted(topic_ids))

    def raising_leader_epochs(self, partitions: Iterable[TopicPartition]) -> Change[None]:
        raised: dict[str, list[PartitionMetadata]] = {}
        for name, index in partitions:
            if name not in raised:
                raised[name] = list(self._newest.topics[name].partitions)
            part = raised[name][index]
            raised[name][index] = replace(part, leader_epoch=part.leader_epoch + 1)
        topics = [
            replace(self._newest.topics[name], partitions=tuple(parts))
            for name, parts in raised.items()
        ]
        yield from self._change(self._newest.with_topics(*topics))

    def allocating_producer_ids(self) -> Change[range]:
        first = self._newest.next_producer_id
        following = first + PRODUCER_ID_BLOCK
        yield from self._change(replace(self._newest, next_producer_id=following))
        return range(first, following)

    def section(self, name: str) -> Mapping[str, Any]:
        return self._seen.sections.get(name, MappingProxyType({}))

    def putting_section(self, name: str, value: Mapping[str, Any]) -> Change[None]:
        sections = {**self._newest.sections, name: dict(value)}
        yield from self._change(replace(self._newest, sections=sections))

    def put_section(self, name: str, value: Mapping[str, Any]) -> None:
        run(self.putting_section(name, value))

    def _known(self, name: str) -> Topic:
        topic = self._newest.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def _new_partitions(self, first: int, total: int) -> tuple[PartitionMetadata, ...]:
        here, epoch = (self._broker_id,), self._newest.first_leader_epoch
        return tuple(
            PartitionMetadata(index, self._broker_id, epoch, here, here)
            for index in range(first, total)
        )


def _check_configs(configs: Mapping[str, str]) -> None:
    try:
        LogConfig().check_overrides(configs)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
