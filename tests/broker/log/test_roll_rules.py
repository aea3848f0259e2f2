"""When a segment is full, too old, or out of space in its index: each rule at its edge."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from penstock_broker.config import LogConfig
from penstock_broker.log.rolling import NO_SPACE, Space, must_roll, space_in
from penstock_broker.log.segment import Segment

NOW_MS = 1_000_000


@dataclass
class Index:
    size_bytes: int = 0


@dataclass
class Piece:
    """A segment as the rules see it: half full, of records from 500 to 700 ms."""

    size: int = 500
    base_offset: int = 100
    first_timestamp: int = 500
    timestamp_max: int = 700
    first_append_ms: int | None = NOW_MS - 60
    offset_index: Index = field(default_factory=Index)
    path: Path = Path("/data/t-0/00000000000000000100.log")


CONFIG: dict[str, Any] = {"segment_bytes": 1_000, "segment_index_bytes": 80, "segment_ms": 300}


def rolls(
    piece: Piece, size: int = 10, offset: int = 200, time_ms: int | None = 700, **changed: Any
) -> bool:
    segment, config = cast(Segment, piece), LogConfig(**CONFIG | changed)
    return must_roll(segment, config, size, offset, now_ms=NOW_MS, timestamp=time_ms)


def space(piece: Piece, **changed: Any) -> Space:
    return space_in(cast(Segment, piece), LogConfig(**CONFIG | changed))


@pytest.mark.parametrize(
    ("piece", "arguments", "expected"),
    [
        (Piece(), {}, False),
        (Piece(), {"size": 500}, False),
        (Piece(), {"size": 501}, True),
        (Piece(), {"offset": 100 + 2**31 - 1}, False),
        (Piece(), {"offset": 100 + 2**31}, True),
        (Piece(base_offset=2**40), {"offset": 2**40 + 5}, False),
        (Piece(offset_index=Index(79)), {}, False),
        (Piece(offset_index=Index(80)), {}, True),
        (Piece(), {"time_ms": 800}, False),
        (Piece(), {"time_ms": 801}, True),
        (Piece(), {"time_ms": None}, False),
        (Piece(timestamp_max=800), {"time_ms": None}, False),
        (Piece(timestamp_max=801), {"time_ms": None}, True),
        (Piece(timestamp_max=801), {"time_ms": 800}, False),
        (Piece(first_timestamp=0), {"time_ms": 300}, False),
        (Piece(first_timestamp=0), {"time_ms": 301}, True),
        # Without timestamps: by the broker's clock.
        (Piece(first_timestamp=-1), {"time_ms": 10**9}, False),
        (Piece(first_timestamp=-1, first_append_ms=NOW_MS - 300), {}, False),
        (Piece(first_timestamp=-1, first_append_ms=NOW_MS - 301), {}, True),
        (Piece(first_timestamp=-1, first_append_ms=None), {}, False),
    ],
)  # fmt: skip
def test_a_batch_needs_a_new_segment(
    piece: Piece, arguments: dict[str, Any], expected: bool
) -> None:
    assert rolls(piece, **arguments) is expected


@pytest.mark.parametrize("size", [1, 10**6])
def test_an_empty_segment_takes_anything(size: int) -> None:
    piece = Piece(size=0, first_timestamp=0, offset_index=Index(80))
    assert rolls(piece, size=size, offset=2**40, time_ms=10**9) is False
    assert space(piece) == NO_SPACE
    assert NO_SPACE == (0, 0, -1, -1), "each batch is asked about"
    assert rolls(Piece(size=1), size=1_000)


def age_that_rolls(piece: Piece, jitter_ms: int) -> int:
    """In ms: the least that is too old."""
    found = [
        age for age in range(400) if rolls(piece, time_ms=500 + age, segment_jitter_ms=jitter_ms)
    ]
    assert found == list(range(found[0], 400))
    return found[0]


def test_jitter_brings_rolls_forward_by_a_share_that_differs_from_log_to_log() -> None:
    """Otherwise the segments of all partitions that were begun together end together."""
    paths = [Path(f"/data/t-{number}/00000000000000000100.log") for number in range(40)]
    ages = [age_that_rolls(Piece(path=path), 100) for path in paths]
    assert ages == [age_that_rolls(Piece(path=path), 100) for path in paths], "for good"
    assert min(ages) > 200 and max(ages) <= 301
    assert len(set(ages)) > 20
    assert age_that_rolls(Piece(), 0) == 301
    assert age_that_rolls(Piece(), 1) == 301


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (Piece(), Space(500, 10, 100 + 2**31 - 1, 800)),
        (Piece(offset_index=Index(64)), Space(500, 2, 100 + 2**31 - 1, 800)),
        (Piece(offset_index=Index(79)), Space(500, 1, 100 + 2**31 - 1, 800)),
        (Piece(offset_index=Index(80)), Space(500, 1, 100 + 2**31 - 1, 800)),
        (Piece(first_timestamp=0), Space(500, 10, 100 + 2**31 - 1, 300)),
        (Piece(first_timestamp=-1), Space(500, 10, 100 + 2**31 - 1, 2**63 - 1)),
        (Piece(size=1, base_offset=0), Space(999, 10, 2**31 - 1, 800)),
    ],
)
def test_what_is_let_in_without_a_question(piece: Piece, expected: Space) -> None:
    assert space(piece) == expected


def test_jitter_asks_earlier() -> None:
    assert space(Piece(), segment_jitter_ms=70)[3] == 730
