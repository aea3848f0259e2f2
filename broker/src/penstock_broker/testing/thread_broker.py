"""A real broker in a thread of the test's own process: it starts in a few milliseconds.

    with ThreadBroker(tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

Clients talk to it over TCP as to any other. What only this form can do: time that a test moves
(``clock=ShiftedClock()``) and a disk that fails on command (``files=MemFiles()``).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import Any

from penstock_broker.clock import SystemClock
from penstock_broker.config import BrokerConfig, ConfigError
from penstock_broker.server.broker import Broker, StartError
from penstock_broker.server.timers import LoopTimers
from penstock_broker.testing.faults import (
    FaultRules,
    Faults,
    FaultyDispatcher,
    api_names,
    carry_out,
)
from penstock_broker.testing.handle import BrokerHandle
from penstock_broker.testing.mem_files import MemFiles
from penstock_broker.testing.shifted_clock import ShiftedClock

# Against hanging: a machine with other work takes long to start a Python.
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 120.0


class ThreadBroker(BrokerHandle):
    """A broker on a data directory. The first start takes a free port, later ones the same."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str] | None = None,
        *,
        host: str = "127.0.0.1",
        clock: ShiftedClock | None = None,
        files: MemFiles | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.settings = dict(settings or {})
        self.host = host
        self.port = 0
        self.clock = clock
        """Its time, where a test moves it."""
        self.files = files
        """Its disk, where it is a simulated one; another object after :meth:`kill`."""
        self._rules = FaultRules(api_names())
        self.faults = Faults(lambda command: self._call(lambda: carry_out(self._rules, command)))
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._broker: Broker | None = None
        self._frozen: threading.Event | None = None

    @property
    def broker(self) -> Broker:
        """The broker itself. It belongs to its own thread: look, do not touch."""
        if self._broker is None:
            raise RuntimeError("the broker is not running")
        return self._broker

    @property
    def is_running(self) -> bool:
        """Whether it has been started and not ended."""
        return self._thread is not None

    def start(self) -> ThreadBroker:
        if self._thread is not None:
            raise RuntimeError("the broker is running")
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(started)), name="kafka-broker", daemon=True
        )
        self._thread.start()
        try:
            started.result(START_SECONDS_MAX)
        except (StartError, ConfigError) as error:
            self._join()
            raise RuntimeError(f"the broker did not start: {error}") from error
        return self

    async def _run(self, started: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        clock = self.clock
        try:
            config = BrokerConfig.parse(self.settings)
            broker = Broker(
                config,
                self.data_dir,
                clock=clock or SystemClock(),
                files=self.files,
                make_timers=clock.timers if clock is not None else LoopTimers,
                make_dispatcher=lambda services, table: FaultyDispatcher(
                    services, table, self._rules
                ),
            )
            _, self.port = await broker.start(self.host, self.port)
        except Exception as error:  # noqa: BLE001 (raised where start() waits)
            started.set_exception(error)
            return
        self._broker = broker
        started.set_result(None)
        await self._ended.wait()

    def stop(self) -> int:
        if self._thread is not None:
            self.thaw()
            self._end(lambda broker: broker.stop())
        return 0

    def kill(self) -> None:
        """End it as ``kill -9`` does: what was acknowledged is there at the next start."""
        self._abandon()
        if self.files is not None:
            self.files = self.files.kill()

    def power_cut(self, seed: int = 0) -> None:
        """End it and its machine: of what was not synced, any part is lost (simulated disk)."""
        if self.files is None:
            raise RuntimeError("a power cut needs a simulated disk: files=MemFiles()")
        self._abandon()
        self.files = self.files.power_cut(Random(seed))

    def _abandon(self) -> None:
        if self._thread is not None:
            self.thaw()
            self._end(lambda broker: broker.abandon())

    def freeze(self) -> None:
        frozen, stopped = threading.Event(), threading.Event()

        def block_loop() -> None:
            stopped.set()
            frozen.wait()

        if self._frozen is None:
            self._frozen = frozen
            self._running_loop().call_soon_threadsafe(block_loop)
            stopped.wait()

    def thaw(self) -> None:
        frozen, self._frozen = self._frozen, None
        if frozen is not None:
            frozen.set()

    # -- its thread --------------------------------------------------------------------------

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._broker is None:
            raise RuntimeError("the broker is not running")
        return self._loop

    def _call(self, function: Callable[[], Any]) -> Any:
        """Call in the broker's thread, between two events; here, while it does not run."""
        if self._broker is None or self._frozen is not None:
            return function()

        async def call() -> Any:
            return function()

        return self._submit(call())

    def _submit(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._running_loop()).result(STOP_SECONDS_MAX)

    def _end(self, how: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
        broker = self.broker

        async def end() -> None:
            try:
                await how(broker)
            finally:
                self._ended.set()

        try:
            self._submit(end())
        finally:
            self._join()

    def _join(self) -> None:
        thread, self._thread, self._broker, self._loop = self._thread, None, None, None
        if thread is not None:
            thread.join(STOP_SECONDS_MAX)
