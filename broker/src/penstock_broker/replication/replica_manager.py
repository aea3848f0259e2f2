"""The partitions of this broker: made, found again at a start, changed and deleted.

It keeps metadata and logs in step. The order of the steps decides what a crash between them
leaves: a topic's logs are made before its metadata says so, and it leaves the metadata before
its logs go. So at a start a log that no topic knows was never acknowledged (removed when empty,
set aside when not) or belongs to a topic that was being deleted (removed); and a topic whose log
is missing has lost it, which the recovery report says.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping

from penstock_broker.cluster.metadata_store import MetadataStore
from penstock_broker.cluster.topic import Topic, check_collisions
from penstock_broker.config import BrokerConfig, LogConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.keys import TopicPartition
from penstock_broker.log.log import Log
from penstock_broker.log.manager import LogManager
from penstock_broker.replication.partition import Partition
from penstock_broker.steps import Commit, Step, run

_log = logging.getLogger(__name__)

Listener = Callable[[Partition, int], None]
DELETED_AT_ONCE = 25
"""Logs deleted in one step."""


class ReplicaManager:
    """All partitions that this broker has. Owned by the event loop."""

    def __init__(self, config: BrokerConfig, metadata: MetadataStore, logs: LogManager) -> None:
        self.logs = logs
        self.advance_listeners: list[Listener] = []
        """Called with partition and bytes after each append that consumers can see."""
        self.removal_listeners: list[Callable[[Partition], None]] = []
        """Called with a partition that is going away, before its log does."""
        self.failure_listeners: list[Callable[[str, int], None]] = []
        """Called with topic and partition whose log has gone offline."""
        logs.on_failed = self._failed
        logs.on_start_moved = self._start_moved
        self._config = config
        self._metadata = metadata
        self._partitions: dict[TopicPartition, Partition] = {}
        self._offline: dict[TopicPartition, str] = {}
        self._creating: set[str] = set()  # topics, step by step
        self._created = 0  # logs of theirs

    # -- start and stop ----------------------------------------------------------------------

    def start(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Open every log that the metadata names; ``logs`` is open already. OSError.

        ``progress`` is called after each log with how many are open of how many; an exception
        of it ends the start.
        """
        found = self.logs.found()
        self._finish_deletions(found)
        lost: list[TopicPartition] = []
        total = sum(len(topic.partitions) for topic in self._metadata.topics.values())
        for topic in self._metadata.topics.values():
            config = self._log_config(topic.configs)
            for part in topic.partitions:
                if progress is not None:
                    progress(len(self._partitions) + len(self._offline), total)
                key = (topic.name, part.index)
                log = self._load(topic, part.index, config, found)
                if log is not None:
                    self._add(topic, part.index, log)
                    if not log.recovered.clean:
                        lost.append(key)
        self._clear_strays(found)
        if lost:
            # Offsets above the end may have been served before the crash with other records:
            # a new epoch distinguishes them (KIP-101).
            run(self._metadata.raising_leader_epochs(lost))
            for key in lost:
                epoch = self._metadata.topics[key[0]].partitions[key[1]].leader_epoch
                self._partitions[key].leader_epoch = epoch
        self.logs.finish_loading()

    def close(self) -> None:
        """Sync and close every log. OSError."""
        self._partitions.clear()
        self.logs.close()

    def _load(
        self,
        topic: Topic,
        index: int,
        config: LogConfig,
        found: dict[TopicPartition, uuid.UUID | None],
    ) -> Log | None:
        """Open a log, or begin it again where it is not there; None where it cannot be read."""
        is_there = (topic.name, index) in found
        topic_id = found.pop((topic.name, index), None)
        try:
            if topic_id == topic.topic_id:
                return self.logs.load(topic.name, index, config)
            if is_there and topic_id is None:
                self.logs.adopt(topic.name, index, topic.topic_id)
                return self.logs.load(topic.name, index, config)
            if is_there:
                self.logs.set_aside(topic.name, index, f"belongs to topic id {topic_id}")
            self.logs.report.add("missing", topic=topic.name, partition=index)
            return self.logs.create(topic.name, index, topic.topic_id, config, is_lost=True)
        except OSError as error:
            self._offline[topic.name, index] = str(error)
            self._report_offline(topic.name, index, error)
            return None

    def _report_offline(self, name: str, index: int, error: OSError) -> None:
        _log.error("%s-%d is offline: %s", name, index, error)
        try:
            self.logs.report.add("offline", topic=name, partition=index, reason=str(error))
        except OSError as problem:
            _log.error("the recovery report cannot be written: %s", problem)

    def _finish_deletions(self, found: dict[TopicPartition, uuid.UUID | None]) -> None:
        deleting = self._metadata.deleting()
        # Metadata that an older version could not save may name a topic that lives on.
        dead = {topic_id for topic_id in deleting if self._metadata.topic_by_id(topic_id) is None}
        gone = [key for key, topic_id in found.items() if topic_id in dead]
        if gone:
            self.logs.delete(gone)
        for key in gone:
            del found[key]
        if deleting:
            self._metadata.remove_deleted(deleting)

    def _clear_strays(self, strays: Mapping[TopicPartition, uuid.UUID | None]) -> None:
        for (name, index), topic_id in strays.items():
            try:
                if self.logs.load(name, index, self._config.log).log_end_offset == 0:
                    self.logs.delete([(name, index)])
                else:
                    self.logs.set_aside(name, index, f"no topic has id {topic_id}")
            except OSError as error:
                self._report_offline(name, index, error)  # left as it is

    def _failed(self, key: TopicPartition) -> None:
        for listener in self.failure_listeners:
            listener(*key)

    def _start_moved(self, key: TopicPartition) -> None:
        """No more bytes to read, but a change that consumers must see."""
        partition = self._partitions.get(key)
        if partition is not None:
            for listener in self.advance_listeners:
                listener(partition, 0)

    # -- partitions --------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition:
        """A partition that can be used. KafkaError: UNKNOWN_TOPIC_OR_PARTITION,
        KAFKA_STORAGE_ERROR where its log could not be opened."""
        partition = self._partitions.get((topic, index))
        if partition is None:
            reason = self._offline.get((topic, index))
            if reason is not None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def find(self, topic: str, index: int) -> Partition | None:
        """The same without an error: None where there is none, or its log could not be opened."""
        return self._partitions.get((topic, index))

    def has_partition(self, topic: str, index: int) -> bool:
        """Whether there is such a partition, whatever state its log is in."""
        return (topic, index) in self._partitions or (topic, index) in self._offline

    def partition_count(self, topic: str) -> int:
        """Partitions of a topic; 0 where there is no such topic."""
        known = self._metadata.topic(topic)
        return 0 if known is None else len(known.partitions)

    def offline(self) -> dict[TopicPartition, str]:
        """The partitions that cannot be used, with the reason of each."""
        failed = {
            key: partition.log.failure
            for key, partition in self._partitions.items()
            if partition.log.failure is not None
        }
        return self._offline | failed

    def partitions(self) -> Iterator[Partition]:
        """All partitions."""
        return iter(self._partitions.values())

    def _add(self, topic: Topic, index: int, log: Log) -> None:
        part = topic.partitions[index]
        if topic.is_internal:
            log.flushes_at_once = True  # coordinators answer when the append returns
        self._partitions[topic.name, index] = Partition(
            topic.name,
            index,
            topic.topic_id,
            log,
            leader_id=part.leader,
            leader_epoch=part.leader_epoch,
            listeners=self.advance_listeners,
            counters=self.logs.metrics.topic(topic.name),
        )

    # -- topics ------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Create a topic; it can be written to when this returns. KafkaError:
        INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG,
        KAFKA_STORAGE_ERROR."""
        return run(self.creating_topic(name, partitions, configs))

    def creating_topic(
        self, name: str, partitions: int, configs: Mapping[str, str]
    ) -> Generator[Step, None, Topic]:
        """:meth:`create_topic`, a log at each step: thousands of them take seconds."""
        self._metadata.check_new_topic(name, partitions, configs)
        check_collisions(name, self._creating)
        topic_id = uuid.uuid4()
        logs = yield from self._create_logs(
            name, range(partitions), topic_id, self._log_config(configs)
        )
        try:
            topic = yield from self._metadata.creating_topic(name, partitions, configs, topic_id)
        except OSError as error:
            self._discard(name, logs)
            raise _storage_error(f"cannot create topic {name}", error) from error
        except KafkaError:  # something else was quicker
            self._discard(name, logs)
            raise
        for index, log in logs.items():
            self._add(topic, index, log)
        return topic

    def create_partitions(self, name: str, total: int) -> Topic:
        """Let a topic have ``total`` partitions. KafkaError: UNKNOWN_TOPIC_OR_PARTITION,
        INVALID_PARTITIONS, KAFKA_STORAGE_ERROR."""
        return run(self.creating_partitions(name, total))

    def creating_partitions(self, name: str, total: int) -> Generator[Step, None, Topic]:
        """:meth:`create_partitions`, a log at each step."""
        topic = self._metadata.check_new_partitions(name, total)
        config = self._log_config(topic.configs)
        new = range(len(topic.partitions), total)
        logs = yield from self._create_logs(name, new, topic.topic_id, config)
        try:
            topic = yield from self._metadata.adding_partitions(name, total)
        except OSError as error:
            self._discard(name, logs)
            raise _storage_error(f"cannot add partitions to {name}", error) from error
        except KafkaError:  # something else was quicker
            self._discard(name, logs)
            raise
        for index, log in logs.items():
            self._add(topic, index, log)
        return topic

    def set_configs(self, name: str, configs: Mapping[str, str]) -> Topic:
        """:meth:`setting_configs` at once."""
        return run(self.setting_configs(name, configs))

    def setting_configs(
        self, name: str, configs: Mapping[str, str]
    ) -> Generator[Step, None, Topic]:
        """Replace a topic's overrides, and use them. KafkaError: UNKNOWN_TOPIC_OR_PARTITION,
        INVALID_CONFIG, KAFKA_STORAGE_ERROR."""
        try:
            topic = yield from self._metadata.setting_configs(name, configs)
        except OSError as error:
            raise _storage_error(f"cannot change topic {name}", error) from error
        config = self._log_config(configs)
        for part in topic.partitions:
            partition = self._partitions.get((name, part.index))
            if partition is not None:
                partition.log.update_config(config)
        return topic

    def use_config(self, config: BrokerConfig) -> None:
        """The broker's defaults have changed: use them where topics override nothing."""
        self._config = config
        for topic in self._metadata.topics.values():
            log_config = self._log_config(topic.configs)
            for part in topic.partitions:
                partition = self._partitions.get((topic.name, part.index))
                if partition is not None:
                    partition.log.update_config(log_config)

    def delete_topic(self, name: str) -> Topic:
        """Delete a topic: it is unknown when this returns, and its name is free. KafkaError:
        UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR."""
        return run(self.deleting_topic(name))

    def deleting_topic(self, name: str) -> Generator[Step, None, Topic]:
        """:meth:`delete_topic`: unknown after the first step, its name free after the last."""
        try:
            topic = yield from self._metadata.deleting_topic(name)
        except OSError as error:
            raise _storage_error(f"cannot delete topic {name}", error) from error
        self.logs.metrics.remove_topic(name)
        keys = [(name, part.index) for part in topic.partitions]
        for key in keys:
            self._offline.pop(key, None)
            partition = self._partitions.pop(key, None)
            if partition is not None:
                for listener in self.removal_listeners:
                    listener(partition)
        self._creating.add(name)
        try:
            for at in range(0, len(keys), DELETED_AT_ONCE):
                yield None  # many topics may be at this place
                self.logs.delete(keys[at : at + DELETED_AT_ONCE], sync=False)
            yield Commit(self.logs.sync_names)
            self._metadata.remove_deleted([topic.topic_id])
        except OSError as error:
            # The metadata remembers; the next start removes what is left.
            _log.error("logs of the deleted topic %s remain: %s", name, error)
        except GeneratorExit:  # no request waits for it any more
            self._discard(name, dict.fromkeys((index for _, index in keys), None))
            raise
        finally:
            self._creating.discard(name)
        return topic

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Move the starts of several partitions' logs; the new starts. KafkaError as
        :meth:`Partition.delete_records`, of the first that fails."""
        targets = {}
        for key, offset in before.items():
            partition = self.partition(*key)
            high_watermark = partition.high_watermark
            wanted = high_watermark if offset == -1 else offset
            if not 0 <= wanted <= high_watermark:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
            targets[key] = wanted
        self.logs.delete_records(targets)
        return {key: self._partitions[key].log_start_offset for key in before}

    def _create_logs(
        self, name: str, indexes: range, topic_id: uuid.UUID, config: LogConfig
    ) -> Generator[Step, None, dict[int, Log]]:
        if name in self._creating:
            code = ErrorCode.INVALID_REQUEST if indexes.start else ErrorCode.TOPIC_ALREADY_EXISTS
            raise KafkaError(code, f"Topic '{name}' is being created or deleted.")
        self._creating.add(name)
        logs: dict[int, Log] = {}
        try:
            removal = self.logs.removal_of_offsets([(name, index) for index in indexes])
            if removal is not None:
                yield removal
            for index in indexes:
                logs[index] = self.logs.create(name, index, topic_id, config)
                self._created += 1
                yield None
            yield self.logs.sync_names
        except OSError as error:
            self._discard(name, logs)
            raise _storage_error(f"cannot create logs of {name}", error) from error
        except GeneratorExit:
            self._discard(name, logs)  # no request waits for it any more
            raise
        finally:
            self._creating.discard(name)
            self._created -= len(logs)
        return logs

    @property
    def total_partitions(self) -> int:
        """Partitions of all topics, with those whose logs are offline or being made."""
        return len(self._partitions) + len(self._offline) + self._created

    def _discard(self, name: str, logs: Mapping[int, Log | None]) -> None:
        """Take back logs that no metadata knows; a start would do it too."""
        try:
            self.logs.delete([(name, index) for index in logs])
        except OSError as error:
            _log.error("cannot remove logs of %s: %s", name, error)

    def _log_config(self, configs: Mapping[str, str]) -> LogConfig:
        return self._config.topic_config(configs)


def _storage_error(what: str, error: OSError) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error}")
