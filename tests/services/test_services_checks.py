"""Each failed check names the thing and how to fix it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from penstock_platform.settings import KafkaSettings, S3Settings, Settings
from penstock_platform.testing.archive import MemoryArchive
from penstock_services import checks, doctor
from penstock_services.catalogue import Service, outline


@pytest.fixture
def taken() -> socket.socket:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def service_on(port: int) -> Service:
    return Service("broker", "Kafka broker", "", port=port, port_setting="kafka.port")


def test_a_taken_port_names_its_holder_and_the_setting(
    taken: socket.socket, tmp_path: Path
) -> None:
    port = taken.getsockname()[1]
    sentences = checks.check_ports(Settings(home=tmp_path), [service_on(port)])
    assert len(sentences) == 1
    for word in (
        str(port),
        "Kafka broker",
        f"pid {os.getpid()}",
        "kafka.port",
        "PENSTOCK_KAFKA_PORT",
    ):
        assert word in sentences[0], sentences[0]


def test_a_free_port_is_no_news(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert checks.check_ports(Settings(home=tmp_path), [service_on(port)]) == []


def test_a_holder_that_may_not_be_seen_is_still_a_sentence() -> None:
    text = checks.port_sentence(service_on(9092), checks.Holder(None, None))
    assert "another user" in text
    assert "kafka.port" in text


def test_a_holder_that_is_penstocks_own_says_where() -> None:
    text = checks.port_sentence(service_on(9092), checks.Holder(7, "python", "/a/.penstock"))
    assert "/a/.penstock" in text


def test_two_services_on_one_port(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, kafka=KafkaSettings(port=5000), s3=S3Settings(port=5000))
    problems = checks.check_distinct_ports(outline(settings))
    assert problems == ["kafka.port and s3.port are both 5000: change one in penstock.toml"]


@pytest.mark.parametrize(("available", "fits"), [(16_000, True), (1_900, True), (900, False)])
def test_memory(tmp_path: Path, available: int, fits: bool) -> None:
    settings = Settings(home=tmp_path)
    problem = checks.check_memory(settings, outline(settings), available)
    assert (problem is None) is fits
    if problem:
        assert "900 MB are available" in problem
        assert "spark.driver_memory (now 1g)" in problem


@pytest.mark.parametrize(
    ("version", "good"),
    [((3, 10, 9), False), ((3, 11, 0), True), ((3, 13, 5), True), ((3, 14, 0), False)],
)
def test_python(version: tuple[int, ...], good: bool) -> None:
    problem = checks.check_python(version)
    assert (problem is None) is good
    if problem:
        assert ".".join(map(str, version)) in problem


def test_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    problem = checks.check_disk(Settings(home=tmp_path / ".penstock"))
    assert problem is not None
    assert "PENSTOCK_HOME" in problem


def test_versions_of_this_environment_are_as_pinned() -> None:
    assert checks.check_versions() == []


def test_the_versions_of_every_distribution_of_the_stack_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(checks.importlib.metadata, "requires", asked.append)
    assert checks.check_versions() == []
    assert {"penstock-services", "penstock-platform", "penstock-client"} <= set(asked)


def test_a_wrong_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["pyspark[connect]==4.1.3", "no-such-package>=1", "other; python_version < '3'"]
    monkeypatch.setattr(checks.importlib.metadata, "requires", lambda _: wanted)
    real = checks.importlib.metadata.version
    monkeypatch.setattr(
        checks.importlib.metadata,
        "version",
        lambda name: "4.2.0" if name == "pyspark" else real(name),
    )
    problems = checks.check_versions(["penstock-platform"])
    assert problems == [
        "pyspark is 4.2.0 and penstock-platform needs ==4.1.3; run: make install",
        "no-such-package is not installed, penstock-platform needs it; run: make install",
    ]


def test_racing_writers_find_one_winner_where_creates_are_exclusive() -> None:
    assert doctor.race(MemoryArchive()) == 1


class Overwriting(MemoryArchive):
    """A store that ignores If-None-Match, as some do without a word."""

    def create(self, key: str, data: bytes) -> bool:
        super().create(key, data)
        return True


def test_a_store_that_lets_every_writer_win_is_found_out() -> None:
    assert doctor.race(Overwriting()) == doctor.WRITERS


def test_misspelt_variables_are_noticed() -> None:
    finding = doctor._unknown_variables({"PENSTOCK_KAFKA_PROT": "1", "PENSTOCK_KAFKA_PORT": "1"})
    assert finding.status == doctor.NOTE
    assert finding.text == "PENSTOCK_KAFKA_PROT sets nothing; did you mean PENSTOCK_KAFKA_PORT?"
    assert doctor._unknown_variables({"PENSTOCK_KAFKA_PORT": "1"}).status == doctor.OK
