"""kcat, as distributions ship it: an old librdkafka, whose ideas of versions are its own.

librdkafka up to 2.11.0 looks for exact versions (JoinGroup 0, Produce 0, FindCoordinator 0, …) to
decide what a broker can do, and leaves out compression or groups without a word otherwise
(confluentinc/librdkafka#4956). Skipped where there is no kcat.
"""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock_broker.testing.broker_process import BrokerProcess
from penstock_broker.wire.records import iter_batches

WAIT = 30.0
KCAT = shutil.which("kcat") or shutil.which("kafkacat")
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

pytestmark = pytest.mark.skipif(KCAT is None, reason="there is no kcat here")


def kcat(broker: BrokerProcess, *arguments: str, given: bytes = b"") -> bytes:
    assert KCAT is not None
    done = subprocess.run(
        [KCAT, "-b", broker.bootstrap, *arguments],
        input=given,
        capture_output=True,
        timeout=WAIT,
        check=True,
    )
    return done.stdout


@pytest.fixture
def one_partition(broker: BrokerProcess, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT)
    return topic


@pytest.mark.parametrize("codec", CODECS)
def test_it_compresses_with_every_codec(
    broker: BrokerProcess, one_partition: str, codec: str
) -> None:
    """Produce 0 has to be advertised, or gzip, snappy and lz4 are silently not used."""
    lines = b"".join(b"line %d with some text that repeats\n" % n for n in range(200))
    kcat(broker, "-P", "-t", one_partition, "-z", codec, given=lines)
    assert kcat(broker, "-C", "-t", one_partition, "-e", "-q") == lines
    (segment,) = (broker.data_dir / f"{one_partition}-0").glob("*.log")
    stored = {batch.attributes & 7 for batch in iter_batches(memoryview(segment.read_bytes()))}
    assert stored == {CODECS[codec]}


def test_it_produces_idempotently_with_keys_and_headers(
    broker: BrokerProcess, one_partition: str
) -> None:
    kcat(
        broker,
        *("-P", "-t", one_partition, "-K:", "-H", "a=1", "-X", "enable.idempotence=true"),
        given=b"k:v\n",
    )
    shown = kcat(broker, "-C", "-t", one_partition, "-e", "-q", "-f", "%k %s %h %o\n")
    assert shown == b"k v a=1 0\n"


def test_it_consumes_in_a_group_and_commits(broker: BrokerProcess, one_partition: str) -> None:
    group = f"kcat-{uuid.uuid4().hex[:8]}"
    kcat(broker, "-P", "-t", one_partition, given=b"".join(b"%d\n" % n for n in range(10)))
    begin = ("-X", "auto.offset.reset=earliest", "-X", "auto.commit.interval.ms=100")
    shown = kcat(broker, "-G", group, *begin, "-c", "10", "-q", one_partition)
    assert shown.split() == [b"%d" % n for n in range(10)]
    source = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    deadline = time.monotonic() + WAIT
    while source.committed([TopicPartition(one_partition, 0)], WAIT)[0].offset != 10:
        assert time.monotonic() < deadline
    source.close()
    kcat(broker, "-P", "-t", one_partition, given=b"next\n")
    assert kcat(broker, "-G", group, *begin, "-c", "1", "-q", one_partition) == b"next\n"


def test_it_lists_and_asks_for_offsets_by_time(broker: BrokerProcess, one_partition: str) -> None:
    kcat(broker, "-P", "-t", one_partition, given=b"x\ny\n")
    assert f'topic "{one_partition}"'.encode() in kcat(broker, "-L", "-t", one_partition)
    shown = [
        kcat(broker, "-Q", "-t", f"{one_partition}:0:{time_ms}").split()[-1] for time_ms in (-2, -1)
    ]
    assert shown == [b"0", b"2"]
