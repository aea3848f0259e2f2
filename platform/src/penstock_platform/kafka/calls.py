"""Calls to one Kafka cluster through librdkafka: the connection, deadlines and errors.

What the broker answers with a retriable error (a leader that has just moved, a coordinator that is
loading) is asked again until the deadline; every other refusal is a ``ClusterError`` that names
cluster, call and topic.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock_platform.clock import Clock
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.settings import Settings
from penstock_platform.system_clock import SystemClock

REQUEST_TIMEOUT_SECONDS = 10.0
DEADLINE_SECONDS = 30.0
CONNECT_SECONDS = 3.0
RETRY_PAUSE_SECONDS = 0.1
RETRIABLE = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.NOT_CONTROLLER,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
    }
)
# A consumer that reads without a group asks for the coordinator of its group.id all the same.
NO_GROUP = KafkaError.GROUP_AUTHORIZATION_FAILED
T = TypeVar("T")


class ClusterCalls:
    """What every use of a cluster shares. Connects on first use."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._bootstrap_servers = settings.bootstrap_servers
        self._properties: dict[str, Any] = {
            "bootstrap.servers": settings.bootstrap_servers,
            "socket.timeout.ms": round(REQUEST_TIMEOUT_SECONDS * 1000),
            "log_level": 2,  # what goes wrong is raised here, once, in a sentence
            **settings.kafka.properties,
        }
        self._clock = clock or SystemClock()
        self._connected: AdminClient | None = None

    @property
    def servers(self) -> str:
        """The address of the cluster, as errors name it."""
        return self._bootstrap_servers

    def _await(self, what: str, call: Callable[[], Any]) -> Any:
        return self._retry(what, lambda: call().result(timeout=DEADLINE_SECONDS))

    def _await_all(self, what: str, call: Callable[[], Mapping[Any, Any]]) -> dict[Any, Any]:
        return self._retry(
            what, lambda: {k: f.result(timeout=DEADLINE_SECONDS) for k, f in call().items()}
        )

    def _retry(self, what: str, call: Callable[[], T]) -> T:
        deadline = self._clock.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                return call()
            except TimeoutError as error:
                raise ClusterError(
                    f"{self._bootstrap_servers}: cannot {what}: no answer in "
                    f"{DEADLINE_SECONDS:.0f} s; is the broker up? (penstock status)"
                ) from error
            except KafkaException as error:
                late = self._clock.monotonic() >= deadline
                if late or error.args[0].code() not in RETRIABLE:
                    raise self._error(what, error) from error
            self._clock.sleep(RETRY_PAUSE_SECONDS)

    def _error(self, what: str, cause: KafkaException) -> ClusterError:
        error = ClusterError(f"{self._bootstrap_servers}: cannot {what}: {cause.args[0].str()}")
        error.__cause__ = cause
        return error

    @property
    def _admin(self) -> AdminClient:
        if self._connected is None:
            self._require_reachable()
            self._connected = AdminClient(self._properties)
        return self._connected

    def _require_reachable(self) -> None:
        """A refused connection says so at once; librdkafka would try until every deadline."""
        refusals = []
        for address in self._bootstrap_servers.split(","):
            host, _, port = address.strip().rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
                return
            except (OSError, ValueError) as error:
                refusals.append(f"{address.strip()}: {error}")
        raise ClusterError(
            f"no Kafka broker answers at {'; '.join(refusals)}. Is it up? penstock status, "
            "penstock up; its address is kafka.bootstrap_servers, or kafka.port for our own"
        )


def code_of(error: ClusterError) -> int:
    """Kafka's error code of a refusal; 0 for an error without one."""
    cause = error.__cause__
    return int(cause.args[0].code()) if isinstance(cause, KafkaException) else 0
