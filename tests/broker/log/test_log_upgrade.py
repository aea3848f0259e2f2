"""A data directory that the first release wrote is opened by today's code, with all in it.

``golden/layout-1-clean.tar.gz`` was closed properly, ``layout-1-killed.tar.gz`` was killed and has
a torn last batch in ``plain-1``. Both hold: ``plain`` (two partitions, LZ4, several segments,
records deleted below 10 in the first), ``compacted`` (never compacted), ``numbered`` (an
idempotent producer), and a group's commit. They are data, never made again.
"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.groups.offset_records import OffsetKey, decode_key, decode_offset_value
from penstock_broker.log.check import check_log
from penstock_broker.log.files import OsFiles
from penstock_broker.replication.partition import Partition
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import Record, iter_batches

from storage_broker import Broker  # isort: skip

GOLDEN = Path(__file__).parent / "golden"


def unpack(name: str, tmp_path: Path) -> Path:
    """Directories and plain files only, below ``tmp_path``: ``extractall`` has its filter from
    Python 3.11.4 on, and Debian 12 has 3.11.2."""
    data = tmp_path / "data"
    with tarfile.open(GOLDEN / f"layout-1-{name}.tar.gz") as archive:
        for member in archive:
            target = data / member.name
            assert target.resolve().is_relative_to(data.resolve()), member.name
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            content = archive.extractfile(member)
            assert content is not None, f"{member.name} is no plain file"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.read())
    return data


def records(partition: Partition) -> list[Record]:
    found: list[Record] = []
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        data = partition.fetch(offset, 1 << 20).read()
        for batch in iter_batches(memoryview(data)):
            found += [record for record in batch.records() if record.offset >= offset]
            end = batch.next_offset
        offset = end
    return found


def assert_all_is_there(broker: Broker, plain_1_end: int) -> None:
    plain = broker.replicas.partition("plain", 0)
    assert [r.offset for r in records(plain)] == list(range(10, 30))
    other = records(broker.replicas.partition("plain", 1))
    assert [r.value for r in other] == [b"value %d" % (2 * n + 1) for n in range(plain_1_end)]
    assert [r.timestamp for r in other[:2]] == [1_700_000_001_000, 1_700_000_003_000]
    compacted = broker.replicas.partition("compacted", 0)
    assert len(records(compacted)) == 60
    assert compacted.log.config.cleanup_policy == ("compact",)
    assert len(records(broker.replicas.partition("numbered", 0))) == 12
    (commit,) = records(broker.replicas.partition("__consumer_offsets", 0))
    assert commit.key is not None
    assert commit.value is not None
    assert decode_key(commit.key) == OffsetKey("readers", "plain", 1)
    assert decode_offset_value(commit.value).offset == 17


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_the_first_layout_is_read(name: str, tmp_path: Path) -> None:
    data = unpack(name, tmp_path)
    topics = {t["name"]: t for t in json.loads((data / "metadata.json").read_text())["topics"]}
    broker = Broker(OsFiles(), data)
    end = 30 if name == "clean" else 29
    assert_all_is_there(broker, end)
    for topic in broker.metadata.topics.values():
        assert str(topic.topic_id) == topics[topic.name]["id"], "it is the same topic"
        raised = 0 if name == "clean" else 1
        assert topic.partitions[0].leader_epoch == topics[topic.name]["leader_epochs"][0] + raised
    assert broker.append("plain", 1, "continues") == end
    broker.replicas.close()
    assert check_log(data, io.StringIO()) == 0
    again = Broker(OsFiles(), data)
    assert again.logs.was_clean
    assert records(again.replicas.partition("plain", 1))[-1].value == b"continues"
    again.replicas.close()


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_an_idempotent_producer_continues(name: str, tmp_path: Path) -> None:
    """Its last sequence is in the old snapshot, or in the log: a repeat is known, a gap refused."""
    broker = Broker(OsFiles(), unpack(name, tmp_path))
    numbered = broker.replicas.partition("numbered", 0)
    ((producer_id, entry),) = numbered.log.producers.producers().items()
    assert entry.last_sequence == 11

    def send(sequence: int) -> int:
        batch = build_batch(
            [NewRecord(None, b"x", 5)],
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            base_sequence=sequence,
        )
        return numbered.append(memoryview(batch)).base_offset

    assert send(11) == 11, "a repeat of the last one"
    assert numbered.log_end_offset == 12
    with pytest.raises(KafkaError) as error:
        send(14)
    assert error.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(12) == 12
    broker.replicas.close()


def test_the_torn_tail_of_the_killed_one_is_reported(tmp_path: Path) -> None:
    data = unpack("killed", tmp_path)
    broker = Broker(OsFiles(), data)
    (cut,) = [
        json.loads(line)
        for line in (data / "recovery-report.jsonl").read_text().splitlines()
        if '"cut"' in line
    ]
    assert (cut["topic"], cut["partition"], cut["first_offset"], cut["end_offset"]) == (
        "plain",
        1,
        29,
        30,
    )
    assert broker.logs.metrics.recovery_cuts.value == 1
    broker.replicas.close()


def test_a_later_layout_is_refused(tmp_path: Path) -> None:
    data = unpack("clean", tmp_path)
    (data / "format").write_text("version: 2\n")
    with pytest.raises(Exception, match="this broker reads version 1"):
        Broker(OsFiles(), data)
