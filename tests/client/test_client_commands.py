"""The client's commands where the cluster is gone, a signal comes, or a topic is not there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock_broker.testing import BrokerProcess
from penstock_client.__main__ import main
from penstock_client.probe import cluster_topics

HANGS = 60  # only a guard: a command that does not end is killed
ROW = '{"id": 1}\n'


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as started:
        yield started


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def address_of(broker: BrokerProcess) -> str:
    return f"{broker.host}:{broker.port}"


def wait_for_records(broker: BrokerProcess, topic: str, count: int) -> None:
    """Until so many are in the log of its one partition."""
    consumer = Consumer({"bootstrap.servers": address_of(broker), "group.id": "watcher"})
    deadline = time.monotonic() + HANGS
    try:
        while True:
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=HANGS)
            if high >= count:
                return
            assert time.monotonic() < deadline, f"{high} of {count} records"
    finally:
        consumer.close()


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock_client", *arguments],
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
        **options,
    )


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock_client", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.parametrize("command", [["produce", "--topic", "t", "--file", "-"], ["tail", "t"]])
def test_a_dead_broker_is_one_sentence(command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    done = run(*command, "--bootstrap-server", address, input=ROW)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"penstock-client: no Kafka broker answers at {address}")
    assert "Connection refused" in line
    assert done.stdout == ""
    document = json.loads(
        run(*command, "--bootstrap-server", address, "-o", "json", input=ROW).stdout
    )
    assert document["error"] == "ClusterUnreachableError"
    assert document["exit_code"] == 1
    assert "right?" in document["fix"]


def test_a_broker_that_never_answers_is_one_sentence(silent: str) -> None:
    done = run("produce", "--topic", "t", "--file", "-", "--bootstrap-server", silent, input=ROW)
    assert done.returncode == 1
    assert f"no Kafka broker answers at {silent}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_quiet_pipe_and_says_what_was_delivered(
    broker: BrokerProcess, how: signal.Signals
) -> None:
    broker.create_topic("orders")
    reading, writing = os.pipe()
    process = start(
        *("produce", "--topic", "orders", "--file", "-", "--bootstrap-server", address_of(broker)),
        *("-o", "json"),
        stdin=reading,
    )
    os.close(reading)
    os.write(writing, ROW.encode() * 3)
    wait_for_records(broker, "orders", 3)
    process.send_signal(how)
    out, err = process.communicate(timeout=HANGS)
    os.close(writing)
    assert process.returncode == 128 + how
    report = json.loads(out)
    assert (report["acknowledged"], report["unsure"]) == (3, 0)
    assert (report["interrupted"], report["last_line"]) == (how.name, 3)
    assert "Traceback" not in err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_while_the_broker_is_gone(
    broker: BrokerProcess, how: signal.Signals
) -> None:
    broker.create_topic("orders")
    reading, writing = os.pipe()
    process = start(
        *("produce", "--topic", "orders", "--file", "-", "--bootstrap-server", address_of(broker)),
        stdin=reading,
    )
    os.close(reading)
    os.write(writing, ROW.encode() * 2)
    wait_for_records(broker, "orders", 2)
    broker.kill()
    os.write(writing, ROW.encode() * 5)
    os.close(writing)
    killer = threading.Timer(HANGS, process.kill)
    killer.start()
    assert process.stderr is not None
    line = process.stderr.readline()  # progress while it waits: not a flood, and not silence
    assert "orders: 7 sent, 2 acknowledged" in line
    process.send_signal(how)
    out, err = process.communicate(timeout=HANGS)
    killer.cancel()
    assert process.returncode == 128 + how
    assert "2 records acknowledged, 5 without an answer (they may be stored)" in out
    assert f"ended by {how.name}: nothing after line 7 sent" in out
    assert len(err.splitlines()) < 20


def test_tail_does_not_make_the_topic_that_it_looks_for(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.create_topic("ghosts")
    for _ in range(2):
        assert main(["tail", "ghost", "--bootstrap-server", address_of(broker)]) == 1
        said = capsys.readouterr().err
        assert "ghost: the topic does not exist" in said
        assert "did you mean ghosts?" in said
    topics = cluster_topics({"bootstrap.servers": address_of(broker)})
    assert [name for name in topics if not name.startswith("__")] == ["ghosts"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_tail(broker: BrokerProcess, how: signal.Signals) -> None:
    broker.create_topic("orders")
    produced = run(
        *("produce", "--topic", "orders", "--file", "-", "--bootstrap-server", address_of(broker)),
        input=ROW,
    )
    assert produced.returncode == 0
    process = start(
        *("tail", "orders", "--from-beginning", "-o", "json"),
        *("--bootstrap-server", address_of(broker)),
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["value"] == ROW.strip()
    broker.freeze()
    process.send_signal(how)
    _, err = process.communicate(timeout=HANGS)
    assert process.returncode == 128 + how
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["tail"], ["tail", "t", "-o", "xml"], ["tail", "t", "--offset", "x"]],
)
def test_wrong_usage_is_2_and_json_where_asked(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "--help" in capsys.readouterr().err
    assert main([*arguments, "-o", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


def test_the_variable_shows_the_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["produce", "--topic", "t", "--file", "x.xls", "--bootstrap-server", "localhost:1"]
    assert main(arguments) == 1
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    assert main(arguments) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_flags(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("produce", "tail", "skip-bad-lines", "max-messages", "penstock-client"):
        assert word in script


def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    (tmp_path / "c.bash").write_text(capsys.readouterr().out)

    def completed(*words: str) -> set[str]:
        script = (
            f"source {tmp_path}/c.bash; COMP_WORDS=({' '.join(words)} ''); "
            f"COMP_CWORD={len(words)}; _penstock_client; echo ${{COMPREPLY[@]}}"
        )
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return set(done.stdout.split())

    assert {"produce", "tail", "completion"} <= completed("penstock-client")
    assert {"--partition", "--offset", "-o"} <= completed("penstock-client", "tail")
    assert completed("penstock-client", "tail", "-o") == {"table", "json"}
    assert {"bash", "zsh", "fish"} <= completed("penstock-client", "completion")
