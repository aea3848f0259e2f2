"""What ``penstock produce`` and ``penstock-client produce`` do: send a file, or standard input.

Progress is a bar on a terminal, and otherwise a line every few seconds, on standard error.
"""

from __future__ import annotations

import sys
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
from penstock_client.producer import AuditedProducer
from penstock_client.rows import FORMATS, Row, read_rows

LINE_SECONDS = 5.0
QUEUE_FULL_POLL_SECONDS = 0.1
ERRORS_KEPT = 5


@dataclass(slots=True)
class ProduceReport:
    """What became of a file: records acknowledged and failed, lines skipped, first errors."""

    acknowledged: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.failed == 0

    def note(self, problem: str) -> None:
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append(problem)

    def __str__(self) -> str:
        rate = self.acknowledged / self.seconds if self.seconds else 0
        parts = [f"{self.acknowledged:,} records acknowledged"]
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if self.skipped:
            parts.append(f"{self.skipped:,} bad lines skipped")
        return f"{', '.join(parts)} in {self.seconds:.1f} s ({rate:,.0f}/s)"


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
    stop: Callable[[], bool] = lambda: False,
) -> ProduceReport:
    """Send a file's rows to a topic by an AuditedProducer made of ``config``, and wait for them.

    ``file``: a path, or ``-`` for standard input. ``form``: csv or jsonl; by the name's ending if
    None. ``key``: field whose value becomes the record's key. ``rate``: records a second.

    Raises InputError at the first bad line, unless ``skip_bad_lines`` (the rows before it are
    sent); OSError for a file that cannot be read; KafkaException for a record that is refused.
    """
    form = form or _form_of(file)
    if rate is not None and rate <= 0:
        raise ValueError(f"--rate {rate}: must be more than 0 records a second")
    report = ProduceReport()
    started = monotonic()
    with (
        _lines(file) as lines,
        AuditedProducer(dict(config)) as producer,
        _Progress(topic, progress or sys.stderr) as shown,
    ):

        def told(error: Any, _message: Any) -> None:
            if error is None:
                report.acknowledged += 1
            else:
                report.failed += 1
                report.note(f"not delivered: {error}")

        pacer = Pacer(rate, stop=stop)
        for row in read_rows(lines, _name(file), form, key, as_text=as_text):
            if isinstance(row, InputError):
                if not skip_bad_lines:
                    raise row
                report.skipped += 1
                report.note(str(row))
                continue
            if not pacer.wait():
                break
            _send(producer, topic, row, told)
            shown.step(report)
        producer.flush()
    report.seconds = monotonic() - started
    return report


def _send(
    producer: AuditedProducer, topic: str, row: Row, told: Callable[[Any, Any], None]
) -> None:
    producer.poll(0)
    while True:
        try:
            producer.produce(topic, row.value, row.key, on_delivery=told)
            return
        except BufferError:
            producer.poll(QUEUE_FULL_POLL_SECONDS)
        except KafkaException as error:
            error.add_note(f"line {row.line}")
            raise


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
        elif monotonic() - self._said_at >= LINE_SECONDS:
            self._said_at = monotonic()
            self._out.write(
                f"{self._topic}: {self._sent:,} sent, {report.acknowledged:,} acknowledged, "
                f"{report.failed:,} failed\n"
            )
            self._out.flush()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_details: object) -> None:
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
