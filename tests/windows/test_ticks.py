"""One topic's trouble is its own: no other topic's windows wait for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from penstock_platform.alerts.events import Evaluation
from penstock_platform.alerts.health import HealthReader
from penstock_platform.alerts.observations import Translator
from penstock_platform.archive.model import book_key, window_key
from penstock_platform.archive.store import ArchiveError
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.landing import sensors
from penstock_platform.landing.sensors import build_evidence_sensor, build_window_sensor
from penstock_platform.settings import Settings
from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH, ManualClock
from penstock_platform.testing.cluster import MemoryCluster
from penstock_platform.testing.connections import MemoryConnections
from penstock_platform.topics.model.declaration import parse_topic
from penstock_platform.topics.names import Names
from penstock_platform.topics.plan import TopicPlan
from penstock_platform.windows import ticks
from penstock_platform.windows.model.window import ChainError, Window
from penstock_platform.windows.sensor_problems import Problems
from penstock_platform.windows.store import NewIncarnationError, WindowStore

TOPICS = ("a", "b", "c")


class World:
    """Three landed topics with a window each, and the sensors that look at them."""

    def __init__(self, home: Path) -> None:
        self.archive = MemoryArchive()
        self.clock = ManualClock()
        kafka: Any = MemoryCluster()
        kafka.cluster_id = lambda: kafka.id
        self.penstock = MemoryConnections(
            Settings(home=home), clock=self.clock, archive=self.archive, kafka=kafka
        )
        self.plans = [self.plan(name) for name in TOPICS]
        self.instance = dg.DagsterInstance.ephemeral()
        self.cursors: dict[str, str | None] = {}
        job = dg.GraphDefinition("nothing").to_job()
        self.window_sensor = build_window_sensor(self.plans, [job], Names(""))
        self.evidence_sensor = build_evidence_sensor(self.plans, [job], Names(""))
        for name in TOPICS:
            self.penstock.kafka.add_topic(name, 1)
        self.clock.advance(30)
        self.look()

    def plan(self, name: str) -> TopicPlan:
        spec = parse_topic({"metadata": {"name": name}, "land": {"window": "minutely"}})
        return TopicPlan(spec, "local", EPOCH, names=Names(""))

    def look(self, sensor: dg.SensorDefinition | None = None) -> Any:
        looking = sensor or self.window_sensor
        with dg.build_sensor_context(
            instance=self.instance,
            sensor_name=looking.name,
            cursor=self.cursors.get(looking.name),
            resources={"penstock": self.penstock},
        ) as context:
            result: Any = looking._raw_fn(context)
        self.cursors[looking.name] = result.cursor
        return result

    def minute(self) -> Any:
        """Every topic gets records, the minute closes, the window sensor looks."""
        for name in TOPICS:
            self.penstock.kafka.append(name, 0)
        self.clock.advance(60)
        return self.look()

    def newest(self, name: str) -> Window:
        window: Window = WindowStore.of(self.penstock).newest(self.penstock.kafka.ref(name))
        return window

    def problems(self) -> dict[str, dict[str, str]]:
        return Problems(self.penstock.settings).all()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def landed_topics(result: Any) -> list[str]:
    return sorted(r.job_name.removeprefix("land_") for r in result.run_requests or ())


def test_a_malformed_window_stops_only_its_own_topic(world: World) -> None:
    assert landed_topics(world.minute()) == list(TOPICS)
    broken = world.newest("a")
    world.archive.objects[window_key(broken.ref, broken.sequence)] = b"{"
    world.penstock.shut()  # nothing remembered
    result = world.minute()
    assert landed_topics(result) == ["b", "b", "c", "c"]
    (said,) = world.problems()["window_sensor"].values()
    assert said.startswith("WindowFormatError: not a window object")


def test_a_malformed_book_stops_only_its_own_topic(world: World) -> None:
    world.minute()
    window = world.newest("b")
    world.archive.objects[book_key(window.ref, window.sequence, 0)] = b"[]"
    result = world.minute()
    assert landed_topics(result) == ["a", "a", "c", "c"]
    assert list(world.problems()["window_sensor"]) == ["b"]
    world.look(world.evidence_sensor)
    assert list(world.problems()["evidence_sensor"]) == ["b"]
    assert world.newest("b").sequence == 1, "its windows are frozen all the same"

    # Repaired: the report goes with what it reported.
    del world.archive.objects[book_key(window.ref, window.sequence, 0)]
    world.look()
    assert list(world.problems()) == ["evidence_sensor"]


@pytest.mark.parametrize(
    "error", [ChainError("forked"), ValueError("a defect"), RecursionError("a defect")]
)
def test_whatever_one_topic_raises_ends_no_tick(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    original: Callable[..., Any] = sensors.freeze

    def freeze(penstock: Any, plan: TopicPlan) -> Any:
        if plan.name == "a":
            raise error
        return original(penstock, plan)

    monkeypatch.setattr(sensors, "freeze", freeze)
    result = world.minute()
    assert landed_topics(result) == ["b", "c"]
    assert world.problems() == {"window_sensor": {"a": f"{type(error).__name__}: {error}"}}


def test_a_recreated_topic_is_the_incident_of_its_chain_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def freeze(_penstock: Any, plan: TopicPlan) -> Any:
        raise NewIncarnationError(f"{plan.name} was recreated")

    monkeypatch.setattr(sensors, "freeze", freeze)
    assert "a was recreated" in str(world.look().skip_reason.skip_message)
    assert not world.problems()


@pytest.mark.parametrize("error", [ClusterError("no broker answers"), ArchiveError("no store")])
def test_a_service_that_is_away_is_waited_for_once_a_tick(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    asked = []

    def freeze(penstock: Any, plan: TopicPlan) -> Any:
        asked.append(plan.name)
        raise error

    monkeypatch.setattr(sensors, "freeze", freeze)
    said = str(world.look().skip_reason.skip_message)
    assert f"a: {error}" in said
    world.look()
    world.look()
    world.look()
    assert asked == ["a", "b", "c", "a"], "the next look begins with another topic"
    assert not world.problems(), "the outage is its own incident"


def test_a_tick_that_is_late_stops_and_the_next_one_continues(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def freeze(penstock: Any, plan: TopicPlan) -> Any:
        asked.append(plan.name)
        world.clock.advance(ticks.TICK_SECONDS * 0.6)
        return []

    monkeypatch.setattr(sensors, "freeze", freeze)
    said = str(world.look().skip_reason.skip_message)
    assert said == "time is up before c; the next look begins there"
    world.look()
    world.look()
    assert asked == ["a", "b", "c", "a", "b", "c"]


def test_a_long_backlog_is_read_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticks, "LOOKS_MAX", 5)
    monkeypatch.setattr(ticks.Tick.waiting, "__defaults__", (5,))
    for _minute in range(12):
        for name in TOPICS:
            world.penstock.kafka.append(name, 0)
        world.clock.advance(60)
        world.look()
    world.cursors.clear()
    seen: list[set[str]] = []
    for _look in range(6):
        result = world.look()
        seen.append({str(r.partition_key) for r in result.run_requests if r.job_name == "land_a"})
    assert all(len(keys) <= 10 for keys in seen)
    assert len(set().union(*seen)) == 12, "each window gets its turn"


def test_the_alert_sensor_reports_a_malformed_window_and_continues(world: World) -> None:
    world.minute()
    broken, sound = world.newest("a"), world.newest("b")
    world.archive.objects[window_key(broken.ref, broken.sequence)] = b"{"
    world.penstock.shut()  # nothing remembered
    reader = HealthReader(world.penstock)
    assert "not a window object" in reader.chain("a", world.plans[0].spec).unreadable
    assert not reader.chain("b", world.plans[1].spec).unreadable

    translator = Translator(world.instance, world.penstock, world.plans, "http://dagster")
    key = dg.AssetCheckKey(world.plans[0].bronze_key, "stored_equals_landed")
    evaluation = Evaluation(key, broken.window, False, "ERROR", "", 1.0, "run")
    (found,) = translator.check(evaluation)
    assert found.incident is not None
    assert "a 2026-11-20-00:00: its books cannot be read" in found.incident.summary
    key = dg.AssetCheckKey(world.plans[1].bronze_key, "stored_equals_landed")
    evaluation = Evaluation(key, sound.window, True, "ERROR", "", 1.0, "run")
    assert all(o.incident is None for o in translator.check(evaluation))


def test_a_cursor_of_another_version_starts_over(world: World) -> None:
    world.minute()
    for cursor in ('{"x": 3}', "{", "[]", '{"v": 2}', '{"v": 2, "turn": "a", "topics": 7}'):
        world.cursors["window_sensor"] = cursor
        assert landed_topics(world.look()) == list(TOPICS)
