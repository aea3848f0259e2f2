"""A producer process of the demo: steady, continued where it was, ended cleanly by SIGTERM."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock_broker.testing.broker_process import BrokerProcess
from penstock_client import MessageStream, MonitoringEvent


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"demo-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 2, 1), NewTopic(f"{name}-audit", 1, 1)]
    for future in admin.create_topics(topics).values():
        future.result(10)
    return name


def _start(bootstrap: str, topic: str, kind: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock_pipelines.demo.producers", kind]
    command += ["--bootstrap-servers", bootstrap, "--topic", topic]
    command += ["--set", f"audit.topic={topic}-audit", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _messages(bootstrap: str, topic: str, partitions: int) -> list[Any]:
    places = [(topic, partition, 0) for partition in range(partitions)]
    config = {"bootstrap.servers": bootstrap, "fetch.wait.max.ms": 10}
    with MessageStream(config, assign=places, until_end=True) as stream:
        return list(stream)


def _final(bootstrap: str, topic: str) -> set[str]:
    """Incarnations that have sent their last event."""
    events = [
        MonitoringEvent.from_bytes(m.value()) for m in _messages(bootstrap, f"{topic}-audit", 1)
    ]
    return {str(event.incarnation) for event in events if event.final}


def test_continues_where_it_was(bootstrap: str, topic: str, tmp_path: Path) -> None:
    cursor = str(tmp_path / "cursor")
    common = ["--rate", "0", "--malformed-share", "0", "--cursor-file", cursor, "--records", "300"]
    reports = []
    for _ in range(2):
        out, _ = _start(bootstrap, topic, "flights", "--offset", "1000", *common).communicate(
            timeout=30
        )
        reports.append(json.loads(out.splitlines()[-1]))
    assert [report["next_offset"] for report in reports] == [1300, 1600]
    assert all(report["acknowledged"] == 300 and report["final"] for report in reports)
    assert _final(bootstrap, topic) == {report["incarnation"] for report in reports}
    rows = [json.loads(m.value()) for m in _messages(bootstrap, topic, 2)]
    assert len(rows) == 600
    assert len({json.dumps(row) for row in rows}) == 600  # disjoint parts


@pytest.mark.parametrize("kind", ["flights", "weather", "metrics"])
def test_sigterm_ends_it_cleanly(bootstrap: str, topic: str, kind: str) -> None:
    process = _start(
        bootstrap, topic, kind,
        "--rate", "400", "--report-seconds", "0.3", "--malformed-share", "0.2", "--seed", "1",
    )  # fmt: skip
    assert process.stdout is not None
    on_the_way = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    last = json.loads(out.splitlines()[-1])
    assert process.returncode == 0
    assert not on_the_way["final"] and last["final"]
    assert last["acknowledged"] == last["sent"] > 0
    assert last["malformed"] > 0
    assert _final(bootstrap, topic) == {last["incarnation"]}
    messages = _messages(bootstrap, topic, 2)
    assert len(messages) == last["sent"]
    assert all(message.key() for message in messages)


def test_keeps_its_rate(bootstrap: str, topic: str) -> None:
    process = _start(bootstrap, topic, "flights", "--rate", "500", "--seconds", "2")
    out, _ = process.communicate(timeout=120)
    assert json.loads(out.splitlines()[-1])["sent"] == pytest.approx(1000, rel=0.15)


def test_a_wrong_setting_says_so(bootstrap: str, topic: str) -> None:
    process = subprocess.run(
        [
            *(sys.executable, "-m", "penstock_pipelines.demo.producers", "flights"),
            *("--bootstrap-servers", bootstrap, "--set", "acks=0"),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 1
    assert "acks=0" in process.stderr
    assert "Traceback" not in process.stderr
