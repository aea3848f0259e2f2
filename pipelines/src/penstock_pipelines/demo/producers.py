"""A producer process of the demo: real rows as JSON events, at a steady rate, audited.

    python -m penstock_pipelines.demo.producers flights --bootstrap-servers HOST:PORT --rate 2000

The record's timestamp is the time of sending; the row's own times are in its value. Ends after
``--seconds``, or cleanly on SIGTERM and SIGINT: what is queued is delivered, the last monitoring
event sent, and a line of JSON says how far it came, in the same form as the lines on the way. To
continue later, give its ``next_offset`` as ``--offset``, or keep it in a ``--cursor-file`` (written
about once a second, so a process that is killed repeats what it sent since).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from penstock_client import AuditedProducer
from penstock_client.clock import monotonic, now_ms
from penstock_client.pacing import Pacer
from penstock_pipelines.demo.malformed import encode, malformed
from penstock_pipelines.demo.sources import Event, SourceMissingError, flights, metrics, weather

TOPICS = {"flights": "flights", "weather": "weather", "metrics": "host.metrics"}
CURSOR_SECONDS = 1.0
QUEUE_FULL_POLL_SECONDS = 0.1
CLOSE_SECONDS = 400.0  # against hanging: librdkafka gives up on a record after 300 s


@dataclass(slots=True)
class Progress:
    """How far a producer has come; a line of JSON on standard output."""

    kind: str
    topic: str
    pid: int
    incarnation: str
    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    malformed: int = 0
    next_offset: int = 0
    final: bool = False

    def line(self) -> str:
        return json.dumps(asdict(self))


def main(arguments: Sequence[str] | None = None) -> int:
    """Produce until the time is up or a signal says so; 0 if every record was acknowledged."""
    options = _parser().parse_args(arguments)
    stopping: list[int] = []

    def stop(signum: int, _frame: FrameType | None) -> None:
        stopping.append(signum)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        return _run(options, stopped=lambda: bool(stopping))
    except (SourceMissingError, ValueError, OSError) as error:
        sys.stderr.write(f"{options.kind}: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="demo producer", description=__doc__)
    parser.add_argument("kind", choices=tuple(TOPICS))
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", help="where to; by kind if not given")
    parser.add_argument("--rate", type=float, default=1000.0, help="records a second")
    parser.add_argument("--seconds", type=float, help="how long; without end if not given")
    parser.add_argument("--records", type=int, help="how many at most")
    parser.add_argument("--offset", type=int, default=0, help="the row to begin with")
    parser.add_argument("--cursor-file", type=Path, help="where to keep the next row's number")
    parser.add_argument("--malformed-share", type=float, default=0.001)
    parser.add_argument("--seed", type=int, help="of the choice which records are malformed")
    parser.add_argument("--audit-interval-ms", type=int, default=2000)
    parser.add_argument("--report-seconds", type=float, default=5.0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings")
    return parser


def _config(options: argparse.Namespace) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap_servers,
        "client.id": f"demo-{options.kind}",
        "audit.application": f"demo-{options.kind}",
        "audit.interval.ms": options.audit_interval_ms,
        "linger.ms": 20,
    }
    for setting in options.settings:
        name, separator, value = setting.partition("=")
        if not separator:
            raise ValueError(f"--set {setting!r}: a setting is written name=value")
        config[name] = value
    return config


def _events(kind: str, offset: int) -> Iterator[Event]:
    if kind == "metrics":
        return metrics(_iso_now, offset)
    return flights(offset) if kind == "flights" else weather(offset)


def _iso_now() -> str:
    moment = datetime.fromtimestamp(now_ms() / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _run(options: argparse.Namespace, stopped: Callable[[], bool]) -> int:
    offset = read_cursor(options.cursor_file, options.offset)
    topic = options.topic or TOPICS[options.kind]
    deadline = None if options.seconds is None else monotonic() + options.seconds
    choose = random.Random(options.seed)
    with AuditedProducer(_config(options)) as producer:
        progress = Progress(
            options.kind, topic, os.getpid(), str(producer.incarnation), next_offset=offset
        )

        def report(error: Any, _message: Any) -> None:
            if error is None:
                progress.acknowledged += 1
            else:
                progress.failed += 1

        def done() -> bool:
            return stopped() or (deadline is not None and monotonic() >= deadline)

        pacer = Pacer(options.rate, stop=done)
        reporter = _Reporter(options.cursor_file, options.report_seconds)
        for event in _events(options.kind, offset):
            if progress.sent == options.records or not pacer.wait():
                break
            value = encode(event.value)
            if choose.random() < options.malformed_share:
                value = malformed(options.kind, event.value, choose)[1]
                progress.malformed += 1
            _send(producer, topic, event.key, value, report)
            progress.sent += 1
            progress.next_offset = event.row + 1
            reporter.step(progress)
        producer.flush(CLOSE_SECONDS)
        producer.close(CLOSE_SECONDS)
        progress.final = True
        reporter.end(progress)
    return 0 if progress.acknowledged == progress.sent else 1


def _send(
    producer: AuditedProducer,
    topic: str,
    key: str,
    value: bytes,
    report: Callable[[Any, Any], None],
) -> None:
    producer.poll(0)
    while True:
        try:
            producer.produce(topic, value, key, on_delivery=report)
            return
        except BufferError:
            producer.poll(QUEUE_FULL_POLL_SECONDS)


class _Reporter:
    """Says the progress from time to time, and keeps the cursor."""

    def __init__(self, cursor_file: Path | None, seconds: float) -> None:
        self._cursor_file = cursor_file
        self._seconds = seconds
        self._said_at = self._kept_at = monotonic()

    def step(self, progress: Progress) -> None:
        now = monotonic()
        if now - self._kept_at >= CURSOR_SECONDS:
            self._kept_at = now
            write_cursor(self._cursor_file, progress.next_offset)
        if now - self._said_at >= self._seconds:
            self._said_at = now
            self._report(progress)

    def end(self, progress: Progress) -> None:
        write_cursor(self._cursor_file, progress.next_offset)
        self._report(progress)

    def _report(self, progress: Progress) -> None:
        sys.stdout.write(progress.line() + "\n")
        sys.stdout.flush()


def read_cursor(file: Path | None, offset: int) -> int:
    """The row to begin with: the cursor's where there is one."""
    if file is None or not file.exists():
        return offset
    text = file.read_text().strip()
    if not text.isdigit():
        raise ValueError(f"{file}: {text!r} is no row number; remove the file to start over")
    return int(text)


def write_cursor(file: Path | None, offset: int) -> None:
    """Keep the next row's number; whole or not at all."""
    if file is not None:
        fresh = file.with_suffix(f"{file.suffix}.new")
        fresh.write_text(f"{offset}\n")
        fresh.replace(file)


if __name__ == "__main__":
    sys.exit(main())
