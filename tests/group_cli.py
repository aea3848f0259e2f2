"""A project of one cluster, its commands, and consumers of the group under test."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from penstock_platform.cli import main as cli_main
from penstock_platform.kafka.cluster import KafkaCluster
from penstock_platform.settings import Settings
from polling import until


class Cli:
    """``penstock …`` in the project's directory: exit code, output, errors."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self._capsys.readouterr()
        ended = cli_main.run(["group", *arguments])
        self.out, self.err = self._capsys.readouterr()
        assert ended == code, self.out + self.err
        return self.out if code == 0 else self.err

    def json(self, *arguments: str, code: int = 0) -> Any:
        self(*arguments, "-o", "json", code=code)
        return json.loads(self.out)


@pytest.fixture
def cli(
    tmp_path: Path,
    cluster_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Cli:
    folder = tmp_path / "project"
    folder.mkdir()
    servers = cluster_settings.bootstrap_servers
    (folder / "penstock.toml").write_text(
        f'[kafka]\nbootstrap_servers = "{servers}"\n[dagster]\nport = 1\n'
    )
    monkeypatch.chdir(folder)
    return Cli(capsys)


Topic = Callable[..., str]


@pytest.fixture
def topic(kafka: KafkaCluster) -> Topic:
    """Make a topic: ``topic(30, 20, 0)`` has three partitions with that many records. The record
    with offset n is stamped ``1,000,000 + n`` seconds."""

    def make(*counts: int) -> str:
        name = f"group-test-{uuid.uuid4().hex[:8]}"
        assert kafka.create(name, len(counts), configs={"retention.ms": "-1"})
        producer = Producer({"bootstrap.servers": kafka.servers})
        for partition, count in enumerate(counts):
            for n in range(count):
                producer.produce(
                    name, str(n), partition=partition, timestamp=(1_000_000 + n) * 1000
                )
        assert producer.flush(30) == 0
        return name

    return make


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def member(kafka: KafkaCluster, group: str) -> Iterator[Callable[[str], Consumer]]:
    """A member of the group that reads a topic; it has its partitions when this returns."""
    started: list[Consumer] = []

    def join(topic: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": kafka.servers,
                "group.id": group,
                "client.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        started.append(consumer)
        consumer.subscribe([topic])

        def assigned() -> bool:
            for each in started:  # all of them take part in a rebalance
                each.poll(0.05)
            return all(each.assignment() for each in started)

        until("every member has its partitions", assigned)
        return consumer

    yield join
    for consumer in started:
        consumer.close()
