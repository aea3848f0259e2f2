"""The report of what starts have found and cut, and what is counted of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from penstock_broker.log.recovery import Cut, Recovered
from penstock_broker.log.recovery_report import RecoveryReport
from penstock_broker.log.segment_checkpoint import LogCheckpoints
from penstock_broker.metrics import Metrics
from penstock_broker.testing import MemFiles, SimClock

DATA_DIR = Path("/data")
CUT = Cut("t", 3, 10, 14, "CRC mismatch", "a.log", 700, 90, ("b.log",))


class Start:
    """A start whose report is read."""

    def __init__(self, files: MemFiles | None = None) -> None:
        self.files = files or MemFiles()
        self.files.make_directory(DATA_DIR)
        self.metrics = Metrics()
        self.report = RecoveryReport(DATA_DIR, self.files, SimClock(5_000), self.metrics)

    def found(self, bytes_checked: int, cut: Cut | None) -> None:
        checkpoints = LogCheckpoints(self.files, DATA_DIR, [])
        self.report.add_recovered(
            Recovered([], 0, checkpoints, bytes_checked=bytes_checked, cut=cut)
        )

    def lines(self) -> list[dict[str, object]]:
        text = self.files.get(DATA_DIR / "recovery-report.jsonl").decode()
        return [json.loads(line) for line in text.splitlines()]

    def counted(self) -> tuple[float, float, float]:
        metrics = self.metrics
        return (
            metrics.recovery_cuts.value,
            metrics.recovery_bytes.value,
            metrics.recovery_records.value,
        )


def test_a_cut_is_reported_and_counted() -> None:
    start = Start()
    start.found(1_000, CUT)
    assert start.lines() == [{
        "event": "cut", "at_ms": 5_000, "topic": "t", "partition": 3, "first_offset": 10,
        "end_offset": 14, "reason": "CRC mismatch", "segment": "a.log", "position": 700,
        "bytes": 90, "segments_removed": ["b.log"],
    }]  # fmt: skip
    assert start.counted() == (1, 90, 4)


def test_of_a_cut_that_does_not_say_how_many_records_went_none_are_counted() -> None:
    start = Start()
    start.found(0, replace(CUT, end_offset=None))
    assert start.lines()[0]["end_offset"] is None
    assert start.counted() == (1, 90, 0)


def test_a_start_is_summed_up() -> None:
    start = Start()
    start.found(1_000, CUT)
    start.found(200, None)
    start.found(30, CUT)
    start.report.add_start(7)
    assert start.lines()[2:] == [
        {"event": "start", "at_ms": 5_000, "logs": 7, "bytes_checked": 1_230, "cuts": 2}
    ]
    assert start.counted() == (2, 180, 8)


def test_the_next_start_adds_its_lines_and_counts_from_the_beginning() -> None:
    start = Start()
    start.found(1_000, CUT)
    start.report.add("missing", topic="u")
    again = Start(start.files.kill())
    again.report.add_start(0)
    assert again.lines()[1:] == [
        {"event": "missing", "at_ms": 5_000, "topic": "u"},
        {"event": "start", "at_ms": 5_000, "logs": 0, "bytes_checked": 0, "cuts": 0},
    ]
