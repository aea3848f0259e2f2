"""The cluster's metadata: its id, topics with their ids and settings, producer ids.

:class:`MetadataStore` is what the rest of the broker uses; :class:`LocalMetadataStore` keeps it in
one file, for a broker on its own. Readers get immutable values; changes go through methods and
are on the disk when these return.

Format of ``metadata.json``: one JSON object, replaced as a whole (written beside, synced,
renamed): ``format`` (1), ``cluster_id``, ``broker_id``, ``next_producer_id``,
``first_leader_epoch``, ``topics`` (``name``, ``id``, ``created_ms``, ``configs``,
``leader_epochs`` by partition), ``deleting`` (name by topic id: topics whose logs are still to be
removed) and ``sections``: what other parts of the broker keep with the cluster (ACLs, SCRAM
credentials, quotas, …), one JSON object by name, whose form its owner describes.
"""

from __future__ import annotations

import base64
import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from penstock_broker.clock import Clock
from penstock_broker.cluster.topic import PartitionMetadata, Topic, check_topic_name, collides
from penstock_broker.config import ConfigError, LogConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.files import Files, read_file, replace_file
from penstock_broker.log.keys import TopicPartition

_log = logging.getLogger(__name__)

FORMAT_VERSION = 1
PARTITIONS_MAX = 10_000
"""The most partitions of one topic: a request for 2^31 of them would fill the disk."""
PRODUCER_ID_BLOCK = 1_000


