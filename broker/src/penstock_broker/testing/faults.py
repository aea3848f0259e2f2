"""Faults on order: what a broker does to the next requests of an API, instead of what they ask.

    broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    broker.faults.delay("Fetch", seconds=0.5)
    broker.faults.drop("OffsetCommit")              # the connection breaks, nothing was done
    broker.faults.drop("Produce", after=True)       # it is done, and the client gets no answer
    broker.faults.hold("JoinGroup")                 # no answer, until release() or clear()

An API is named as Kafka names it (``Produce``, ``ListOffsets``; ``*`` is any). Faults of one API
happen in the order in which they were ordered, each as often as it was ordered (``times=None``:
until :meth:`Faults.clear`). ``client_id`` bounds a fault to one client: clients under test are
distinguished by it. :meth:`Faults.seen` counts the requests that came, faulty or not.

An error is the API's own answer with that code in every place where it belongs, so that clients
take it for the broker's. A delay holds back what follows on the same connection, as a slow broker
does.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

import penstock_broker.api  # noqa: F401 (registers the APIs)
from penstock_broker.api.context import Exchange, Services
from penstock_broker.api.registry import Api, api_table
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.server.connection import Connection
from penstock_broker.server.dispatch import Dispatcher
from penstock_broker.wire.fields import Struct
from penstock_broker.wire.framing import FrameReader

ANY = "*"
PRODUCE = 0
HELPER = "penstock-testing"
"""The client id of the test kit's own requests: no fault meets them, and they are not counted."""
_START = struct.Struct(">hhih")


@dataclass(slots=True)
class Fault:
    """One order. ``kind``: error, delay, drop, drop-after or hold."""

    kind: str
    api: str
    times: int | None = 1
    client_id: str | None = None
    error: str = ""
    message: str = ""
    seconds: float = 0.0


class FaultRules:
    """The orders that are open, and what has been seen; any thread may look and change."""

    def __init__(self, api_names: dict[int, str]) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._seen: Counter[str] = Counter()
        self._names = api_names
        self.release: Callable[[], None] = lambda: None
        """Releases what is held; the dispatcher's, called in the broker's thread."""

    @property
    def is_active(self) -> bool:
        """Whether each request has to be looked at."""
        return bool(self._faults)

    def add(self, fault: Fault) -> None:
        """Take an order. ValueError for an API or error that there is not."""
        if fault.api != ANY and fault.api not in self._names.values():
            known = ", ".join(sorted(self._names.values()))
            raise ValueError(f"there is no API {fault.api!r}; there are {known}")
        if fault.kind == "error" and fault.error not in ErrorCode.__members__:
            raise ValueError(f"there is no Kafka error {fault.error!r}")
        with self._lock:
            self._faults.append(fault)

    def clear(self) -> None:
        """Remove all orders."""
        with self._lock:
            self._faults.clear()

    def seen(self, api: str) -> int:
        """Requests of an API so far."""
        return self._seen.total() if api == ANY else self._seen[api]

    def count(self, key: int, times: int = 1) -> None:
        """So many requests of an API have come."""
        self._seen[self._names.get(key, str(key))] += times

    def next_for(self, key: int, client_id: str | None) -> Fault | None:
        """What is to happen to a request; counted."""
        name = self._names.get(key)
        with self._lock:
            for fault in self._faults:
                if fault.api not in (ANY, name) or fault.client_id not in (None, client_id):
                    continue
                if fault.times is not None:
                    fault.times -= 1
                    if fault.times <= 0:
                        self._faults.remove(fault)
                return fault
        return None


def api_names() -> dict[int, str]:
    """All APIs by key."""
    return {key: api.name for key, api in api_table().items()}


