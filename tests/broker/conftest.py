"""Brokers for tests: one that many tests share, and as many of their own as they like."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.raw_client import RawClient

QUICK = {
    # Tests write records of years ago, and a shared broker may live for longer than the five
    # minutes after which the default looks for what it may delete.
    "log.retention.check.interval.ms": "86400000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running broker, shared: use topics and groups of your own. It must stay well."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", QUICK)
    with process:
        yield process
        log = process.log()
    assert "Traceback" not in log, log
    assert "ERROR" not in log, log


@pytest.fixture
def new_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start a broker of one's own, with settings; it is stopped at the end."""
    started: list[BrokerProcess] = []

    def start(**settings: str) -> BrokerProcess:
        given = QUICK | {name.replace("_", "."): value for name, value in settings.items()}
        process = BrokerProcess(tmp_path / f"broker-{len(started)}" / "data", given)
        started.append(process.start())
        return process

    yield start
    for process in started:
        process.stop()
        assert "Traceback" not in process.log(), process.log()


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[RawClient]:
    """A connection to the shared broker."""
    with RawClient(broker.host, broker.port) as client:
        yield client


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"
