"""What a test does with a broker, wherever it runs: topics, faults, stopping and starting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import count
from types import TracebackType
from typing import Any, Self

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.testing.faults import HELPER, Faults
from penstock_broker.testing.raw_client import RawClient

_METADATA_VERSION = 9
_CREATE_VERSION = 5
_DELETE_VERSION = 4


class BrokerHandle(ABC):
    """A broker under test. Addresses stay the same over stops, kills and starts."""

    host: str
    port: int
    faults: Faults
    _numbers = count(1)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port``, for a client's ``bootstrap.servers``."""
        return f"{self.host}:{self.port}"

    @property
    def bootstrap(self) -> str:
        """The same, shorter."""
        return self.bootstrap_servers

    @abstractmethod
    def start(self) -> Self:
        """Start it; it accepts requests when this returns. RuntimeError."""

    @abstractmethod
    def stop(self) -> int:
        """Stop it in order; its exit status."""

    @abstractmethod
    def kill(self) -> None:
        """End it as ``kill -9`` does: what was acknowledged is there at the next start."""

    @abstractmethod
    def freeze(self) -> None:
        """Freeze it with its connections open, like a machine that is out of memory."""

    @abstractmethod
    def thaw(self) -> None:
        """Let it continue."""

    def restart(self) -> Self:
        """Stop in order and start again."""
        self.stop()
        return self.start()

    # -- topics ------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic that can be used at once; its name (a new one by default). KafkaError."""
        from penstock_broker.wire.messages.create_topics import (  # noqa: PLC0415
            CreatableTopic,
            CreatableTopicConfig,
            CreateTopicsRequest,
        )

        name = name or f"topic-{next(self._numbers)}"
        configs = [
            CreatableTopicConfig(name=key, value=text) for key, text in (config or {}).items()
        ]
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=configs,
        )
        answer = self._ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), _CREATE_VERSION)
        _check(answer.topics[0])
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic. KafkaError."""
        from penstock_broker.wire.messages.delete_topics import (  # noqa: PLC0415
            DeleteTopicsRequest,
        )

        answer = self._ask(
            DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), _DELETE_VERSION
        )
        _check(answer.responses[0])

    def topics(self) -> list[str]:
        """The names of all topics that are not the broker's own."""
        from penstock_broker.wire.messages.metadata import MetadataRequest  # noqa: PLC0415

        answer = self._ask(MetadataRequest(topics=None), _METADATA_VERSION)
        return sorted(topic.name for topic in answer.topics if not topic.is_internal)

    def client(self) -> RawClient:
        """A connection that speaks Kafka's protocol message by message; close it."""
        return RawClient(self.host, self.port, client_id=HELPER)

    def _ask(self, request: Any, version: int) -> Any:
        with self.client() as client:
            return client.ask(request, version)

    # -- with --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _check(result: Any) -> None:
    if result.error_code:
        raise KafkaError(_error_of(result.error_code), getattr(result, "error_message", None))


def _error_of(code: int) -> ErrorCode:
    return next(error for error in ErrorCode if error == code)