class Faults:
    """What a test says. ``send`` carries a command to the broker, wherever it runs."""

    def __init__(self, send: Callable[[dict[str, Any]], Any]) -> None:
        self._send = send

    def fail(
        self,
        api: str,
        error: str | ErrorCode,
        *,
        times: int | None = 1,
        client_id: str | None = None,
        message: str = "",
    ) -> None:
        """Answer the next requests with an error (its Kafka name, or the code)."""
        name = error.name if isinstance(error, ErrorCode) else error
        self._order(Fault("error", api, times, client_id, name, message))

    def delay(
        self, api: str, seconds: float, *, times: int | None = 1, client_id: str | None = None
    ) -> None:
        """Look at the next requests only after so long."""
        self._order(Fault("delay", api, times, client_id, seconds=seconds))

    def drop(
        self,
        api: str,
        *,
        times: int | None = 1,
        client_id: str | None = None,
        after: bool = False,
    ) -> None:
        """Break the connection at the next requests: before, or after they were carried out."""
        self._order(Fault("drop-after" if after else "drop", api, times, client_id))

    def hold(self, api: str, *, times: int | None = 1, client_id: str | None = None) -> None:
        """Do not look at the next requests until :meth:`release` or :meth:`clear`."""
        self._order(Fault("hold", api, times, client_id))

    def release(self) -> None:
        """Carry out what is held."""
        self._send({"do": "release"})

    def clear(self) -> None:
        """Remove all orders, and carry out what is held."""
        self._send({"do": "clear"})

    def seen(self, api: str = ANY) -> int:
        """Requests of an API that have come so far."""
        return int(self._send({"do": "seen", "api": api}))

    def _order(self, fault: Fault) -> None:
        self._send({"do": "fault", "fault": asdict(fault)})


def carry_out(rules: FaultRules, command: dict[str, Any]) -> Any:
    """Do what :class:`Faults` says; in the broker's thread. ValueError."""
    match command["do"]:
        case "fault":
            rules.add(Fault(**command["fault"]))
        case "seen":
            return rules.seen(command["api"])
        case "clear":
            rules.clear()
            rules.release()
        case "release":
            rules.release()
        case other:
            raise ValueError(f"unknown command {other!r}")
    return None


class FaultyDispatcher(Dispatcher):
    """A dispatcher that asks the rules first."""

    def __init__(self, services: Services, table: dict[int, Api], rules: FaultRules) -> None:
        super().__init__(services, table)
        self._rules = rules
        self._held: list[tuple[bytes, Connection]] = []
        rules.release = self._release

    def dispatch(self, frame: memoryview, connection: Connection) -> None:
        if len(frame) < _START.size:
            super().dispatch(frame, connection)
            return
        key, version, _, id_size = _START.unpack_from(frame)
        client_id = str(frame[10 : 10 + id_size], "utf-8", "replace") if id_size >= 0 else None
        if client_id == HELPER:
            super().dispatch(frame, connection)
            return
        self._rules.count(key)
        fault = None
        if self._rules.is_active:
            fault = self._rules.next_for(key, client_id)
        if fault is None:
            super().dispatch(frame, connection)
        else:
            self._do(fault, (key, version), frame, connection)

    def _do(
        self, fault: Fault, place: tuple[int, int], frame: memoryview, connection: Connection
    ) -> None:
        match fault.kind:
            case "error" if place in self._routes:
                self._fail(fault, place, frame, connection)
            case "drop":
                connection.abort("a fault was ordered")
            case "drop-after":
                super().dispatch(frame, connection)
                self.commit()
                connection.abort("a fault was ordered")
            case "delay":
                connection.hold()
                later = bytes(frame), connection
                asyncio.get_running_loop().call_later(fault.seconds, self._carry_on, *later)
            case "hold":
                connection.hold()
                self._held.append((bytes(frame), connection))
            case _:
                super().dispatch(frame, connection)

    def _fail(
        self, fault: Fault, place: tuple[int, int], frame: memoryview, connection: Connection
    ) -> None:
        """Let the request go its usual way to a handler that fails."""
        error = KafkaError(ErrorCode[fault.error], fault.message or None)

        def handle(services: Services, exchange: Exchange, request: Struct) -> NoReturn:
            raise error

        route = self._routes[place]
        failing = replace(route, api=replace(route.api, handle=handle))
        self._routes[place] = failing
        try:
            super().dispatch(frame, connection)
        finally:
            self._routes[place] = route

    def dispatch_runs(self, frames: FrameReader, connection: Connection) -> int:
        if self._rules.is_active:
            return 0
        handled = super().dispatch_runs(frames, connection)
        if handled:
            self._rules.count(PRODUCE, handled)
        return handled

    def _release(self) -> None:
        held, self._held = self._held, []
        for frame, connection in held:
            self._carry_on(frame, connection)

    def _carry_on(self, frame: bytes, connection: Connection) -> None:
        if connection.is_closed:
            return
        connection.unhold()
        super().dispatch(memoryview(bytearray(frame)), connection)
        self.rest()
        connection.flush()
