"""MessageStream: consuming as iteration.

Reads topics in a group (``subscribe``) or given places of partitions (``assign``). What was handed
out is what ``commit`` commits: records that were fetched ahead are not, however many there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock_client.clock import monotonic
from penstock_client.errors import (
    NotAuthorizedError,
    OffsetsLostError,
    StreamClosedError,
    StreamError,
    TopicNotFoundError,
)

BATCH = 500
SLICE_SECONDS = 0.2

_ERRORS: dict[int, tuple[type[StreamError], str]] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: (TopicNotFoundError, "the topic does not exist"),
    KafkaError._UNKNOWN_TOPIC: (TopicNotFoundError, "the topic does not exist"),
    KafkaError._UNKNOWN_PARTITION: (TopicNotFoundError, "the partition does not exist"),
    KafkaError.OFFSET_OUT_OF_RANGE: (OffsetsLostError, "the next offset is not in the log"),
    KafkaError._AUTO_OFFSET_RESET: (OffsetsLostError, "the next offset is not in the log"),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (NotAuthorizedError, "not allowed to read the topic"),
    KafkaError.GROUP_AUTHORIZATION_FAILED: (NotAuthorizedError, "not allowed to use the group"),
}


def stream_error(error: KafkaError, where: str = "") -> StreamError:
    """The typed error for one of librdkafka's."""
    kind, text = _ERRORS.get(error.code(), (StreamError, error.str()))
    return kind(error, f"{where}: {text}" if where else text)


class MessageStream:
    """Iterate over messages; ``with`` closes the consumer, which leaves its group.

    ``config``: confluent_kafka.Consumer's. ``topics``: names to subscribe to (needs ``group.id``).
    ``assign``: (topic, partition, offset) to read from instead; offsets may be
    ``confluent_kafka.OFFSET_BEGINNING`` and so on. ``until_end``: stop at what is the end of every
    assigned partition when it is reached. ``idle_seconds``: stop after so long without a message.

    Raises StreamError, or one of its kinds, from the iteration. Nothing is committed but by
    ``commit``. An offset that is gone, or a group that has none yet, is an error and no silent
    jump, unless ``auto.offset.reset`` says where to go.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Iterable[str] = (),
        *,
        assign: Iterable[tuple[str, int, int]] = (),
        until_end: bool = False,
        idle_seconds: float | None = None,
    ) -> None:
        places = [TopicPartition(*place) for place in assign]
        names = list(topics)
        if bool(names) == bool(places):
            raise ValueError("give either topics to subscribe to or places to assign")
        if str(config.get("enable.auto.commit", "false")).lower() == "true":
            raise ValueError(
                "enable.auto.commit would commit what was not handed out: use commit()"
            )
        if until_end and names:
            raise ValueError("until_end needs assigned partitions: a group's may change")
        settings = {
            "group.id": "penstock-stream",
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,  # reading a name does not make a topic of it
            **config,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
        }
        self._idle_seconds = idle_seconds
        self._buffer: deque[Message] = deque()
        self._positions: dict[tuple[str, int], int] = {}
        self._unfinished = {(place.topic, place.partition) for place in places}
        self._until_end = until_end
        self._consumer: Consumer | None = Consumer(settings)
        if places:
            self._consumer.assign(places)
        else:
            self._consumer.subscribe(names, on_revoke=self._drop, on_lost=self._drop)

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        quiet_since = monotonic()
        while True:
            while self._buffer:
                message = self._buffer.popleft()
                if self._accept(message):
                    return message
            if self._until_end and not self._unfinished:
                raise StopIteration
            if self._idle_seconds is not None and monotonic() - quiet_since >= self._idle_seconds:
                raise StopIteration
            # Fetched first: a rebalance within this call replaces the buffer.
            fetched = self._consume()
            self._buffer.extend(fetched)

    def commit(self) -> None:
        """Commit what was handed out so far; raises StreamError if the group refuses it."""
        consumer = self._open()
        if not self._positions:
            return
        offsets = [
            TopicPartition(topic, partition, position)
            for (topic, partition), position in self._positions.items()
        ]
        try:
            committed = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise stream_error(error.args[0], "commit") from error
        for place in committed:
            if place.error is not None:
                raise stream_error(place.error, f"commit of {place.topic}-{place.partition}")

    def positions(self) -> dict[tuple[str, int], int]:
        """The next offset of each partition that something was handed out of."""
        return dict(self._positions)

    def close(self) -> None:
        """Leave the group and free the consumer; nothing is committed. May be called again."""
        consumer, self._consumer = self._consumer, None
        self._buffer.clear()
        if consumer is not None:
            consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> Consumer:
        if self._consumer is None:
            raise StreamClosedError("the stream is closed: make a new one")
        return self._consumer

    def _consume(self) -> list[Message]:
        try:
            return self._open().consume(BATCH, timeout=SLICE_SECONDS)
        except KafkaException as error:
            raise stream_error(error.args[0]) from error

    def _accept(self, message: Message) -> bool:
        """Whether this is a record to hand out; raises for an error, notes an end."""
        error = message.error()
        place = (message.topic() or "", message.partition() or 0)
        if error is None:
            self._positions[place] = (message.offset() or 0) + 1
            # Records after an end: the partition has grown, and its new end will be reported too.
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            self._unfinished.discard(place)
            return False
        raise stream_error(error, f"{place[0]}-{place[1]}")

    def _drop(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Partitions go to another member: drop what was fetched ahead and their positions."""
        gone = {(place.topic, place.partition) for place in partitions}
        kept = [m for m in self._buffer if (m.topic(), m.partition()) not in gone]
        self._buffer = deque(kept)
        for place in gone:
            self._positions.pop(place, None)
