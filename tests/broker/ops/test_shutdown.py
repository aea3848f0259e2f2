"""SIGTERM: everything finished, everything written down, status 0, in less than two seconds."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock_broker.testing import BrokerProcess, RawClient
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock_broker.wire.messages.metadata import MetadataRequest
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

PARTITIONS = 1_000
CONNECTIONS = 100


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", {"penstock.log.level": "INFO"}) as started:
        yield started


def is_clean(broker: BrokerProcess) -> bool:
    return (broker.data_dir / "clean-shutdown").exists()


def produce_to_all(broker: BrokerProcess, topic: str, partitions: int, value: bytes) -> None:
    now = 1_700_000_000_000
    data = [
        PartitionProduceData(
            index=index, records=memoryview(build_batch([NewRecord(None, value, now)]))
        )
        for index in range(partitions)
    ]
    with RawClient(broker.host, broker.port) as client:
        topics = [TopicProduceData(name=topic, partition_data=data)]
        answer = client.ask(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics), 8)
    assert not [p for t in answer.responses for p in t.partition_responses if p.error_code]


def fetch_request(topic: str, *, wait_ms: int, offset: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=50 << 20)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def test_with_a_thousand_partitions_and_a_hundred_connections(broker: BrokerProcess) -> None:
    topic = broker.create_topic(partitions=PARTITIONS)
    produce_to_all(broker, topic, PARTITIONS, b"v" * 500)
    clients = [RawClient(broker.host, broker.port) for _ in range(CONNECTIONS)]
    for client in clients:
        client.ask(MetadataRequest(topics=[]), 9)
    assert broker.stop() == 0
    assert is_clean(broker)
    for client in clients:
        assert client.is_closed()
        client.close()
    broker.start()
    assert broker.topics() == [topic]
    assert "checked" not in broker.log()


def test_with_clients_that_never_read(broker: BrokerProcess) -> None:
    topic = broker.create_topic()
    for _ in range(20):
        produce_to_all(broker, topic, 1, os.urandom(900_000))
    deaf = RawClient(broker.host, broker.port)
    deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    for _ in range(20):
        deaf.send(fetch_request(topic, wait_ms=0), 11)
    with RawClient(broker.host, broker.port) as other:
        other.ask(MetadataRequest(topics=[]), 9)
        assert broker.stop() == 0
    assert is_clean(broker)
    deaf.close()


def test_requests_that_wait_are_answered(broker: BrokerProcess) -> None:
    topic = broker.create_topic()
    with RawClient(broker.host, broker.port) as client:
        client.send(fetch_request(topic, wait_ms=60_000), 11)
        deadline = time.monotonic() + 120
        while broker.faults.seen("Fetch") < 1:
            assert time.monotonic() < deadline
        assert broker.stop() == 0
        _, answer = client.receive()
        assert answer.responses[0].partitions[0].error_code == 0
        assert client.is_closed()


def test_a_large_answer_on_its_way_arrives_whole(broker: BrokerProcess) -> None:
    topic = broker.create_topic()
    for _ in range(8):
        produce_to_all(broker, topic, 1, os.urandom(900_000))
    with RawClient(broker.host, broker.port) as client:
        client.send(fetch_request(topic, wait_ms=0), 11)
        first = client.socket.recv(1)
        os.kill(broker.pid, signal.SIGTERM)
        size = int.from_bytes(first + client._read(3), "big")
        assert size > 7_200_000
        assert len(client._read(size)) == size
    assert broker.stop() == 0


def test_no_new_connection_is_taken_while_it_stops(broker: BrokerProcess) -> None:
    topic = broker.create_topic()
    for _ in range(10):
        produce_to_all(broker, topic, 1, os.urandom(900_000))
    with RawClient(broker.host, broker.port) as deaf:
        deaf.send(fetch_request(topic, wait_ms=0), 11)
        os.kill(broker.pid, signal.SIGTERM)
        deadline = time.monotonic() + 120
        while _accepts(broker):
            assert time.monotonic() < deadline
    assert broker.stop() == 0


def _accepts(broker: BrokerProcess) -> bool:
    try:
        socket.create_connection((broker.host, broker.port), 1).close()
    except OSError:
        return False
    return True


def test_a_second_signal_changes_nothing(
    new_serve: Callable[..., subprocess.Popen[str]],
) -> None:
    process = new_serve()
    deadline = time.monotonic() + 120
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert time.monotonic() < deadline
    assert process.returncode == 0


def test_sigint_is_the_same(new_serve: Callable[..., subprocess.Popen[str]]) -> None:
    process = new_serve()
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0


def test_a_broker_that_still_loads_its_logs_can_be_stopped(
    broker: BrokerProcess, new_serve: Callable[..., subprocess.Popen[str]]
) -> None:
    topic = broker.create_topic(partitions=PARTITIONS)
    produce_to_all(broker, topic, PARTITIONS, b"v" * 500)
    broker.kill()
    process = new_serve(data_dir=broker.data_dir, wait=False)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) in (0, -signal.SIGTERM)
    broker.start()
    assert broker.topics() == [topic]


@pytest.fixture
def new_serve(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """The command itself, as a person starts it."""
    started: list[subprocess.Popen[str]] = []

    def start(data_dir: Path | None = None, *, wait: bool = True) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "penstock_broker", "serve", "--port", "0"]
        command += ["--data-dir", str(data_dir or tmp_path / "own")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        if wait and process.stdout is not None:
            assert "ready" in process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
