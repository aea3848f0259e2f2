"""The audit formats: known bytes, round trips, and hostile input."""

from __future__ import annotations

import json
import re

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.audit import (
    CLAIM_RECORDS_MAX,
    HEADER_NAME,
    AuditFormatError,
    AuditHeader,
    Claim,
    FailedRecords,
    Latency,
    MonitoringEvent,
    TopicAccount,
    digest_text,
    find_audit_header,
    record_digest,
)
from penstock_client.ledger import CLAIM_RECORDS, DRAIN_CHUNK

positive = st.integers(0, 2**63 - 1)
milliseconds = st.floats(0, 1e9).map(lambda value: round(value, 3))


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int]:
    start = draw(st.integers(0, 2**50))
    return start, start + draw(st.integers(1, 10**6))


claims = st.builds(
    lambda partition, run, digest: Claim(
        partition, run[0], min(run[1], run[0] + CLAIM_RECORDS_MAX), digest
    ),
    st.integers(0, 10_000),
    ranges(),
    st.integers(0, 2**64 - 1),
)
accounts = st.builds(
    TopicAccount,
    topic=st.text(min_size=1, max_size=40),
    claims=st.lists(claims, max_size=5).map(tuple),
    sequences=st.lists(ranges(), max_size=5).map(tuple),
    topic_id=st.none() | st.text(min_size=1, max_size=22),
    cut_of=st.just(5 * 10**6),
    failed=st.lists(
        st.builds(lambda run, error: FailedRecords(*run, error), ranges(), st.text(max_size=20)),
        max_size=3,
    ).map(tuple),
    in_flight=st.integers(0, 10**6),
    records=st.integers(0, 10**9),
    bytes=st.integers(0, 10**12),
    first_timestamp_ms=st.none() | positive,
    last_timestamp_ms=st.none() | positive,
    latency_ms=st.none()
    | st.builds(Latency, milliseconds, milliseconds, milliseconds, milliseconds),
)
events = st.builds(
    MonitoringEvent,
    uuid=st.uuids().map(str),
    incarnation=st.integers(1, 2**63 - 1),
    number=st.integers(1, 10**9),
    final=st.booleans(),
    client_id=st.text(max_size=20),
    application=st.text(max_size=20),
    host=st.text(max_size=20),
    pid=st.integers(0, 2**22),
    started_at_ms=positive,
    sent_at_ms=positive,
    interval_ms=st.integers(0, 10**7),
    topics=st.lists(accounts, max_size=3).map(tuple),
)


def test_header_has_the_documented_bytes() -> None:
    header = AuditHeader(0x0102030405060708, 9, 1_700_000_000_000, "büro")
    assert header.encode().hex() == (
        "01" "0102030405060708" "0000000000000009" "0000018bcfe56800" "62c3bc726f"
    )  # fmt: skip


@given(positive, positive, positive, st.text(max_size=60))
def test_header_round_trip(incarnation: int, sequence: int, timestamp: int, server: str) -> None:
    header = AuditHeader(incarnation, sequence, timestamp, server)
    assert AuditHeader.decode(header.encode()) == header


@given(st.binary(max_size=60))
def test_header_decodes_or_raises_its_one_error(data: bytes) -> None:
    try:
        header = AuditHeader.decode(data)
    except AuditFormatError:
        return
    assert header.encode() == data


def test_the_last_header_of_the_name_counts() -> None:
    first, last = AuditHeader(1, 1, 1, "a"), AuditHeader(2, 2, 2, "b")
    headers = [(HEADER_NAME, first.encode()), ("trace", b"x"), (HEADER_NAME, last.encode())]
    assert find_audit_header(headers) == last
    assert find_audit_header(None) is None
    assert find_audit_header([("trace", None)]) is None


# What Spark 4.1's xxhash64(sequence, isnull(key), key, isnull(value), value) said, as unsigned.
KNOWN_DIGESTS: list[tuple[int, bytes | None, bytes | None, int]] = [
    (0, None, None, 18318512621598343068),
    (0, b"", None, 17809191086979643394),
    (0, None, b"", 6694284687664690774),
    (0, b"", b"", 7304140567836852136),
    (1, b"k", b"v", 10998409285430256786),
    (2**62 + 3, b"UA1545", b'{"carrier":"UA"}', 1476315713154287366),
    (7, None, bytes(range(256)), 6977847305463906877),
    (123456789, "schl\u00fcssel".encode(), b"x" * 33, 2032566305182991402),
]


