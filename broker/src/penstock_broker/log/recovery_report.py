"""What recovery found and cut, ever: ``recovery-report.jsonl`` in the data directory.

One JSON object a line, only ever added to:
``{"event": "cut", "at_ms", "topic", "partition", "first_offset", "end_offset", "reason",
"segment", "position", "bytes", "segments_removed"}`` says that offsets [first_offset, end_offset)
are gone (end_offset null: the removed bytes did not say). ``"start"`` sums up a start that was not
after a clean stop (``logs``, ``bytes_checked``, ``cuts``), ``"missing"`` names a log whose
directory has vanished, ``"stray"`` one that was set aside, ``"offline"`` one that cannot be read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock_broker.clock import Clock
from penstock_broker.log.files import Files, append_line
from penstock_broker.log.recovery import Recovered
from penstock_broker.metrics import Metrics

REPORT_FILE = "recovery-report.jsonl"


class RecoveryReport:
    """The report of a data directory, and what this start has added to it."""

    def __init__(self, data_dir: Path, files: Files, clock: Clock, metrics: Metrics) -> None:
        self._path = data_dir / REPORT_FILE
        self._files = files
        self._clock = clock
        self._metrics = metrics
        self.cuts = 0
        """Logs that lost something at this start."""
        self.bytes_checked = 0
        """What has been read at this start to find that out."""

    def add(self, event: str, **details: Any) -> None:
        """Add a line. OSError."""
        line = {"event": event, "at_ms": self._clock.now_ms(), **details}
        append_line(self._files, self._path, json.dumps(line).encode())

    def add_recovered(self, recovered: Recovered) -> None:
        """A log has been opened: count what was checked of it, and report what was cut. OSError."""
        self.bytes_checked += recovered.bytes_checked
        cut = recovered.cut
        if cut is None:
            return
        self.cuts += 1
        self.add(**cut.to_json())
        self._metrics.recovery_cuts.inc()
        self._metrics.recovery_bytes.inc(cut.bytes_cut)
        if cut.end_offset is not None:
            self._metrics.recovery_records.inc(cut.end_offset - cut.first_offset)

    def add_start(self, logs: int) -> None:
        """All logs have been opened, after a stop that was not clean. OSError."""
        self.add("start", logs=logs, bytes_checked=self.bytes_checked, cuts=self.cuts)
