"""The command: ready, refused, stopped; and its two tools."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.wire.messages.api_versions import ApiVersionsRequest
from penstock_broker.wire.messages.metadata import MetadataRequest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock_broker", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_it_ends_on_sigterm_with_status_0_and_its_directory_is_clean(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    broker = new_broker()
    with RawClient(broker.host, broker.port) as client:
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        assert broker.stop() == 0
        assert client.is_closed()
    assert (broker.data_dir / "clean-shutdown").exists()


def test_a_second_process_is_refused_with_a_sentence(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    broker = new_broker()
    second = run("serve", "--data-dir", str(broker.data_dir), "--port", "0")
    assert second.returncode == 1
    assert "in use by another broker" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_taken_port_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = run("serve", "--data-dir", str(tmp_path / "d"), "--port", str(port))
    assert refused.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("assignment", ["no.such.setting=1", "num.partitions=many", "nothing"])
def test_bad_settings_are_refused_with_a_sentence(tmp_path: Path, assignment: str) -> None:
    refused = run("serve", "--data-dir", str(tmp_path / "d"), "--set", assignment)
    assert refused.returncode == 1
    assert assignment.split("=", maxsplit=1)[0] in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_file_of_settings_may_hold_strangers(tmp_path: Path) -> None:
    """One written for Apache Kafka does."""
    (tmp_path / "server.properties").write_text("zookeeper.connect=x\nnum.partitions=5\n")
    command = ["serve", "--data-dir", str(tmp_path / "d"), "--port", "0"]
    command += ["--config", str(tmp_path / "server.properties")]
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock_broker", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "zookeeper.connect is not known" in errors


def test_clients_get_the_advertised_listeners(
    new_broker: Callable[..., BrokerProcess],
) -> None:
    """Pitfall 47."""
    broker = new_broker(advertised_listeners="PLAINTEXT://broker.example:9999")
    with RawClient(broker.host, broker.port) as client:
        (node,) = client.ask(MetadataRequest(topics=[]), 9).brokers
    assert (node.host, node.port) == ("broker.example", 9999)


def test_the_table_of_apis() -> None:
    table = run("api-table")
    assert table.returncode == 0
    assert "Produce" in table.stdout
    assert "3-11 (advertised 0-11)" in table.stdout


def test_a_log_can_be_dumped(new_broker: Callable[..., BrokerProcess]) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415

    broker = new_broker()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("dumped", b"the value", key=b"the key", partition=0)
    assert producer.flush(20) == 0
    segment = broker.data_dir / "dumped-0" / f"{0:020d}.log"
    dump = run("dump-log", "--records", str(segment))
    assert dump.returncode == 0, dump.stderr
    assert "the value" in dump.stdout
