"""The test kit that is shipped: brokers for tests, faults on order, simulated clock and disk.

With pytest installed, the fixture ``kafka_broker`` is there (``pytest_plugin``); everything works
without it, too. A broker runs in a thread (``ThreadBroker``: milliseconds, and time and disk can
be simulated) or as a process (``BrokerProcess``: ``kill -9`` for real). Both have ``faults``.
docs/TESTING.md shows it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_broker.testing.broker_process import BrokerProcess
    from penstock_broker.testing.faults import Faults
    from penstock_broker.testing.handle import BrokerHandle
    from penstock_broker.testing.mem_files import MemFiles
    from penstock_broker.testing.raw_client import RawClient
    from penstock_broker.testing.shifted_clock import ShiftedClock
    from penstock_broker.testing.sim_clock import SimClock
    from penstock_broker.testing.thread_broker import ThreadBroker

__all__ = [
    "BrokerHandle",
    "BrokerProcess",
    "Faults",
    "MemFiles",
    "RawClient",
    "ShiftedClock",
    "SimClock",
    "ThreadBroker",
]

_MODULES = {
    "BrokerHandle": "handle",
    "BrokerProcess": "broker_process",
    "Faults": "faults",
    "MemFiles": "mem_files",
    "RawClient": "raw_client",
    "ShiftedClock": "shifted_clock",
    "SimClock": "sim_clock",
    "ThreadBroker": "thread_broker",
}


def __getattr__(name: str) -> object:
    # Imported when asked for: pytest loads the plugin in every run, also in those without Kafka.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
