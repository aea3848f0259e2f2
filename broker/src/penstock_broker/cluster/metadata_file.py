"""The metadata as a value, and the file that it is kept in, ``metadata.json``.

One JSON object, replaced as a whole (written beside, synced, renamed): ``format`` (1),
``cluster_id``, ``broker_id``, ``next_producer_id``, ``first_leader_epoch``, ``topics`` (``name``,
``id``, ``created_ms``, ``configs``, ``leader_epochs`` by partition; one topic a line), ``deleting``
(name by topic id: topics whose logs are still to be removed) and ``sections``: what other parts of
the broker keep with the cluster (ACLs, SCRAM credentials, quotas, …), one JSON object by name,
whose form its owner describes.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from penstock_broker.cluster.topic import PartitionMetadata, Topic
from penstock_broker.log.files import Files, read_file, replace_file

FORMAT_VERSION = 1


class MetadataError(Exception):
    """The metadata cannot be used; ``str()`` says why, for the user."""


@dataclass(frozen=True, slots=True)
class MetadataState:
    """All of it at one time. Never changed, so that any thread may write it down."""

    topics: Mapping[str, Topic] = field(default_factory=dict)
    """By name, sorted."""
    deleting: Mapping[uuid.UUID, str] = field(default_factory=dict)
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    next_producer_id: int = 0
    first_leader_epoch: int = 0

    def with_topics(self, *topics: Topic) -> MetadataState:
        """With topics that are new, or replace others of their names."""
        named = {**self.topics, **{topic.name: topic for topic in topics}}
        if len(named) > len(self.topics):
            named = dict(sorted(named.items()))
        return replace(self, topics=MappingProxyType(named))

    def without_topic(self, topic: Topic) -> MetadataState:
        """Without a topic, whose logs are to be removed."""
        # A topic of the same name must not fall back to epochs that clients have seen.
        latest = max(partition.leader_epoch for partition in topic.partitions)
        return replace(
            self,
            topics=MappingProxyType({k: v for k, v in self.topics.items() if k != topic.name}),
            deleting={**self.deleting, topic.topic_id: topic.name},
            first_leader_epoch=max(self.first_leader_epoch, latest + 1),
        )

    def without_deleted(self, topic_ids: Iterable[uuid.UUID]) -> MetadataState:
        """The logs of these topics have been removed."""
        gone = set(topic_ids)
        return replace(self, deleting={k: v for k, v in self.deleting.items() if k not in gone})


class MetadataFile:
    """``metadata.json``. One thread at a time."""

    def __init__(self, path: Path, files: Files, broker_id: int) -> None:
        self.cluster_id = ""
        self._path = path
        self._files = files
        self._broker_id = broker_id
        self._lines: dict[uuid.UUID, tuple[Topic, str]] = {}  # as they were written last

    def load(self) -> MetadataState:
        """What the file says; a file and a new cluster id where there is none.
        :class:`MetadataError`, OSError."""
        if self._files.exists(self._path):
            return self._load()
        self.cluster_id = new_cluster_id()
        state = MetadataState()
        self.save(state)
        return state

    def save(self, state: MetadataState) -> None:
        """Replace the file; it is on the disk when this returns. OSError."""
        document = {
            "format": FORMAT_VERSION,
            "cluster_id": self.cluster_id,
            "broker_id": self._broker_id,
            "next_producer_id": state.next_producer_id,
            "first_leader_epoch": state.first_leader_epoch,
            "deleting": {str(topic_id): name for topic_id, name in state.deleting.items()},
            "sections": state.sections,
        }
        head = json.dumps(document, indent=1)[:-2]  # without the closing brace
        topics = ",\n  ".join(self._topic_lines(state.topics.values()))
        text = f'{head},\n "topics": [{topics}]\n}}\n'
        replace_file(self._files, self._path, text.encode())

    def _topic_lines(self, topics: Iterable[Topic]) -> list[str]:
        """A topic is turned into text once: there may be thousands, and one changes."""
        before, self._lines = self._lines, {}
        for topic in topics:
            known = before.get(topic.topic_id)
            line = known if known and known[0] is topic else (topic, _topic_to_json(topic))
            self._lines[topic.topic_id] = line
        return [text for _, text in self._lines.values()]

    def _load(self) -> MetadataState:
        path = self._path
        try:
            document = json.loads(read_file(self._files, path))
            version, broker_id = document["format"], document["broker_id"]
            if version != FORMAT_VERSION:
                raise MetadataError(f"{path} has format {version}, not {FORMAT_VERSION}")
            if broker_id != self._broker_id:
                raise MetadataError(
                    f"{path} belongs to broker.id {broker_id}, not {self._broker_id}"
                )
            self.cluster_id = document["cluster_id"]
            topics = [_topic_from_json(entry, broker_id) for entry in document["topics"]]
            return MetadataState(
                MappingProxyType({t.name: t for t in sorted(topics, key=lambda t: t.name)}),
                {uuid.UUID(k): v for k, v in document["deleting"].items()},
                dict(document.get("sections", {})),
                document["next_producer_id"],
                document["first_leader_epoch"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise MetadataError(f"{path} is damaged: {error!r}") from error


def new_cluster_id() -> str:
    """A random id in Kafka's form: 16 bytes, URL-safe base64 without padding, no leading dash."""
    while True:
        text = uuid_text(uuid.uuid4())
        if not text.startswith("-"):
            return text


def uuid_text(value: uuid.UUID) -> str:
    """22 characters of URL-safe base64, as Kafka prints ids."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def _topic_to_json(topic: Topic) -> str:
    return json.dumps(
        {
            "name": topic.name,
            "id": str(topic.topic_id),
            "created_ms": topic.created_ms,
            "configs": dict(topic.configs),
            "leader_epochs": [partition.leader_epoch for partition in topic.partitions],
        }
    )


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
