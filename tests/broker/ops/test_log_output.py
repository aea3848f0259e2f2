"""What the broker writes about itself: lines for people, objects for machines."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_broker.server.log_events import EVENTS
from penstock_broker.server.log_output import configure_logging

SOURCE = Path(__file__).resolve().parents[3] / "broker" / "src" / "penstock_broker"
CALLS = {"debug", "info", "warning", "error", "exception", "critical"}


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the log goes; logging is as before afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = before
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_has_a_name_and_its_fields(stream: io.StringIO) -> None:
    configure_logging("INFO", "json", stream)
    log = logging.getLogger("penstock_broker.log.recovery")
    text = "%s-%d: cut at offset %d (up to %s, %d bytes): %s in %s at position %d"
    log.error(text, "orders", 3, 17, None, 4_096, "bad CRC", "0.log", 99)
    (line,) = lines(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line.pop("time")))
    assert line == {
        "level": "ERROR",
        "logger": "penstock_broker.log.recovery",
        "event": "log_cut",
        "message": "orders-3: cut at offset 17 (up to None, 4096 bytes): bad CRC in 0.log at "
        "position 99",
        "topic": "orders",
        "partition": 3,
        "first_offset": 17,
        "end_offset": None,
        "bytes": 4_096,
        "reason": "bad CRC",
        "segment": "0.log",
        "position": 99,
    }


def test_a_call_may_name_its_event_itself(stream: io.StringIO) -> None:
    configure_logging("INFO", "json", stream)
    log = logging.getLogger("penstock_broker.server.background")
    error = OSError(28, "No space left on device")
    log.error("%(job)s: %(reason)s", {"event": "job_failed", "job": "flush", "reason": error})
    (line,) = lines(stream)
    assert (line["event"], line["job"]) == ("job_failed", "flush")
    assert line["reason"] == "[Errno 28] No space left on device"


def test_exceptions_and_strangers_are_one_line_too(stream: io.StringIO) -> None:
    configure_logging("INFO", "json", stream)
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError:
        logging.getLogger("another.library").exception("of \u2028 them")
    (line,) = lines(stream)
    assert line["event"] == "message"
    assert "RuntimeError: two\nlines" in str(line["exception"])


def test_text_is_a_line_and_levels_are_kept(stream: io.StringIO) -> None:
    configure_logging("WARNING", "text", stream)
    log = logging.getLogger("penstock_broker.x")
    log.info("not this")
    log.warning("but %s", "this")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("WARNING penstock_broker.x: but this")


def test_every_log_call_of_the_broker_has_an_event() -> None:
    """A new log call needs a row in server/log_events.py, or a mapping with its event."""
    missing, used = [], set()
    for path, call in log_calls():
        text = call.args[0]
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if not isinstance(text, ast.Constant):
            continue  # Listeners.log_line passes its text on: its callers are checked
        if len(call.args) == 2 and isinstance(call.args[1], ast.Dict):
            keys = {key.value for key in call.args[1].keys if isinstance(key, ast.Constant)}
            assert "event" in keys, f"{path}:{call.lineno}"
            continue
        key = (module, str(text.value))
        used.add(key)
        if key not in EVENTS:
            missing.append(f"{path.relative_to(SOURCE)}:{call.lineno}: {text.value}")
            continue
        _, names = EVENTS[key]
        wanted = len(re.findall(r"%[^%]", key[1]))
        assert len(names) == wanted, f"{key}: {wanted} arguments, {len(names)} names"
    assert not missing
    assert not set(EVENTS) - used, "events that are never logged"


def log_calls() -> Iterator[tuple[Path, ast.Call]]:
    for path in sorted(SOURCE.rglob("*.py")):
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = node.func.value
            if node.func.attr in CALLS and ast.unparse(owner) in ("_log", "_logger"):
                yield path, node
            elif node.func.attr == "log_line" and node.args:
                yield SOURCE / "server" / "listeners.py", node


def serve(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock_broker", "serve", "--port", "0"]
    return subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_writes_json_when_asked_to(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("num.partitons=3\npenstock.log.format=json\n")
    process = serve(tmp_path, "--config", str(tmp_path / "p"))
    assert process.stdout is not None
    assert "ready on" in process.stdout.readline()
    os.kill(process.pid, signal.SIGTERM)
    _, written = process.communicate(timeout=120)
    events = {line["event"]: line for line in map(json.loads, written.splitlines())}
    assert list(events) == ["setting_unknown", "started", "stopping", "stopped"]
    assert events["setting_unknown"]["setting"] == "num.partitons"
    assert "did you mean num.partitions?" in events["setting_unknown"]["message"]
    assert events["started"]["partitions"] == 0
    assert process.returncode == 0
