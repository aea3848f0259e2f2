"""Old librdkafkas, as distributions ship them with kcat: their ideas of versions are their own.

librdkafka up to 2.11.0 looks for exact versions (JoinGroup 0, Produce 0, FindCoordinator 0, …) to
decide what a broker can do, and leaves out compression or groups without a word otherwise
(confluentinc/librdkafka#4956). `make install` puts two of them under .venv/, out of wheels whose
hashes are pinned in librdkafka/.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.wire.records import iter_batches

WAIT = 120.0
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HERE = Path(__file__).parent
ROOT = HERE.parents[2]
VERSIONS = sorted(pinned.stem for pinned in (HERE / "librdkafka").glob("*.txt"))
MACHINE = f"{platform.system()} {platform.machine()}"

pytestmark = pytest.mark.skipif(
    MACHINE != "Linux x86_64", reason=f"PyPI has no librdkafka of that age for {MACHINE}"
)

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(params=VERSIONS)
def ask(request: pytest.FixtureRequest, broker: BrokerProcess) -> Ask:
    """Let a librdkafka of that version do something with the shared broker."""
    version = request.param
    libraries = list((ROOT / ".venv").glob(f"librdkafka-{version}/*.libs/librdkafka*"))
    assert len(libraries) == 1, f"librdkafka {version} is not there: run make install"

    def do(what: str, topic: str, config: dict[str, str] | None = None, **more: Any) -> Any:
        asked = {"do": what, "topic": topic, **more}
        asked["config"] = {"bootstrap.servers": broker.bootstrap} | (config or {})
        done = subprocess.run(
            [sys.executable, str(HERE / "old_librdkafka.py"), str(libraries[0])],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert do("version", "")["version"] == version
    return do


def records(values: list[str]) -> list[Any]:
    return [[None, value, {}] for value in values]


def values(answer: dict[str, Any]) -> list[str]:
    return [value for _, value, _, _ in answer["records"]]


@pytest.fixture
def one_partition(broker: BrokerProcess, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT)
    return topic


def test_there_are_old_ones() -> None:
    assert VERSIONS == ["1.9.2", "2.0.2"]


@pytest.mark.parametrize("codec", CODECS)
def test_it_compresses_with_every_codec(
    broker: BrokerProcess, ask: Ask, one_partition: str, codec: str
) -> None:
    """Produce 0 has to be advertised, or gzip, snappy and lz4 are silently not used."""
    # One line alone is smaller compressed too: a batch that would grow is sent as it is.
    lines = [f"line {n} with some text that repeats " * 20 for n in range(200)]
    config = {"compression.codec": codec, "batch.num.messages": "200", "linger.ms": "30000"}
    sent = ask("produce", one_partition, config, records=records(lines))
    assert sent == {"offsets": list(range(200)), "failures": []}
    assert values(ask("consume", one_partition, {"group.id": "unused"})) == lines
    (segment,) = (broker.data_dir / f"{one_partition}-0").glob("*.log")
    stored = {batch.attributes & 7 for batch in iter_batches(memoryview(segment.read_bytes()))}
    assert stored == {CODECS[codec]}


def test_it_produces_idempotently_with_keys_and_headers(ask: Ask, one_partition: str) -> None:
    sent = ask(
        "produce", one_partition, {"enable.idempotence": "true"}, records=[["k", "v", {"a": "1"}]]
    )
    assert sent == {"offsets": [0], "failures": []}
    found = ask("consume", one_partition, {"group.id": "unused"})["records"]
    assert found == [["k", "v", {"a": "1"}, 0]]


def test_its_transactions_end_as_it_says(ask: Ask, one_partition: str) -> None:
    for name, abort in (("kept", False), ("dropped", True)):
        config = {"transactional.id": f"{one_partition}-{name}"}
        ask("produce", one_partition, config, records=records([name]), abort=abort)
    committed = {"group.id": "unused", "isolation.level": "read_committed"}
    assert values(ask("consume", one_partition, committed)) == ["kept"]
    everything = {"group.id": "unused", "isolation.level": "read_uncommitted"}
    assert values(ask("consume", one_partition, everything)) == ["kept", "dropped"]


def test_it_consumes_in_a_group_and_commits(
    broker: BrokerProcess, ask: Ask, one_partition: str
) -> None:
    group = f"old-{uuid.uuid4().hex[:8]}"
    ask("produce", one_partition, records=records([str(n) for n in range(10)]))
    member = {"group.id": group, "auto.offset.reset": "earliest"}
    assert values(ask("consume", one_partition, member, count=10)) == [str(n) for n in range(10)]
    source = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    deadline = time.monotonic() + WAIT
    while source.committed([TopicPartition(one_partition, 0)], WAIT)[0].offset != 10:
        assert time.monotonic() < deadline
    source.close()
    ask("produce", one_partition, records=records(["next"]))
    assert values(ask("consume", one_partition, member, count=1)) == ["next"]


def test_it_lists_and_asks_for_offsets_by_time(ask: Ask, one_partition: str) -> None:
    ask("produce", one_partition, records=records(["x", "y"]))
    seen = ask("look", one_partition, times_ms=[-2, -1, 1])
    assert seen["topics"][one_partition] == 1
    assert seen["watermarks"] == [0, 2]
    assert seen["at"] == [0, 2, 0]