class MetadataError(Exception):
    """The metadata cannot be used; ``str()`` says why, for the user."""


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

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str], topic_id: uuid.UUID
    ) -> Topic:
        """Add a topic whose logs are there already. KafkaError as :meth:`check_new_topic`."""
        ...

    def check_new_partitions(self, name: str, total: int) -> Topic:
        """Whether a topic could have ``total`` partitions. KafkaError:
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS."""
        ...

    def add_partitions(self, name: str, total: int) -> Topic:
        """Let a topic have ``total`` partitions. KafkaError as :meth:`check_new_partitions`."""
        ...

    def set_configs(self, name: str, configs: Mapping[str, str]) -> Topic:
        """Replace a topic's overrides. KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG."""
        ...

    def delete_topic(self, name: str) -> Topic:
        """Remove a topic, and remember that its logs have to go. UNKNOWN_TOPIC_OR_PARTITION."""
        ...

    def deleting(self) -> Mapping[uuid.UUID, str]:
        """Topics that were deleted and whose logs may still be there."""
        ...

    def forget_deleted(self, topic_ids: Iterable[uuid.UUID]) -> None:
        """Their logs are gone."""
        ...

    def raise_leader_epochs(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin a new leader epoch for partitions that may have lost records."""
        ...

    def allocate_producer_ids(self) -> range:
        """A block of producer ids that nobody gets again."""
        ...

    def section(self, name: str) -> Mapping[str, Any]:
        """What another part of the broker keeps here: a JSON object, empty at first."""
        ...

    def put_section(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace a section; it is on the disk when this returns. OSError: nothing changed."""
        ...


def new_cluster_id() -> str:
    """A random id in Kafka's form: 16 bytes, URL-safe base64 without padding, no leading dash."""
    while True:
        text = uuid_text(uuid.uuid4())
        if not text.startswith("-"):
            return text


def uuid_text(value: uuid.UUID) -> str:
    """22 characters of URL-safe base64, as Kafka prints ids."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


class LocalMetadataStore:
    """The metadata of a broker on its own, in one file. Owned by the event loop."""

    def __init__(self, path: Path, files: Files, clock: Clock, broker_id: int) -> None:
        """Read the file, or begin it. :class:`MetadataError`, OSError."""
        self._path = path
        self._files = files
        self._clock = clock
        self._broker_id = broker_id
        self._version = 0
        self._topics: Mapping[str, Topic] = MappingProxyType({})
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._deleting: dict[uuid.UUID, str] = {}
        self._next_producer_id = 0
        self._first_leader_epoch = 0
        self._cluster_id = ""
        self._sections: dict[str, Mapping[str, Any]] = {}
        if files.exists(path):
            self._load()
        else:
            self._cluster_id = new_cluster_id()
            self._save()

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
        return self._topics

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    # -- changes -----------------------------------------------------------------------------

    def check_new_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        check_topic_name(name)
        if name in self._topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        for other in self._topics:
            if collides(name, other):
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Topic '{name}' collides with existing topic: {other}",
                )
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

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str], topic_id: uuid.UUID
    ) -> Topic:
        self.check_new_topic(name, partitions, configs)
        parts = self._new_partitions(0, partitions)
        topic = Topic(name, topic_id, parts, MappingProxyType(dict(configs)), self._clock.now_ms())
        self._put(topic)
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

    def add_partitions(self, name: str, total: int) -> Topic:
        topic = self.check_new_partitions(name, total)
        more = self._new_partitions(len(topic.partitions), total)
        topic = replace(topic, partitions=topic.partitions + more)
        self._put(topic)
        return topic

    def set_configs(self, name: str, configs: Mapping[str, str]) -> Topic:
        topic = self._known(name)
        _check_configs(configs)
        topic = replace(topic, configs=MappingProxyType(dict(configs)))
        self._put(topic)
        return topic

    def delete_topic(self, name: str) -> Topic:
        topic = self._known(name)
        # A topic of the same name must not fall back to epochs that clients have seen.
        latest = max(partition.leader_epoch for partition in topic.partitions)
        with self._saved():
            self._first_leader_epoch = max(self._first_leader_epoch, latest + 1)
            self._deleting = {**self._deleting, topic.topic_id: name}
            self._topics = MappingProxyType({k: v for k, v in self._topics.items() if k != name})
        return topic

    def deleting(self) -> Mapping[uuid.UUID, str]:
        return dict(self._deleting)

    def forget_deleted(self, topic_ids: Iterable[uuid.UUID]) -> None:
        gone = set(topic_ids)
        with self._saved():
            self._deleting = {k: v for k, v in self._deleting.items() if k not in gone}

    def raise_leader_epochs(self, partitions: Iterable[TopicPartition]) -> None:
        topics = dict(self._topics)
        for name, index in partitions:
            parts = list(topics[name].partitions)
            parts[index] = replace(parts[index], leader_epoch=parts[index].leader_epoch + 1)
            topics[name] = replace(topics[name], partitions=tuple(parts))
        self._replace_topics(topics)

    def allocate_producer_ids(self) -> range:
        first = self._next_producer_id
        with self._saved():
            self._next_producer_id = first + PRODUCER_ID_BLOCK
        return range(first, first + PRODUCER_ID_BLOCK)

    def section(self, name: str) -> Mapping[str, Any]:
        return self._sections.get(name, MappingProxyType({}))

    def put_section(self, name: str, value: Mapping[str, Any]) -> None:
        with self._saved():
            self._sections = {**self._sections, name: dict(value)}

    def _known(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def _new_partitions(self, first: int, total: int) -> tuple[PartitionMetadata, ...]:
        here, epoch = (self._broker_id,), self._first_leader_epoch
        return tuple(
            PartitionMetadata(index, self._broker_id, epoch, here, here)
            for index in range(first, total)
        )

    def _put(self, topic: Topic) -> None:
        self._replace_topics({**self._topics, topic.name: topic})

    def _replace_topics(self, topics: Mapping[str, Topic]) -> None:
        with self._saved():
            self._topics = MappingProxyType(dict(sorted(topics.items())))

    @contextmanager
    def _saved(self) -> Iterator[None]:
        """Save what the block changes. OSError: all of it is as before, in memory and, as far as
        the disk allows, in the file, whose rename may have been done when the error came."""
        before = (
            self._topics, self._deleting, self._sections, self._next_producer_id,
            self._first_leader_epoch,
        )  # fmt: skip
        yield
        try:
            self._save()
        except OSError:
            (
                self._topics, self._deleting, self._sections, self._next_producer_id,
                self._first_leader_epoch,
            ) = before  # fmt: skip
            self._save_again()
            raise
        if self._topics is not before[0]:
            self._by_id = {topic.topic_id: topic for topic in self._topics.values()}
        if self._topics is not before[0] or self._sections is not before[2]:
            self._version += 1

    # -- the file ----------------------------------------------------------------------------

    def _save(self) -> None:
        document = {
            "format": FORMAT_VERSION,
            "cluster_id": self._cluster_id,
            "broker_id": self._broker_id,
            "next_producer_id": self._next_producer_id,
            "first_leader_epoch": self._first_leader_epoch,
            "topics": [_topic_to_json(topic) for topic in self._topics.values()],
            "deleting": {str(topic_id): name for topic_id, name in self._deleting.items()},
            "sections": self._sections,
        }
        replace_file(self._files, self._path, json.dumps(document, indent=1).encode() + b"\n")

    def _save_again(self) -> None:
        try:
            self._save()
        except OSError as error:
            _log.error("%s may hold a change that was refused: %s", self._path, error)

    def _load(self) -> None:
        try:
            document = json.loads(read_file(self._files, self._path))
            version, broker_id = document["format"], document["broker_id"]
            if version != FORMAT_VERSION:
                raise MetadataError(f"{self._path} has format {version}, not {FORMAT_VERSION}")
            if broker_id != self._broker_id:
                raise MetadataError(
                    f"{self._path} belongs to broker.id {broker_id}, not {self._broker_id}"
                )
            self._cluster_id = document["cluster_id"]
            self._next_producer_id = document["next_producer_id"]
            self._first_leader_epoch = document["first_leader_epoch"]
            self._deleting = {uuid.UUID(k): v for k, v in document["deleting"].items()}
            self._sections = dict(document.get("sections", {}))
            topics = [_topic_from_json(entry, broker_id) for entry in document["topics"]]
        except (ValueError, KeyError, TypeError) as error:
            raise MetadataError(f"{self._path} is damaged: {error!r}") from error
        self._topics = MappingProxyType({t.name: t for t in sorted(topics, key=lambda t: t.name)})
        self._by_id = {topic.topic_id: topic for topic in topics}


def _check_configs(configs: Mapping[str, str]) -> None:
    try:
        LogConfig().check_overrides(configs)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _topic_to_json(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": str(topic.topic_id),
        "created_ms": topic.created_ms,
        "configs": dict(topic.configs),
        "leader_epochs": [partition.leader_epoch for partition in topic.partitions],
    }


def _topic_from_json(entry: Mapping[str, Any], broker_id: int) -> Topic:
    here = (broker_id,)
    return Topic(
        entry["name"],
        uuid.UUID(entry["id"]),
        tuple(
            PartitionMetadata(index, broker_id, epoch, here, here)
            for index, epoch in enumerate(entry["leader_epochs"])
        ),
        MappingProxyType(dict(entry["configs"])),
        entry["created_ms"],
    )
