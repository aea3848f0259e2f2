"""The pytest plugin, used as a user does: in runs of their own, from a folder of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock_broker.testing import BrokerProcess, ThreadBroker
from penstock_broker.testing.pytest_plugin import make_broker

PAGE = Path(__file__).resolve().parents[3] / "docs" / "TESTING.md"


def example(number: int) -> str:
    """A Python block of the page."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[number]


def run_pytest(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_user.py").write_text(text)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, example(0))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "4 passed" in run.stdout


def test_the_example_without_pytest_runs(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", example(1)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert re.match(r"127\.0\.0\.1:\d+\n", run.stdout)


LOOK = """
def test_one(kafka_broker, request):
    print(f"<{type(kafka_broker).__name__} {kafka_broker.bootstrap_servers}>")
    print(kafka_broker.settings)
    kafka_broker.create_topic("same")

def test_two(kafka_broker):
    print(f"<{type(kafka_broker).__name__} {kafka_broker.bootstrap_servers}>")
    print(kafka_broker.topics())
"""


def test_each_test_has_a_broker_of_its_own_in_a_thread(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, LOOK, "-s")
    assert run.returncode == 0, run.stdout
    assert len(set(re.findall("<ThreadBroker (.*)>", run.stdout))) == 2
    assert "[]" in run.stdout


def test_mode_and_scope_are_chosen_on_the_command_line(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, LOOK, "-s", "--kafka-broker=process", "--kafka-broker-scope=session")
    assert run.returncode == 0, run.stdout
    assert len(set(re.findall("<BrokerProcess (.*)>", run.stdout))) == 1
    assert "['same']" in run.stdout


def test_mode_scope_and_settings_are_chosen_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nkafka_broker_mode = process\nkafka_broker_scope = module\n"
        "kafka_broker_settings =\n    num.partitions = 7\n"
    )
    run = run_pytest(tmp_path, LOOK, "-s")
    assert run.returncode == 0, run.stdout
    assert len(set(re.findall("<BrokerProcess (.*)>", run.stdout))) == 1
    assert "'num.partitions': '7'" in run.stdout


def test_a_mistake_in_the_settings_is_said(tmp_path: Path) -> None:
    text = """
import pytest

@pytest.mark.kafka_broker(settings={"num.partition": 3})
def test_it(kafka_broker):
    pass
"""
    run = run_pytest(tmp_path, text)
    assert run.returncode == 1
    assert "did you mean num.partitions?" in run.stdout


def test_markers_add_up_and_the_nearest_wins(tmp_path: Path) -> None:
    text = """
import pytest

pytestmark = pytest.mark.kafka_broker(mode="process", settings={"num.partitions": 3})

@pytest.mark.kafka_broker(mode="thread")
def test_it(kafka_broker):
    assert type(kafka_broker).__name__ == "ThreadBroker"
    assert kafka_broker.settings["num.partitions"] == "3"
"""
    run = run_pytest(tmp_path, text)
    assert run.returncode == 0, run.stdout


def test_runs_without_kafka_do_not_import_the_broker(tmp_path: Path) -> None:
    text = """
import sys

def test_it():
    loaded = [name for name in sys.modules if name.startswith("penstock_broker.")]
    assert set(loaded) == {"penstock_broker.testing", "penstock_broker.testing.pytest_plugin"}
"""
    run = run_pytest(tmp_path, text)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("kind", [ThreadBroker, BrokerProcess])
def test_a_broker_serves_once_it_has_started(kind: type, tmp_path: Path) -> None:
    """How soon: benchmarks/broker/start_stop.py."""
    with kind(tmp_path / "data") as broker:
        assert broker.topics() == []


def test_a_simulated_clock_is_not_for_a_process(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs mode='thread'"):
        make_broker(tmp_path, mode="process", clock=True)


def test_the_fixture_serves_this_suite_too(kafka_broker: ThreadBroker) -> None:
    assert kafka_broker.create_topic("here") == "here"
    assert kafka_broker.topics() == ["here"]
