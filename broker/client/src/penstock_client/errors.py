"""Every error of the client, by the party that has to act."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException


class AuditConfigError(ValueError):
    """A producer's configuration that the audit cannot work with: says what to set instead."""


class ProducerClosedError(RuntimeError):
    """The producer was closed: its last monitoring event is out, so it takes no more records."""


class RecordTooLargeError(KafkaException):
    """The record with its audit header is over ``message.max.bytes``. Nothing was sent.

    A KafkaException whose KafkaError is MSG_SIZE_TOO_LARGE, as a bare producer raises it, so code
    that handles that one handles this one.
    """

    def __init__(
        self, topic: str, *, key: int, value: int, headers: int, audit_header: int, limit: int
    ) -> None:
        size = key + value + headers + audit_header
        super().__init__(
            KafkaError(
                KafkaError.MSG_SIZE_TOO_LARGE,
                f"record for topic {topic!r}: key {key} + value {value} + headers {headers} + "
                f"audit header {audit_header} = {size} bytes, and a few bytes of framing, is over "
                f"message.max.bytes={limit}. Send a smaller record, or raise message.max.bytes "
                f"(and the topic's max.message.bytes)",
            )
        )
        self.topic = topic
        self.size = size
        self.limit = limit


class StreamError(KafkaException):
    """Consuming failed. ``code`` is librdkafka's number, ``name`` its name."""

    def __init__(self, error: KafkaError, text: str) -> None:
        super().__init__(error)
        self.error = error
        self.text = text

    def __str__(self) -> str:
        return f"{self.text} ({self.error.name()})"

    @property
    def code(self) -> int:
        return self.error.code()

    @property
    def name(self) -> str:
        return self.error.name()


class TopicNotFoundError(StreamError):
    """The topic or partition does not exist on this cluster."""


class OffsetsLostError(StreamError):
    """The next offset is no longer (or not yet) in the log: records were deleted before reading."""


class NotAuthorizedError(StreamError):
    """The cluster refuses this user the topic or the group."""


class ClusterUnreachableError(StreamError):
    """No broker of the cluster answers: says where, and the last reason."""

    def __init__(self, servers: str, error: KafkaError, reasons: list[str]) -> None:
        reason = f" ({reasons[-1]})" if reasons else ""
        super().__init__(
            error,
            f"no Kafka broker answers at {servers}{reason}; is it up, is the address right?",
        )


class StreamClosedError(RuntimeError):
    """The stream was closed and cannot be read or committed any more."""


class InputError(ValueError):
    """A file to produce has a bad line: says file, line, and how to fix it."""

    def __init__(self, file: str, line: int, problem: str, fix: str) -> None:
        super().__init__(f"{file}, line {line}: {problem}. {fix}")
        self.file = file
        self.line = line
        self.where = f"{file}:{line}"
        self.fix = fix
