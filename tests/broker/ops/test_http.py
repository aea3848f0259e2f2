"""Probes and scrapes over HTTP, asked by friends and by others."""

from __future__ import annotations

import errno
import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from metrics_page import page
from prometheus_client.parser import text_string_to_metric_families

from penstock_broker.server.health import NAMED_MAX, Health, Phase
from penstock_broker.server.http_server import CONNECTIONS_MAX, HEAD_BYTES_MAX
from penstock_broker.testing import MemFiles, RawClient, ThreadBroker
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

HTTP = {"penstock.http.listener": "127.0.0.1:0"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadBroker]:
    with ThreadBroker(tmp_path / "data", HTTP, files=MemFiles()) as started:
        yield started


def address(broker: ThreadBroker) -> tuple[str, int]:
    found = broker.broker.observation.address
    assert found is not None
    return found


def ask(broker: ThreadBroker, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Status, content type and body."""
    connection = http.client.HTTPConnection(*address(broker), timeout=120)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, answer.getheader("Content-Type") or "", body


def raw(broker: ThreadBroker, data: bytes) -> bytes:
    """All that comes back before the connection ends."""
    with socket.create_connection(address(broker), 120) as sock:
        try:
            sock.sendall(data)
            received = b""
            while chunk := sock.recv(65_536):
                received += chunk
        except ConnectionError:
            return b""
    return received


def produce(broker: ThreadBroker, topic: str) -> int:
    records = memoryview(build_batch([NewRecord(None, b"v" * 100, 1_700_000_000_000)]))
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=records)]
    )
    with RawClient(broker.host, broker.port) as client:
        answer = client.ask(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data]), 8)
    return answer.responses[0].partition_responses[0].error_code


def test_a_broker_that_serves_is_live_and_ready(broker: ThreadBroker) -> None:
    assert ask(broker, "/health/live") == (200, "application/json", '{"status": "live"}\n')
    status, _, body = ask(broker, "/health/ready")
    assert (status, json.loads(body)) == (200, {"status": "ready"})


def test_an_offline_partition_is_named(broker: ThreadBroker) -> None:
    assert broker.files is not None
    topic = broker.create_topic("lost")
    broker.files.fail("write", errno.EIO, path_part="lost-0")
    assert produce(broker, topic) != 0
    status, _, body = ask(broker, "/health/ready")
    assert status == 503
    reasons = json.loads(body)["reasons"]
    assert len(reasons) == 1
    assert reasons[0].startswith("lost-0 is offline: ")
    metrics = ask(broker, "/metrics")[2]
    assert "kafka_controller_kafkacontroller_offlinepartitionscount 1\n" in metrics
    assert ask(broker, "/health/live")[0] == 200


def test_readiness_names_phases_and_no_more_partitions_than_one_can_read() -> None:
    health = Health()
    assert health.reasons() == ["logs are being loaded"]
    health.loaded, health.to_load = 3, 12
    assert health.reasons() == ["logs are being loaded: 3 of 12"]
    health.phase = Phase.OPENING
    assert health.reasons() == ["the listeners do not accept yet"]
    health.phase = Phase.RUNNING
    assert health.reasons() == []
    health.offline = lambda: {("t", index): "the disk is gone" for index in range(NAMED_MAX + 5)}
    assert len(health.reasons()) == NAMED_MAX + 1
    assert health.reasons()[-1] == "5 more partitions are offline"
    health.phase = Phase.STOPPING
    assert health.reasons() == ["it is stopping"]


def test_a_scrape_shows_what_happened(broker: ThreadBroker) -> None:
    topic = broker.create_topic("orders", partitions=2)
    assert produce(broker, topic) == 0
    assert produce(broker, "no-such-topic" * 30) != 0
    status, kind, body = ask(broker, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }
    assert found["kafka_server_brokertopicmetrics_messagesin_total", "orders"] == 1
    assert found["kafka_server_brokertopicmetrics_bytesin_total", "orders"] > 100
    assert found["kafka_log_log_logendoffset", "0", "orders"] == 1
    assert found["kafka_log_log_logendoffset", "1", "orders"] == 0
    assert found["kafka_topic_partitions", "orders"] == 2
    assert found["kafka_network_requestmetrics_requests_total", "8", "Produce"] == 2
    errors = [key for key in found if key[0] == "kafka_network_requestmetrics_errors_total"]
    assert [key[1:] for key in errors] == [("Produce", "UNKNOWN_TOPIC_OR_PARTITION")]
    assert found["process_resident_memory_bytes",] > 10_000_000
    assert found["process_open_fds",] > 3


def test_the_page_of_metrics_is_fresh(tmp_path: Path) -> None:
    """tests/broker/ops/metrics_page.py writes it."""
    path = Path(__file__).resolve().parents[3] / "docs" / "METRICS.md"
    with ThreadBroker(tmp_path / "data") as broker:
        assert path.read_text() == page(broker.broker.metrics)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /metrics/ HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"DELETE /health/live HTTP/1.1\r\n\r\n", b"405"),
        (b"hello\r\n\r\n", b"400"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET /health/live?x=y HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /health/live HTTP/1.0\r\n\r\n", b"200"),
    ],
)
def test_whatever_is_asked_is_answered(broker: ThreadBroker, data: bytes, status: bytes) -> None:
    assert raw(broker, data).startswith(b"HTTP/1.1 " + status)
    assert ask(broker, "/health/live")[0] == 200


def test_head_is_answered_without_a_body(broker: ThreadBroker) -> None:
    status, _, body = ask(broker, "/metrics", "HEAD")
    assert (status, body) == (200, "")


def test_http_1_0_gets_the_text_without_chunks(broker: ThreadBroker) -> None:
    head, _, body = raw(broker, b"GET /metrics HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert list(text_string_to_metric_families(body.decode()))


def test_a_head_without_end_is_cut_off(broker: ThreadBroker) -> None:
    answer = raw(broker, b"GET / HTTP/1.1\r\nX: " + b"x" * (2 * HEAD_BYTES_MAX) + b"\r\n\r\n")
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431")
    assert ask(broker, "/health/live")[0] == 200


def test_random_bytes_change_nothing(broker: ThreadBroker) -> None:
    random_bytes = random.Random(11)
    for _ in range(50):
        raw(broker, random_bytes.randbytes(random_bytes.randrange(1, 300)) + b"\r\n\r\n")
    assert ask(broker, "/health/live")[0] == 200


def test_silent_peers_have_a_bounded_number_of_places(broker: ThreadBroker) -> None:
    idle = [socket.create_connection(address(broker), 120) for _ in range(CONNECTIONS_MAX + 20)]
    deadline = time.monotonic() + 120
    ended = 0
    for sock in idle:
        sock.settimeout(0.05)
    while ended < 20:
        assert time.monotonic() < deadline
        ended = sum(_is_closed(sock) for sock in idle)
    assert ended == 20
    for sock in idle:
        sock.close()
    deadline = time.monotonic() + 120
    while True:
        try:
            assert ask(broker, "/health/live")[0] == 200
            break
        except (ConnectionError, http.client.HTTPException):
            assert time.monotonic() < deadline


def _is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_slow_peer_is_cut_off(broker: ThreadBroker) -> None:
    server = broker.broker.observation._http
    server._seconds_max = 0.2
    with socket.create_connection(address(broker), 120) as sock:
        sock.sendall(b"GET /metrics HT")
        assert sock.recv(1) == b""


def test_requests_are_served_while_a_large_scrape_is_written(broker: ThreadBroker) -> None:
    broker.create_topic("many", partitions=1_000)
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda: results.append(ask(broker, "/metrics")[0]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert broker.topics() == ["many"]
    assert results == [200] * 4


def test_it_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    with ThreadBroker(tmp_path / "data") as broker:
        assert broker.broker.observation.address is None


@pytest.mark.parametrize("value", ["9404", "localhost:", "localhost:x", ":9404", "h:70000"])
def test_a_bad_address_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(RuntimeError, match=r"penstock\.http\.listener"):
        ThreadBroker(tmp_path / "data", {"penstock.http.listener": value}).start()


def test_a_taken_address_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = {"penstock.http.listener": f"127.0.0.1:{port}"}
        broker = ThreadBroker(tmp_path / "data", settings)
        with pytest.raises(RuntimeError, match=r"penstock\.http\.listener.*in use"):
            broker.start()
    broker.start()  # nothing holds the data directory
    broker.stop()
