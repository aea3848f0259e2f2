"""The composition root: builds the broker from its parts, starts it, runs it, stops it.

Order of a start: take the data directory, read the metadata, open and recover the logs, replay
the groups and the transactions, listen. Order of a stop: stop listening, answer requests that wait,
end the connections, close the logs (which syncs them and writes the checkpoints).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

import penstock_broker.api  # noqa: F401 (registers the APIs)
from penstock_broker.api.broker_configs import BrokerConfigs
from penstock_broker.api.context import Services
from penstock_broker.api.fetch_sessions import FetchSessions
from penstock_broker.api.metadata_cache import MetadataCache
from penstock_broker.api.registry import Api, api_table
from penstock_broker.api.topics import TopicAdmin
from penstock_broker.clock import Clock, SystemClock, Timers
from penstock_broker.cluster.metadata_file import MetadataError
from penstock_broker.cluster.metadata_store import LocalMetadataStore
from penstock_broker.cluster.topic import OFFSETS_TOPIC
from penstock_broker.config import BrokerConfig, ConfigError
from penstock_broker.config.table import split_address
from penstock_broker.errors import KafkaError
from penstock_broker.groups.coordinator import CoordinatorLimits, GroupCoordinator
from penstock_broker.groups.members import GroupLimits
from penstock_broker.groups.offsets import OffsetsTopic
from penstock_broker.log.data_directory import DataDirectoryError, DataDirectoryTakenError
from penstock_broker.log.files import Files, OsFiles
from penstock_broker.log.manager import LogManager
from penstock_broker.metrics import Metrics
from penstock_broker.quotas.client_quotas import ClientQuotas
from penstock_broker.replication.partition import Partition
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.security.acl_store import AclStore
from penstock_broker.security.principals import parse_super_users
from penstock_broker.security.scram_store import ScramStore
from penstock_broker.server.background import BackgroundJobs
from penstock_broker.server.dispatch import Dispatcher
from penstock_broker.server.health import Phase
from penstock_broker.server.holders import lock_holder, port_holder
from penstock_broker.server.limits import ConnectionLimits
from penstock_broker.server.listeners import CannotListenError, Listeners
from penstock_broker.server.log_jobs import LogJobs
from penstock_broker.server.observation import Observation, StopWantedError
from penstock_broker.server.producer_ids import ProducerIds
from penstock_broker.server.purgatory import DelayedOperations
from penstock_broker.server.timers import LoopTimers
from penstock_broker.server.tls import TlsError
from penstock_broker.server.transactions import Transactions

_logger = logging.getLogger(__name__)

DRAIN_SECONDS = 0.5
"""How long a stop waits for clients to take the answers that are ready."""


class StartError(Exception):
    """The broker cannot start; ``str()`` says why, for the user."""


class Broker:
    """One broker. Made inside a running event loop, which owns all of its state."""

    def __init__(
        self,
        config: BrokerConfig,
        data_dir: Path,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        make_timers: Callable[[asyncio.AbstractEventLoop, Clock], Timers] = LoopTimers,
        make_dispatcher: Callable[[Services, dict[int, Api]], Dispatcher] = Dispatcher,
    ) -> None:
        self.config = config
        self._make_dispatcher = make_dispatcher
        self._loop = asyncio.get_running_loop()
        self._clock: Clock = clock or SystemClock()
        self._files: Files = files or OsFiles()
        self._data_dir = data_dir
        self._timers = make_timers(self._loop, self._clock)
        self._jobs = BackgroundJobs(self._loop, self._clock, self._timers)
        self.metrics = Metrics()
        self.logs = LogManager(data_dir, self._clock, self._files, self.metrics)
        self.logs.producers_max = config.max_producer_ids_per_partition
        self.logs.run_in_background = lambda job: self._loop.call_soon_threadsafe(
            self._loop.run_in_executor, None, job
        )
        self.log_jobs = LogJobs(
            config,
            self.logs,
            clock=self._clock,
            files=self._files,
            metrics=self.metrics,
            loop=self._loop,
        )
        self.observation = Observation(config, self.metrics, self._clock, data_dir)

    # -- start -------------------------------------------------------------------------------

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Start and listen; the address that was bound (port 0 takes a free one). StartError."""
        try:
            self.logs.open()
        except (DataDirectoryError, OSError) as error:
            holder = None
            if isinstance(error, DataDirectoryTakenError):
                holder = lock_holder(self._data_dir / ".lock")
            reason = f"{error}, {holder}" if holder else str(error)
            raise StartError(f"cannot use data directory {self._data_dir}: {reason}") from error
        await self._observe()
        try:
            self._assemble()
            self.dispatcher = self._make_dispatcher(self.services, api_table())
            self.listeners.prepare(host, port, self.dispatcher, self.scram)
            # In a thread: recovery may take minutes, and probes ask meanwhile how far it is.
            await self._loop.run_in_executor(None, self.replicas.start, self.observation.loaded)
            await self._loop.run_in_executor(None, self.producer_ids.begin)
            self.groups.load(self.offsets.load())
            self.transactions.load()
        except (ConfigError, TlsError, MetadataError, OSError, KafkaError) as error:
            self.logs.abandon()
            await self.observation.close()
            raise StartError(str(error)) from error
        except StopWantedError:
            self.logs.abandon()
            await self.observation.close()
            raise
        self.observation.watch(
            metadata=self.metadata,
            replicas=self.replicas,
            groups=self.groups,
            transactions=self.transactions.coordinator,
            purgatory=self.purgatory,
            sessions=self.services.fetch_sessions,
            listeners=self.listeners.all,
        )
        try:
            bound = await self.listeners.start()
        except CannotListenError as error:
            self.replicas.close()
            await self.observation.close()
            address = f"{error.host}:{error.port}"
            raise StartError(_cannot_listen(address, error.port, error.error)) from error
        self._start_jobs()
        self.observation.run()
        return bound

    async def _observe(self) -> None:
        try:
            await self.observation.open()
        except OSError as error:
            self.logs.abandon()
            address = self.config.penstock_http_listener
            port = split_address(address)[1]
            text = _cannot_listen(f"{address} (penstock.http.listener)", port, error)
            raise StartError(text) from error

    def _assemble(self) -> None:
        config, clock = self.config, self._clock
        self.metadata = LocalMetadataStore(
            self._data_dir / "metadata.json", self._files, clock, config.broker_id
        )
        self.producer_ids = ProducerIds(self.metadata, self._loop)
        self.broker_configs = BrokerConfigs(config, self.metadata)
        config = self.config = self.broker_configs.current
        self.replicas = ReplicaManager(config, self.metadata, self.logs)
        self.purgatory = DelayedOperations(self._timers, config.purgatory_max_partitions)
        self.replicas.advance_listeners.append(self._advanced)
        self.replicas.removal_listeners.append(self._removed)
        self.replicas.failure_listeners.append(self._failed)
        self.metadata_cache = MetadataCache()
        self.topics = TopicAdmin(
            config, self.metadata, self.replicas, on_deleted=self._topic_deleted
        )
        self._make_coordinators()
        self.quotas = ClientQuotas(
            clock, self.metadata, burst_seconds=config.quota_window_size_seconds
        )
        self._make_doors()
        self.services = Services(
            config=config,
            broker_configs=self.broker_configs,
            clock=clock,
            metadata=self.metadata,
            replicas=self.replicas,
            topics=self.topics,
            metadata_cache=self.metadata_cache,
            groups=self.groups,
            offsets=self.offsets,
            transactions=self.transactions.coordinator,
            purgatory=self.purgatory,
            fetch_sessions=FetchSessions(
                clock,
                self.purgatory,
                config.max_fetch_session_slots,
                self.metrics.fetch_sessions_evicted,
            ),
            quotas=self.quotas,
            next_producer_id=self.producer_ids.next,
            metrics=self.metrics,
            address_of=self.listeners.address_of,
            scram=self.scram,
            acls=self.acls,
        )

    def _make_coordinators(self) -> None:
        """Of groups and of transactions."""
        config, clock = self.config, self._clock
        self.offsets = OffsetsTopic(
            clock=clock,
            metadata=self.metadata,
            replicas=self.replicas,
            create=lambda: self.topics.create_internal(OFFSETS_TOPIC),
        )
        self.groups = GroupCoordinator(
            clock=clock,
            timers=self._timers,
            store=self.offsets,
            group_limits=GroupLimits(
                config.group_initial_rebalance_delay_ms,
                config.group_min_session_timeout_ms,
                config.group_max_session_timeout_ms,
                config.group_max_size,
            ),
            limits=CoordinatorLimits(
                config.offset_metadata_max_bytes,
                config.offsets_retention_minutes * 60_000,
                config.group_coordinator_max_groups,
                config.group_coordinator_max_bytes,
            ),
            metrics=self.metrics,
        )
        self.transactions = Transactions(
            config,
            clock=clock,
            timers=self._timers,
            metadata=self.metadata,
            replicas=self.replicas,
            topics=self.topics,
            groups=self.groups,
            next_producer_id=self.producer_ids.next,
            metrics=self.metrics,
        )

    def _make_doors(self) -> None:
        """The security of the listeners: authentication and authorization."""
        config = self.config
        try:
            self.scram = ScramStore(self.metadata)
            self.acls = None
            if config.authorizer_class_name:
                self.acls = AclStore(
                    self.metadata,
                    super_users=parse_super_users(config.super_users),
                    allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found,
                )
        except ValueError as error:
            raise MetadataError(str(error)) from error
        limits = ConnectionLimits(config, self._loop.time, self.quotas)
        self.broker_configs.listeners += [
            self._configs_changed,
            self.replicas.use_config,
            self.topics.use_config,
            limits.use_config,
            self.log_jobs.use_config,
        ]
        self.listeners = Listeners(config, self._loop, limits, self.metrics)

    # -- what follows from what ----------------------------------------------------------------

    def _advanced(self, partition: Partition, size: int) -> None:
        self.purgatory.advance((partition.topic, partition.index), size)

    def _removed(self, partition: Partition) -> None:
        self.purgatory.wake_soon((partition.topic, partition.index))

    def _failed(self, topic: str, partition: int) -> None:
        """A log has gone offline: waiting requests get the error, and metadata name no leader."""
        self.metadata_cache.invalidate(topic)
        self.purgatory.wake_soon((topic, partition))

    def _configs_changed(self, config: BrokerConfig) -> None:
        self.config = self.services.config = config

    def _topic_deleted(self, name: str) -> None:
        self.metadata_cache.invalidate(name)
        try:
            self.groups.offsets.remove_topic(name)
        except KafkaError as error:
            _logger.warning("offsets of the deleted topic %s remain: %s", name, error)

    # -- background ----------------------------------------------------------------------------

    def _start_jobs(self) -> None:
        config = self.config
        for every_ms, job in ((config.offsets_retention_check_interval_ms, self._expire_offsets),):
            self._jobs.every(every_ms, job)
        self.log_jobs.start(self._jobs)
        self.transactions.start(self._jobs)
        if self.listeners.has_files:
            self._jobs.every(config.credentials_check_interval_ms, self.listeners.refresh)

    def _expire_offsets(self) -> None:
        self.groups.expire()

    # -- stop ----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop in order; what was acknowledged is on its way to the disk when this returns."""
        self.observation.health.phase = Phase.STOPPING
        self.listeners.stop_accepting()
        await self._jobs.stop()
        self.purgatory.complete_all()
        await self.listeners.drain(DRAIN_SECONDS)
        self.listeners.close_all()
        await asyncio.sleep(0)
        await self.dispatcher.long_works.finish()
        self.transactions.stop()
        self.log_jobs.stop()
        self.replicas.close()
        await self.observation.close()

    async def abandon(self) -> None:
        """Stop as a killed process does: no request is answered, nothing is synced or written."""
        self.listeners.stop_accepting()
        self.listeners.abort_all()
        await self._jobs.stop()
        self.transactions.stop()
        self.log_jobs.stop()
        self.logs.abandon()
        await self.observation.close()


def _cannot_listen(address: str, port: int, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"cannot listen on {address}: {error.strerror}"
    # Python 3.13 wraps the one about an address of another machine, without its number.
    reason = os.strerror(error.errno or errno.EADDRNOTAVAIL)
    if error.errno != errno.EADDRINUSE:
        return f"cannot listen on {address}: {reason}"
    holder = port_holder(port)
    who = f"{holder} has it" if holder else f"`lsof -i :{port}` shows the process"
    return f"cannot listen on {address}: {reason}; {who} (port 0 takes a free one)"