@pytest.mark.parametrize(("sequence", "key", "value", "digest"), KNOWN_DIGESTS)
def test_digest_known_values(
    sequence: int, key: bytes | None, value: bytes | None, digest: int
) -> None:
    assert record_digest(sequence, key, value) == digest


def test_digest_by_its_definition() -> None:
    h = xxhash.xxh64((7).to_bytes(8, "little"), seed=42).intdigest()
    h = xxhash.xxh64((0).to_bytes(4, "little"), seed=h).intdigest()
    h = xxhash.xxh64(b"key", seed=h).intdigest()
    h = xxhash.xxh64((1).to_bytes(4, "little"), seed=h).intdigest()
    assert record_digest(7, b"key", None) == h


@given(st.integers(0, 2**63 - 1), st.none() | st.binary(), st.none() | st.binary())
def test_the_digest_distinguishes_null_from_empty_and_moves_with_the_sequence(
    sequence: int, key: bytes | None, value: bytes | None
) -> None:
    digest = record_digest(sequence, key, value)
    assert 0 <= digest < 2**64
    assert digest != record_digest(sequence ^ 1, key, value)
    if not key:
        assert digest != record_digest(sequence, b"" if key is None else None, value)
    if not value:
        assert digest != record_digest(sequence, key, b"" if value is None else None)


@given(events)
def test_event_round_trip(event: MonitoringEvent) -> None:
    assert MonitoringEvent.from_bytes(event.to_bytes()) == event


def test_event_has_the_documented_keys() -> None:
    account = TopicAccount(
        "flights",
        claims=(Claim(2, 100, 103, 2**64 + 255),),
        sequences=((0, 3),),
        failed=(FailedRecords(3, 4, "_MSG_TIMED_OUT"),),
        in_flight=1,
        records=3,
        bytes=30,
        first_timestamp_ms=5,
        last_timestamp_ms=6,
        latency_ms=Latency(1.0, 2.0, 3.0, 4.0),
        topic_id="an-id",
    )
    event = MonitoringEvent("u", 123, 1, False, "c", "app", "host", 1, 2, 3, 2000, (account,))
    assert event.key == b"123"
    assert json.loads(event.to_bytes()) == {
        "v": 2,
        "uuid": "u",
        "incarnation": "123",
        "number": 1,
        "final": False,
        "client_id": "c",
        "application": "app",
        "host": "host",
        "pid": 1,
        "started_at_ms": 2,
        "sent_at_ms": 3,
        "interval_ms": 2000,
        "topics": [
            {
                "topic": "flights",
                "topic_id": "an-id",
                "cut_of": None,
                "claims": [[2, 100, 103, "00000000000000ff"]],
                "sequences": [[0, 3]],
                "failed": [[3, 4, "_MSG_TIMED_OUT"]],
                "in_flight": 1,
                "records": 3,
                "bytes": 30,
                "first_timestamp_ms": 5,
                "last_timestamp_ms": 6,
                "latency_ms": {"p50": 1.0, "p95": 2.0, "p99": 3.0, "max": 4.0},
            }
        ],
    }


@given(st.binary(max_size=40) | events.map(lambda event: event.to_bytes()[:-3]))
def test_event_decodes_or_raises_its_one_error(data: bytes) -> None:
    with pytest.raises(AuditFormatError):
        MonitoringEvent.from_bytes(data)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("v", 1),
        ("incarnation", 5),
        ("incarnation", "0"),
        ("incarnation", str(2**63)),
        ("number", 2**63),
        ("number", -1),
        ("number", True),
        ("topics", [{"topic": "t"}]),
        ("topics", 7),
        ("started_at_ms", "now"),
    ],
)
def test_event_with_a_wrong_field_is_refused(key: str, value: object) -> None:
    raw = json.loads(MonitoringEvent("u", 1, 1, True, "c", "a", "h", 1, 1, 1, 1).to_bytes())
    raw[key] = value
    with pytest.raises(AuditFormatError):
        MonitoringEvent.from_bytes(json.dumps(raw).encode())


