"""The pytest plugin: the fixtures ``kafka_broker`` and ``kafka_broker_factory``.

    def test_order_is_stored(kafka_broker):
        topic = kafka_broker.create_topic(partitions=3)
        ...  # any client, at kafka_broker.bootstrap_servers

How it runs can be configured for a test, or for all tests:

* ``@pytest.mark.kafka_broker(mode="process", settings={...}, clock=True, disk=True)`` on a test,
  a class or a module (where the scope is ``function``);
* ``--kafka-broker=thread|process`` and ``--kafka-broker-scope=function|module|session|…``, or
  ``kafka_broker_mode``, ``kafka_broker_scope`` and ``kafka_broker_settings`` (lines of
  ``name=value``) in pytest's settings file.

The default is a broker in a thread, a new one for each test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock_broker.testing.broker_process import BrokerProcess
    from penstock_broker.testing.thread_broker import ThreadBroker

MODES = ("thread", "process")
SCOPES = ("function", "class", "module", "package", "session")
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Settings of test brokers: a group need not wait for others, internal topics are small."""

Factory = Callable[..., "ThreadBroker | BrokerProcess"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafka_broker", "brokers for tests (penstock-broker)")
    group.addoption(
        "--kafka-broker", choices=MODES, help="how kafka_broker runs: thread (default) or process"
    )
    group.addoption(
        "--kafka-broker-scope", choices=SCOPES, help="how long one kafka_broker is used"
    )
    parser.addini("kafka_broker_mode", "how kafka_broker runs: thread or process", default="thread")
    parser.addini("kafka_broker_scope", "how long one is used", default="function")
    parser.addini("kafka_broker_settings", "its settings, name=value", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kafka_broker(mode, settings, clock, disk): how the fixture kafka_broker runs for a test",
    )


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    scope = config.getoption("--kafka-broker-scope") or config.getini("kafka_broker_scope")
    if scope not in SCOPES:
        raise pytest.UsageError(f"kafka_broker_scope: {scope!r} is none of {', '.join(SCOPES)}")
    return scope


def make_broker(
    data_dir: Any,
    *,
    mode: str = "thread",
    settings: Mapping[str, object] | None = None,
    clock: bool = False,
    disk: bool = False,
) -> ThreadBroker | BrokerProcess:
    """A broker that is not started yet. ``clock``, ``disk``: simulated ones (thread mode)."""
    values = QUICK | {name: _text(value) for name, value in (settings or {}).items()}
    if mode == "process":
        if clock or disk:
            raise ValueError("a simulated clock or disk needs mode='thread'")
        from penstock_broker.testing.broker_process import BrokerProcess  # noqa: PLC0415

        return BrokerProcess(data_dir, values)
    if mode != "thread":
        raise ValueError(f"mode {mode!r} is none of {', '.join(MODES)}")
    from penstock_broker.testing.mem_files import MemFiles  # noqa: PLC0415
    from penstock_broker.testing.shifted_clock import ShiftedClock  # noqa: PLC0415
    from penstock_broker.testing.thread_broker import ThreadBroker  # noqa: PLC0415

    time = ShiftedClock() if clock else None
    files = MemFiles(time) if disk else None
    return ThreadBroker(data_dir, values, clock=time, files=files)


@pytest.fixture(scope=_scope)
def kafka_broker_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Factory]:
    """Makes and starts brokers: ``kafka_broker_factory(mode=…, settings=…)``; stops them after."""
    made: list[ThreadBroker | BrokerProcess] = []
    config = request.config
    mode = config.getoption("--kafka-broker") or config.getini("kafka_broker_mode")
    lines = [line.partition("=") for line in config.getini("kafka_broker_settings")]
    defaults = {name.strip(): value.strip() for name, _, value in lines}

    def make(
        *, settings: Mapping[str, object] | None = None, **options: Any
    ) -> ThreadBroker | BrokerProcess:
        data_dir = tmp_path_factory.mktemp("kafka-broker") / "data"
        options.setdefault("mode", mode)
        broker = make_broker(data_dir, settings={**defaults, **(settings or {})}, **options)
        broker.start()
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.stop()


@pytest.fixture(scope=_scope)
def kafka_broker(
    request: pytest.FixtureRequest, kafka_broker_factory: Factory
) -> Iterator[ThreadBroker | BrokerProcess]:
    """A Kafka broker that runs; see the module for how to choose which."""
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("kafka_broker"))):
        options.update(marker.kwargs)
    yield kafka_broker_factory(**options)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
