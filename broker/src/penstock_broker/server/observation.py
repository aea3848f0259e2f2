"""How the broker is looked at from outside: health, metrics, and the listener that shows them.

Put together here, so that the composition root has one thing to start and to stop. The HTTP
listener is up before the logs are loaded, because that is when one wants to know how far it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sized
from pathlib import Path

from penstock_broker.clock import Clock
from penstock_broker.cluster.metadata_store import MetadataStore
from penstock_broker.config import BrokerConfig
from penstock_broker.config.table import split_address
from penstock_broker.groups.coordinator import GroupCoordinator
from penstock_broker.metrics import Metrics
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.server.health import Health, Phase
from penstock_broker.server.http_server import HttpServer
from penstock_broker.server.state_metrics import (
    Door,
    Waiting,
    group_metrics,
    partition_metrics,
    process_metrics,
    server_metrics,
    transaction_metrics,
    turn_metrics,
)
from penstock_broker.server.turns import TurnWatch
from penstock_broker.transactions.coordinator import TransactionCoordinator

LAG_SECONDS = 0.5
"""How often the event loop's lag is measured."""


class StopWantedError(Exception):
    """The broker is asked to stop while it still loads its logs."""


class Observation:
    """Health and metrics of one broker."""

    def __init__(
        self, config: BrokerConfig, metrics: Metrics, clock: Clock, data_dir: Path
    ) -> None:
        self.health = Health()
        self.address: tuple[str, int] | None = None
        """Where the HTTP listener is bound; None while there is none."""
        self.turns = TurnWatch()
        self._listener = config.penstock_http_listener
        self._metrics = metrics
        self._http = HttpServer(self.health, metrics)
        self._lag: asyncio.Task[None] | None = None
        self._stop_wanted = False
        metrics.collect_from(process_metrics(data_dir, clock.now_ms() / 1000.0))

    async def open(self) -> None:
        """Start the HTTP listener, if there is to be one. OSError."""
        if self._listener:
            self.address = await self._http.start(*split_address(self._listener))

    def loaded(self, done: int, of: int) -> None:
        """So many logs are loaded; called in the thread that loads. StopWantedError."""
        self.health.loaded, self.health.to_load = done, of
        if self._stop_wanted:
            raise StopWantedError

    def want_stop(self) -> None:
        """Let loading end early."""
        self._stop_wanted = True

    def watch(
        self,
        *,
        metadata: MetadataStore,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        purgatory: Waiting,
        sessions: Sized,
        listeners: Callable[[], Mapping[str, Door]],
    ) -> None:
        """Show the state of these from now on."""
        self.health.phase = Phase.OPENING
        self.health.offline = replicas.offline
        for collector in (
            partition_metrics(metadata, replicas),
            group_metrics(groups, replicas),
            transaction_metrics(transactions),
            server_metrics(purgatory, sessions, listeners),
        ):
            self._metrics.collect_from(collector)

    def run(self) -> None:
        """The listeners accept."""
        self.health.phase = Phase.RUNNING
        loop = asyncio.get_running_loop()
        self.turns.watch(loop)
        self._metrics.collect_from(turn_metrics(self.turns))
        self._lag = loop.create_task(self._measure_lag())

    async def close(self) -> None:
        """Stop listening and measuring."""
        self.health.phase = Phase.STOPPING
        if self._lag is not None:
            self._lag.cancel()
            await asyncio.gather(self._lag, return_exceptions=True)
        await self._http.stop()

    async def _measure_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_SECONDS
            await asyncio.sleep(LAG_SECONDS)
            self._metrics.loop_lag_seconds.observe(max(0.0, loop.time() - due))