@pytest.mark.parametrize(
    "claim", [[-1, 0, 1, "0" * 16], [0, 5, 5, "0" * 16], [0, 0, 1, "zz"], [0, 0, 1, "z" * 16], [0]]
)
def test_event_with_a_wrong_claim_is_refused(claim: list[object]) -> None:
    raw = json.loads(
        MonitoringEvent("u", 1, 1, True, "c", "a", "h", 1, 1, 1, 1, (TopicAccount("t"),)).to_bytes()
    )
    raw["topics"][0]["claims"] = [claim]
    with pytest.raises(AuditFormatError):
        MonitoringEvent.from_bytes(json.dumps(raw).encode())


@given(st.integers(0, 2**70))
def test_digest_text_is_sixteen_digits_modulo_two_to_the_64(digest: int) -> None:
    text = digest_text(digest)
    assert len(text) == 16
    assert int(text, 16) == digest % 2**64


def _account_of(claims: list[list[object]], sequences: list[list[int]], **more: object) -> bytes:
    event = MonitoringEvent("u", 1, 1, True, "c", "a", "h", 1, 1, 1, 1, (TopicAccount("t"),))
    raw = json.loads(event.to_bytes())
    raw["topics"][0] |= {"claims": claims, "sequences": sequences, **more}
    return json.dumps(raw).encode()


DIGEST = "0" * 16
MOST = CLAIM_RECORDS_MAX


@pytest.mark.parametrize(
    ("claims", "sequences", "more", "words"),
    [
        ([[0, 46_891, 10**12, DIGEST]], [[0, 10**12]], {}, "a claim of 999,999,953,109 records"),
        ([[0, 0, MOST + 1, DIGEST]], [[0, MOST + 1]], {}, "at most 16,384"),
        ([[0, 0, 10, DIGEST]], [[0, 9]], {}, "10 records of t are claimed and 9"),
        ([[0, 0, 5, DIGEST], [1, 0, 5, DIGEST]], [[0, 9]], {}, "10 records of t are claimed"),
        ([[0, 0, 10, DIGEST]], [], {"cut_of": 9}, "the account has 9"),
        ([], [[0, 10]], {"cut_of": 9}, "10 sequences acknowledged"),
        ([[0, 2**62, 2**62 + 1, DIGEST]], [[0, 1]], {}, "no range of numbers"),
        ([[2**31, 0, 1, DIGEST]], [[0, 1]], {}, "partition 2147483648"),
        ([[0, 0, 1, DIGEST]], [[10**40, 10**40 + 1]], {}, "no range of numbers"),
    ],
)
def test_an_account_that_says_more_than_it_can_is_refused(
    claims: list[list[object]], sequences: list[list[int]], more: dict[str, object], words: str
) -> None:
    with pytest.raises(AuditFormatError, match=re.escape(words)):
        MonitoringEvent.from_bytes(_account_of(claims, sequences, **more))


@pytest.mark.parametrize(
    ("claims", "sequences", "more"),
    [
        ([[0, 7, 7 + MOST, DIGEST]], [[0, MOST]], {}),
        ([[2**31 - 1, 2**62 - 1, 2**62, DIGEST]], [[2**62 - 1, 2**62]], {}),
        ([], [[0, 10]], {}),  # acknowledged without an offset: nothing to claim
        ([[0, 0, 10, DIGEST]], [], {"cut_of": 10}),
    ],
)
def test_what_a_producer_can_have_done_is_read(
    claims: list[list[object]], sequences: list[list[int]], more: dict[str, object]
) -> None:
    MonitoringEvent.from_bytes(_account_of(claims, sequences, **more))


def test_the_ledger_keeps_to_the_formats_bound() -> None:
    assert CLAIM_RECORDS + DRAIN_CHUNK <= CLAIM_RECORDS_MAX


@pytest.mark.parametrize("version", [0, 2, 255])
def test_a_header_of_another_version_is_refused(version: int) -> None:
    whole = AuditHeader(1, 2, 3, "s").encode()
    assert whole[0] == 1
    with pytest.raises(AuditFormatError, match=f"version {version}"):
        AuditHeader.decode(bytes([version]) + whole[1:])
    with pytest.raises(AuditFormatError, match="24 bytes"):
        AuditHeader.decode(whole[:24])
    assert AuditHeader.decode(whole[:25]).server == ""
