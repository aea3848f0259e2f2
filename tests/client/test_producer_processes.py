"""Producers in processes that fork, end, are asked to end, and are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polling import until

HEAD = """
import json, os, signal, sys, threading
from penstock_client import AuditedProducer, exit_on_sigterm
config, topic = json.loads(sys.argv[1]), sys.argv[2]

def say(**what):
    os.write(1, (json.dumps(what) + "\\n").encode())
"""


@pytest.fixture
def run(cluster: Any, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start a program that has a producer's configuration and a topic."""

    def start(body: str, **settings: Any) -> subprocess.Popen[str]:
        script = tmp_path / "program.py"
        script.write_text(HEAD + body)
        return subprocess.Popen(
            [sys.executable, str(script), json.dumps(cluster.config(**settings)), cluster.topic],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def _lines(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    out, error = process.communicate(timeout=120)
    assert "Traceback" not in error, error
    return [json.loads(line) for line in out.splitlines()]


def test_a_forked_child_is_another_incarnation(cluster: Any, run: Any) -> None:
    process = run(
        """
with AuditedProducer(config) as producer:
    for number in range(50):
        producer.produce(topic, b"before")
    child = os.fork()
    for number in range(100):
        producer.produce(topic, b"after")
    say(role="child" if child == 0 else "parent", incarnation=producer.incarnation)
if child == 0:
    sys.exit(0)  # the interpreter's whole ending, with the parent's handle still about
pid, status = os.waitpid(child, 0)
say(role="status", status=status)
"""
    )
    said = {line["role"]: line for line in _lines(process)}
    assert process.returncode == 0
    assert said["status"]["status"] == 0
    parent, child = said["parent"]["incarnation"], said["child"]["incarnation"]
    assert parent != child
    assert cluster.assert_balanced(parent) == 150
    assert cluster.assert_balanced(child) == 100
    for incarnation in (parent, child):
        assert cluster.events(incarnation)[-1].final
    assert cluster.events(parent)[0].pid != cluster.events(child)[0].pid


def test_children_of_multiprocessing_send_their_last_event(cluster: Any, run: Any) -> None:
    process = run(
        """
import multiprocessing
producer = AuditedProducer(config)
producer.produce(topic, b"parent")

def work():
    producer.produce(topic, b"child")
    say(incarnation=producer.incarnation)

children = [multiprocessing.get_context("fork").Process(target=work) for _ in range(2)]
for child in children: child.start()
for child in children: child.join()
say(incarnation=producer.incarnation)
"""
    )
    incarnations = {line["incarnation"] for line in _lines(process)}
    assert len(incarnations) == 3
    for incarnation in incarnations:
        assert cluster.assert_balanced(incarnation) == 1
        assert cluster.events(incarnation)[-1].final


def test_a_program_that_does_not_close_is_closed_at_exit(cluster: Any, run: Any) -> None:
    process = run(
        """
producer = AuditedProducer(config)
for number in range(300):
    producer.produce(topic, b"v")
say(incarnation=producer.incarnation)
"""
    )
    (line,) = _lines(process)
    assert process.returncode == 0
    assert cluster.assert_balanced(line["incarnation"]) == 300
    assert cluster.events(line["incarnation"])[-1].final


def test_a_dropped_producer_sends_its_last_event(cluster: Any, run: Any) -> None:
    process = run(
        """
producer = AuditedProducer(config)
producer.produce(topic, b"v")
say(incarnation=producer.incarnation)
del producer
for thread in threading.enumerate():
    if thread.name == "penstock-audit": thread.join(10)
os._exit(0)  # without the interpreter's own ending
"""
    )
    (line,) = _lines(process)
    assert cluster.assert_balanced(line["incarnation"]) == 1
    assert cluster.events(line["incarnation"])[-1].final


FOREVER = """
producer = AuditedProducer(config)
say(incarnation=producer.incarnation)
number = 0
while True:
    producer.produce(topic, b"v%d" % number)
    producer.poll(0.001)
    number += 1
    if number == 200: say(ready=True)
"""


def _started(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    first, _ready = process.stdout.readline(), process.stdout.readline()
    incarnation: int = json.loads(first)["incarnation"]
    return incarnation


def test_a_killed_producer_leaves_no_final_event(cluster: Any, run: Any) -> None:
    process = run(FOREVER, audit_interval_ms=100)
    incarnation = _started(process)
    until("something is claimed", lambda: sum(a.records for a in cluster.accounts(incarnation)) > 0)
    process.kill()
    process.wait(120)
    events = cluster.events(incarnation)
    assert events and not any(event.final for event in events)
    assert [event.number for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize(
    "handling",
    [
        "exit_on_sigterm()\n",
        # An application's own: it may even close in the handler, whatever it interrupts.
        "signal.signal(signal.SIGTERM, lambda *_: (producer.close(), os._exit(143)))\n",
    ],
)
def test_sigterm_with_a_handler_sends_the_last_event(cluster: Any, run: Any, handling: str) -> None:
    process = run(handling + FOREVER)
    incarnation = _started(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert cluster.assert_balanced(incarnation) >= 200
    assert cluster.events(incarnation)[-1].final


def test_sigterm_without_a_handler_kills_and_the_audit_sees_it(cluster: Any, run: Any) -> None:
    process = run(FOREVER)
    incarnation = _started(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGTERM
    assert not any(event.final for event in cluster.events(incarnation))
