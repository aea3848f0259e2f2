"""How long a broker takes to start and to stop: what no test asserts.

    python benchmarks/broker/start_stop.py [--rounds N]

Prints the best and the median of some rounds, in seconds: a start until the first request is
answered (in a thread, in a process), and a stop with 1,000 partitions and 100 connections.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.testing.raw_client import RawClient
from penstock_broker.testing.thread_broker import ThreadBroker
from penstock_broker.wire.messages.metadata import MetadataRequest

PARTITIONS = 1_000
CONNECTIONS = 100


def start_seconds(kind: type, directory: Path) -> float:
    """Seconds until a new broker has answered a request."""
    began = time.monotonic()
    with kind(directory) as broker:
        assert broker.topics() == []
        return time.monotonic() - began


def stop_seconds(directory: Path) -> float:
    """Seconds of an orderly stop with many partitions and connections."""
    with BrokerProcess(directory) as broker:
        broker.create_topic(partitions=PARTITIONS)
        clients = [RawClient(broker.host, broker.port) for _ in range(CONNECTIONS)]
        for client in clients:
            client.ask(MetadataRequest(topics=[]), 9)
        began = time.monotonic()
        assert broker.stop() == 0
        took = time.monotonic() - began
        for client in clients:
            client.close()
        return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        for label, measure in (
            ("start in a thread", lambda n: start_seconds(ThreadBroker, top / f"thread-{n}")),
            ("start in a process", lambda n: start_seconds(BrokerProcess, top / f"process-{n}")),
            ("stop, 1,000 partitions, 100 connections", lambda n: stop_seconds(top / f"stop-{n}")),
        ):
            seconds = [measure(number) for number in range(rounds)]
            print(
                f"{label:<42} {min(seconds):.2f} s best, {statistics.median(seconds):.2f} s median"
            )


if __name__ == "__main__":
    main()
