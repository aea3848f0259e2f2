"""What ``penstock produce`` and ``penstock-client produce`` do: send a file, or standard input.

Progress is a bar on a terminal, and otherwise a line every few seconds, on standard error.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from confluent_kafka import KafkaException
from tqdm import tqdm  # type: ignore[import-untyped]

from penstock_client.clock import monotonic
from penstock_client.errors import InputError
from penstock_client.pacing import Pacer
from penstock_client.probe import cluster_topics, quiet_log
from penstock_client.producer import AuditedProducer
from penstock_client.rows import FORMATS, Row, read_rows
from penstock_client.stopping import Stop, Stopped

LINE_SECONDS = 5.0
QUEUE_FULL_POLL_SECONDS = 0.1
ERRORS_KEPT = 5
STOP_SECONDS = 5.0  # from a request to stop to the report; the parts below add up to less
FLUSH_SECONDS = 2.0
CLOSE_SECONDS = 1.5


@dataclass(slots=True)
class ProduceReport:
    """What became of a file: records acknowledged and failed, lines skipped, first errors.

    ``interrupted``: the signal that ended it before the file did; ``unsure``: records that were
    sent and neither acknowledged nor refused by then (they may be stored); ``last_line``: the last
    line that was handed over, so that a caller can continue after it.
    """

    acknowledged: int = 0
    failed: int = 0
    skipped: int = 0
    unsure: int = 0
    last_line: int = 0
    seconds: float = 0.0
    interrupted: str = ""
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.failed == 0 and not self.interrupted

    def add_problem(self, problem: str) -> None:
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append(problem)

    def __str__(self) -> str:
        rate = self.acknowledged / self.seconds if self.seconds else 0
        parts = [f"{self.acknowledged:,} records acknowledged"]
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if self.unsure:
            parts.append(f"{self.unsure:,} without an answer (they may be stored)")
        if self.skipped:
            parts.append(f"{self.skipped:,} bad lines skipped")
        said = f"{', '.join(parts)} in {self.seconds:.1f} s ({rate:,.0f}/s)"
        if self.interrupted:
            return f"{said}; ended by {self.interrupted}: nothing after line {self.last_line} sent"
        return said


def produce_file(
    config: Mapping[str, Any],
    topic: str,
    file: str,
    *,
    form: str | None = None,
    key: str | None = None,
    rate: float | None = None,
    as_text: bool = False,
    skip_bad_lines: bool = False,
    progress: TextIO | None = None,
    stop: Stop | Callable[[], bool] = lambda: False,
) -> ProduceReport:
    """Send a file's rows to a topic by an AuditedProducer made of ``config``, and wait for them.

    ``file``: a path, or ``-`` for standard input. ``form``: csv or jsonl; by the name's ending if
    None. ``key``: field whose value becomes the record's key. ``rate``: records a second.

    ``stop``: ends it within STOP_SECONDS, whatever the cluster does; the report says what was
    delivered by then.

    Raises ClusterUnreachableError, before a line is read, where no broker answers; InputError at
    the first bad line, unless ``skip_bad_lines`` (the rows before it are sent); OSError for a file
    that cannot be read; KafkaException for a record that is refused.
    """
    stop = stop if isinstance(stop, Stop) else Stop(stop)
    form = form or _form_of(file)
    if rate is not None and rate <= 0:
        raise ValueError(f"--rate {rate}: must be more than 0 records a second")
    report = ProduceReport()
    started = monotonic()
    with _lines(file) as lines:
        producer = AuditedProducer({"logger": quiet_log, **config})
        shown = _Progress(topic, progress or sys.stderr)
        try:
            cluster_topics(config)
            rows = read_rows(lines, _name(file), form, key, as_text=as_text)
            sending = _Sending(producer, topic, report, stop, shown)
            sending.all(rows, Pacer(rate, pause=stop.wait, stop=stop), skip_bad_lines)
            sending.wait()
        finally:
            shown.close()
            _finish(producer, report, stop)
    report.seconds = monotonic() - started
    return report


@dataclass(slots=True)
class _Sending:
    """Rows on their way; every wait ends when a stop is requested."""

    producer: AuditedProducer
    topic: str
    report: ProduceReport
    stop: Stop
    shown: _Progress

    def all(self, rows: Iterator[Row | InputError], pacer: Pacer, skip_bad_lines: bool) -> None:
        """Hand over every row, or those before a request to stop."""
        while pacer.wait():
            try:
                with self.stop.reading():
                    row = next(rows, None)
            except Stopped:
                return
            if row is None:
                return
            if isinstance(row, InputError):
                if not skip_bad_lines:
                    raise row
                self.report.skipped += 1
                self.report.add_problem(str(row))
            elif self._one(row):
                self.report.last_line = row.line
                self.shown.step(self.report)
            else:
                return

    def _one(self, row: Row) -> bool:
        """Queue one record, waiting for space; False where a request to stop came first."""
        self.producer.poll(0)
        while not self.stop():
            try:
                self.producer.produce(self.topic, row.value, row.key, on_delivery=self._answered)
                return True
            except BufferError:
                self.producer.poll(QUEUE_FULL_POLL_SECONDS)
                self.shown.tick(self.report)
            except KafkaException as error:
                error.add_note(f"line {row.line}")
                raise
        return False

    def wait(self) -> None:
        """Until every record has its answer, or a request to stop."""
        while len(self.producer) and not self.stop():
            self.producer.poll(QUEUE_FULL_POLL_SECONDS)
            self.shown.tick(self.report)

    def _answered(self, error: Any, _message: Any) -> None:
        if error is None:
            self.report.acknowledged += 1
        else:
            self.report.failed += 1
            self.report.add_problem(f"not delivered: {error}")


def _finish(producer: AuditedProducer, report: ProduceReport, stop: Stop) -> None:
    """Close the producer: when all is answered, or, after a request, within STOP_SECONDS."""
    if not stop():
        producer.close()
        return
    report.interrupted = stop.name
    if producer.flush(FLUSH_SECONDS) == 0:
        _close_within(producer, CLOSE_SECONDS)
        return
    failed = report.failed
    producer.purge(blocking=False)
    producer.poll(0)
    # What was given up here was sent or waited to be: whether it is stored is unknown.
    report.unsure = report.failed - failed + len(producer)
    report.failed = failed
    _close_within(producer, CLOSE_SECONDS)


def _close_within(producer: AuditedProducer, seconds: float) -> None:
    """Close, in a thread that is not waited for longer: its last event may stay unsent."""
    closing = threading.Thread(target=producer.close, args=(0,), daemon=True)
    closing.start()
    closing.join(seconds)


class _Progress:
    """A bar on a terminal; a line every LINE_SECONDS elsewhere."""

    def __init__(self, topic: str, out: TextIO) -> None:
        self._topic = topic
        self._out = out
        self._sent = 0
        self._said_at = monotonic()
        self._bar: Any = (
            tqdm(desc=topic, unit=" records", file=out, unit_scale=True) if out.isatty() else None
        )

    def step(self, report: ProduceReport) -> None:
        self._sent += 1
        if self._bar is not None:
            self._bar.update()
        self.tick(report)

    def tick(self, report: ProduceReport) -> None:
        """A line if it is time for one."""
        if self._bar is None and monotonic() - self._said_at >= LINE_SECONDS:
            self._said_at = monotonic()
            self._out.write(
                f"{self._topic}: {self._sent:,} sent, {report.acknowledged:,} acknowledged, "
                f"{report.failed:,} failed\n"
            )
            self._out.flush()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _form_of(file: str) -> str:
    ending = Path(file).suffix.lstrip(".").lower()
    if ending == "csv":
        return "csv"
    if file == "-" or ending in {"jsonl", "ndjson", "json"}:
        return "jsonl"
    raise ValueError(
        f"{file}: neither .csv nor .jsonl; say which it is with --format ({' or '.join(FORMATS)})"
    )


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


@contextmanager
def _lines(file: str) -> Iterator[TextIO]:
    """The file's lines. Line ends stay as they are (the csv module wants to see them), and bytes
    that are not UTF-8 come through as surrogates, so that their line can be named."""
    source: str | int = sys.stdin.fileno() if file == "-" else file
    with open(
        source, encoding="utf-8", errors="surrogateescape", newline="", closefd=file != "-"
    ) as lines:
        yield lines
