"""The digest and the header, computed in Spark's JVM, are those of the client in Python."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from held_records import HeldRecords

from penstock_client.audit import AuditHeader, record_digest
from penstock_platform.connections import Connections
from penstock_platform.lake import spark_content
from penstock_platform.landing.attempt import land_window
from penstock_platform.ranges import OffsetRange, Spans
from penstock_platform.reconciliation import confirmation
from penstock_platform.reconciliation import spark_stored as stored
from penstock_platform.reconciliation.confirmation import Remaining
from penstock_platform.reconciliation.model.confirmed import ClaimTable
from penstock_platform.reconciliation.spark_stored import SparkClaims, stored_records

pytestmark = [pytest.mark.services, pytest.mark.xdist_group("lake")]


def audited(incarnation: int, sequence: int, server: str = "host") -> tuple[str, bytes]:
    return "penstock.audit", AuditHeader(incarnation, sequence, 1_700_000_000_000, server).encode()


def test_digest_and_header_in_spark_are_those_in_python(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    rng = random.Random(11)
    records = []
    expected: dict[int, list[tuple[int, int, int]]] = {0: [], 1: []}
    pieces = [None, b"", b"\x00", b"x", "größe".encode(), b"\xff" * 33]
    for i in range(600):
        key = pieces[i % len(pieces)] if i % 3 else rng.randbytes(rng.randrange(70))
        value = pieces[(i // 6) % len(pieces)] if i % 2 else rng.randbytes(rng.randrange(300))
        incarnation = rng.choice([1, 2**63 - 1, rng.getrandbits(62) + 1])
        sequence = rng.choice([0, i, 2**40 + i, 2**63 - 1])
        header = audited(incarnation, sequence, "ä" * (i % 3))
        records.append((i % 2, key, value, [("other", b"1"), header]))
        expected[i % 2].append((incarnation, sequence, record_digest(sequence, key, value)))
    topic = desk("digest", partitions=3)
    topic.send(records)
    window = topic.freeze()
    land_window(penstock, window)

    found = stored_records(penstock.spark.session(), [window], window.ranges)

    assert set(found) == {0, 1}
    for partition, wanted in expected.items():
        got = found[partition]
        assert np.array_equal(got.offset, np.arange(300))
        triples = zip(
            got.incarnation.tolist(), got.sequence.tolist(), got.digest.tolist(), strict=True
        )
        assert list(triples) == wanted


def test_headers_that_are_none_of_ours_count_as_none(
    penstock: Connections, desk: Callable[..., Any]
) -> None:
    name = "penstock.audit"
    ours = audited(7, 3)
    headers: list[list[tuple[str, bytes | None]]] = [
        [],
        [("other", b"x")],
        [(name, None)],
        [(name, b"")],
        [(name, b"\x01" * 24)],
        [(name, b"\x02" + ours[1][1:])],
        [(name, struct.pack(">Bqqq", 1, -5, 3, 0))],
        [(name, struct.pack(">Bqqq", 1, 5, -3, 0))],
        [ours],
        [(name, b"junk"), ours],
        [ours, (name, b"junk")],
        [audited(8, 8), ours],
    ]
    topic = desk("headers")
    topic.send((0, b"k", b"v", given) for given in headers)
    window = topic.freeze()
    land_window(penstock, window)
    found = stored_records(penstock.spark.session(), [window], window.ranges)[0]
    stamped = [i == 7 and s == 3 and d != 0 for i, s, d in zip(*found_numbers(found), strict=True)]
    none = [i == 0 and s == -1 and d == 0 for i, s, d in zip(*found_numbers(found), strict=True)]
    assert stamped == [False] * 8 + [True, True, False, True]
    assert none == [not t for t in stamped]


def test_several_windows_and_narrow_ranges_batch_by_batch(
    penstock: Connections, desk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "RECORDS_PER_READ", 7)
    topic = desk("ranges", partitions=2)
    windows = []
    for _ in range(2):
        topic.send((p, None, b"v", [audited(1, i)]) for i in range(10) for p in (0, 1))
        windows.append(topic.freeze())
        land_window(penstock, windows[-1])
    spark = penstock.spark.session()
    wanted = [OffsetRange(0, 8, 13), OffsetRange(1, 0, 20)]
    found = stored_records(spark, windows, wanted)
    assert found[0].offset.tolist() == list(range(8, 13))
    assert found[1].offset.tolist() == list(range(20))
    assert stored_records(spark, windows[:1], wanted)[0].offset.tolist() == [8, 9]
    assert stored_records(spark, windows, []) == {}


def test_claims_are_summed_where_the_data_is_as_record_by_record(
    penstock: Connections, desk: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two windows of two partitions, three producers and records without header."""
    monkeypatch.setattr(stored, "PIECES_PER_READ", 3)
    monkeypatch.setattr(stored, "RANGES_IN_FILTER_MAX", 2)
    monkeypatch.setattr(stored, "PIECE_BITS", 4)
    monkeypatch.setattr(spark_content, "CHUNK_BITS", 5)
    monkeypatch.setattr(spark_content, "CHUNK_OFFSETS", 32)
    rng = random.Random(3)
    topic = desk("claims", partitions=2)
    windows = []
    for _ in range(2):
        owners = [rng.choice([0, 7, 8, 2**62]) for _ in range(240)]
        topic.send(
            (i % 2, None, b"%d" % i, [audited(owner, i // 3)] if owner else [])
            for i, owner in enumerate(owners)
        )
        windows.append(topic.freeze())
        land_window(penstock, windows[-1])
    everything = [OffsetRange(0, 0, 240), OffsetRange(1, 0, 240)]
    held = HeldRecords(stored_records(penstock.spark.session(), windows, everything))
    claims = SparkClaims(penstock.spark, "test")

    edges = {p: sorted(rng.sample(range(240), 20)) for p in (0, 1)}
    rows = [
        (p, start, end, rng.choice([7, 8, 2**62]), 120)
        for p, found in edges.items()
        for start, end in zip(found[::2], found[1::2], strict=True)
    ]
    rows.append((1, 230, 300, 7, 120))
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    table = ClaimTable(*columns[:4], np.zeros(len(rows), np.uint64), columns[4])
    ours, theirs = claims.sums(windows, table), held.sums(windows, table)
    for name in ("rows", "own", "digest", "first", "last"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist(), name
    assert ours.own.any()

    ranges = [OffsetRange(p, s, e) for p, s, e, *_ in rows if e <= 240]
    assert_same(claims.remaining(windows, ranges), held.remaining(windows, ranges))
    assert_same(claims.remaining(windows, ranges[:1]), held.remaining(windows, ranges[:1]))
    assert claims.remaining(windows, []) == Remaining()
    for most in (100, 5):  # of 480 records some 360 have a header
        monkeypatch.setattr(confirmation, "REMAINING_MAX", most)
        some = [OffsetRange(0, 3, 130)] if most == 100 else everything
        assert_same(claims.remaining(windows, some), held.remaining(windows, some))
    incarnation, sequence = np.array([7, 8, 9], np.int64), np.array([11, 12, 13], np.int64)
    again = claims.with_sequences(windows, ranges, incarnation, sequence)
    assert_records(again, held.with_sequences(windows, ranges, incarnation, sequence))
    assert claims.with_sequences(windows, [], incarnation, sequence) == {}


def assert_same(ours: Remaining, theirs: Remaining) -> None:
    ours_bare, theirs_bare = (
        {p: spans.pairs() for p, spans in found.unstamped.items() if spans}
        for found in (ours, theirs)
    )
    brought = {
        p: Spans.of_values(found.offset[found.incarnation <= 0]).pairs()
        for p, found in ours.records.items()
        if (found.incarnation <= 0).any()
    }
    assert {**ours_bare, **brought} == theirs_bare
    assert {p: spans.pairs() for p, spans in ours.unread.items()} == {
        p: spans.pairs() for p, spans in theirs.unread.items()
    }
    audited_ones = {p: found.take(found.incarnation > 0) for p, found in ours.records.items()}
    assert_records({p: found for p, found in audited_ones.items() if len(found)}, theirs.records)


def assert_records(ours: Any, theirs: Any) -> None:
    assert ours.keys() == theirs.keys()
    for p in ours:
        for name in ("offset", "incarnation", "sequence", "digest"):
            assert getattr(ours[p], name).tolist() == getattr(theirs[p], name).tolist()


def found_numbers(found: Any) -> tuple[list[int], list[int], list[int]]:
    return found.incarnation.tolist(), found.sequence.tolist(), found.digest.tolist()
