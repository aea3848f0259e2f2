"""Bytes of a real Apache Kafka 4.3.1, its Java producer and librdkafka (see capture_goldens.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock_broker.wire.apis import APIS
from penstock_broker.wire.compression import Codec
from penstock_broker.wire.records import iter_batches
from penstock_broker.wire.schema import decode, encode

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent / "golden" / "apache_kafka.json").read_text()
)
RESPONSES = GOLDEN["responses"]
BATCHES = GOLDEN["batches"]


@pytest.mark.parametrize(
    "answer", RESPONSES, ids=lambda a: f"{APIS[a['key']].name}-v{a['version']}"
)
def test_answers_decode_and_encode_to_the_same_bytes(answer: dict[str, Any]) -> None:
    raw = bytes.fromhex(answer["hex"])
    cls, version = APIS[answer["key"]].response, answer["version"]
    message, position = decode(cls, version, memoryview(raw))
    assert position == len(raw)
    if answer["key"] == 18 and version >= 3:
        # Apache Kafka writes the empty lists of features that it has; we leave them out.
        assert decode(cls, version, encode(message, version))[0] == message
    else:
        assert encode(message, version) == raw


def test_the_answers_say_what_they_should() -> None:
    found: dict[tuple[int, int], Any] = {
        (a["key"], a["version"]): decode(
            APIS[a["key"]].response, a["version"], bytes.fromhex(a["hex"])
        )[0]
        for a in RESPONSES
    }
    assert found[18, 4].api_keys[0].api_key == 0
    assert found[18, 4].finalized_features
    assert found[3, 12].topics[0].topic_id.int != 0
    assert found[3, 12].topics[0].partitions[0].leader_id == found[3, 12].brokers[0].node_id
    assert found[60, 0].cluster_id == found[3, 12].cluster_id
    assert found[2, 7].topics[0].partitions[0].offset == 30
    configs = {c.name: c for c in found[32, 4].results[0].configs}
    assert configs["retention.ms"].value == "604800000"
    assert any(config.synonyms for config in configs.values())
    assert found[1, 12].responses[0].partitions[0].high_watermark == 30
    _the_newer_apis(found)


def _the_newer_apis(found: dict[tuple[int, int], Any]) -> None:
    """The last answer of each (API, version): topic ids, transactions, admin."""
    described = found[75, 0].topics[0]
    assert found[1, 16].responses[0].topic_id == described.topic_id
    assert found[1, 17].responses[0].partitions[0].error_code == 75, "an epoch of the future"
    first, second = found[0, 11].responses[0].partition_responses
    assert (first.error_code, second.error_code) == (0, 3)
    assert first.base_offset >= 30
    assert found[9, 9].groups[0].topics[0].partitions[0].committed_offset == 7
    assert found[2, 8].topics[0].partitions[0].offset == 0
    assert found[2, 9].topics[0].partitions[0].error_code == 35
    assert {group.group_type for group in found[16, 5].groups} == {"classic"}
    assert found[26, 4].error_code == found[25, 4].error_code == 49
    assert found[65, 0].transaction_states[0].error_code == 105
    assert found[66, 1].unknown_state_filters == ["Odd"]
    assert [p.error_code for p in found[61, 0].topics[0].partitions] == [0, 3]
    elected = found[43, 2].replica_election_results[0].partition_result
    assert [p.error_code for p in elected] == [84, 3]
    assert found[35, 4].results[0].usable_bytes > 0
    assert found[34, 2].results[0].partitions[0].error_code == 57
    assert [topic.error_code for topic in found[19, 7].topics] == [0, 17]
    users = {result.user: result for result in found[50, 0].results}
    assert users["wire-golden"].credential_infos[0].iterations == 4096
    assert users["wire-none"].error_code == 91
    assert [v.value for v in found[48, 1].entries[0].values] == [12345.0]


@pytest.mark.parametrize("name", BATCHES)
def test_real_batches_are_read(name: str) -> None:
    writer, codec = name.split("-")
    batches = list(iter_batches(memoryview(bytes.fromhex(BATCHES[name]))))
    assert all(batch.crc_is_valid() for batch in batches)
    assert {batch.codec for batch in batches} == {Codec[codec.upper()]}
    records = [record for batch in batches for record in batch.records()]
    assert [record.offset for record in records] == list(range(30))
    for n, record in enumerate(records):
        value = b"value-%d-" % n + b"x" * (n * 10)
        if writer == "java":
            assert (record.key, record.value, record.headers) == (b"key-%d" % n, value, [])
            continue
        assert record.key == (None if n % 3 == 0 else b"key-%d" % n)
        assert record.value == (None if n % 7 == 6 else value)
        assert record.headers == ([("h", b"1"), ("empty", None)] if n % 4 == 0 else [])
        assert record.timestamp == 1_700_000_000_000 + n * 1000
    for batch in batches:
        times = list(batch.timestamps())
        mine = [r for r in records if batch.base_offset <= r.offset <= batch.last_offset]
        assert times == [(r.offset, r.timestamp) for r in mine]
        assert max(time for _, time in times) == batch.max_timestamp
