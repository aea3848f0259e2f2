"""Which segments retention deletes, by their times and sizes."""

from __future__ import annotations

import pytest

from penstock_broker.log.retention import RetentionPlan, plan_retention


class Piece:
    """A segment as the plan sees it."""

    def __init__(self, base_offset: int, size: int, newest_ms: int) -> None:
        self.base_offset = base_offset
        self.size = size
        self.newest_ms = newest_ms


PIECES = [Piece(5, 100, 1000), Piece(10, 100, 9000), Piece(20, 100, 2000), Piece(30, 50, 3000)]


def plan(
    pieces: list[Piece] = PIECES,
    *,
    ms: int = -1,
    size: int = -1,
    now: int = 0,
    high_watermark: int = 40,
) -> RetentionPlan:
    return plan_retention(
        pieces,
        retention_ms=ms,
        retention_bytes=size,
        now_ms=now,
        end_offset=40,
        high_watermark=high_watermark,
        newest_ms=lambda number: pieces[number].newest_ms,
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, (0, 0, 5)),
        ({"now": 10**6}, (0, 0, 5)),
        ({"ms": 100, "now": 1100}, (0, 0, 5)),  # not older than
        ({"ms": 100, "now": 1101}, (1, 0, 10)),
        ({"ms": 100, "now": 5000}, (1, 0, 10)),  # the second one's records are younger
        ({"ms": 100, "now": 9101}, (4, 0, 40)),  # the active one too
        ({"ms": 100, "now": 9101, "high_watermark": 39}, (3, 0, 30)),
        ({"ms": 0, "now": 9000}, (1, 0, 10)),
        ({"size": 350}, (0, 0, 5)),
        ({"size": 251}, (0, 0, 5)),  # what is left is still as large as allowed
        ({"size": 250}, (0, 1, 10)),
        ({"size": 50}, (0, 3, 30)),
        ({"size": 0}, (0, 4, 40)),
        ({"size": 0, "high_watermark": 20}, (0, 2, 20)),
        ({"ms": 100, "now": 1101, "size": 150}, (1, 1, 20)),
    ],
)
def test_the_plan(arguments: dict[str, int], expected: tuple[int, int, int]) -> None:
    assert plan(**arguments) == expected  # type: ignore[arg-type]


def test_an_empty_active_segment_is_left() -> None:
    pieces = [Piece(0, 100, 1000), Piece(40, 0, -1)]
    assert plan(pieces, ms=0, now=10**9) == (1, 0, 40)
    pieces = [Piece(0, 100, 1000), Piece(10, 100, 1000), Piece(40, 0, -1)]
    assert plan(pieces, ms=0, now=10**9, high_watermark=15) == (1, 0, 10)
