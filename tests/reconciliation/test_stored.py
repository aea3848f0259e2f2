"""The digest and the header, computed in Spark's JVM, are those of the client in Python."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock_client.audit import AuditHeader, record_digest
from penstock_platform.connections import Connections
from penstock_platform.landing.attempt import land_window
from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation import spark_stored as stored
from penstock_platform.reconciliation.spark_stored import stored_records

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


def found_numbers(found: Any) -> tuple[list[int], list[int], list[int]]:
    return found.incarnation.tolist(), found.sequence.tolist(), found.digest.tolist()
