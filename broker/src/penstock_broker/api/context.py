"""What a handler is given: the broker's services, and the exchange that it answers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from penstock_broker.steps import OneAtATime
from penstock_broker.wire.fields import Struct

if TYPE_CHECKING:
    from penstock_broker.api.broker_configs import BrokerConfigs
    from penstock_broker.api.fetch_sessions import FetchSessions
    from penstock_broker.api.metadata_cache import MetadataCache
    from penstock_broker.api.topics import TopicAdmin
    from penstock_broker.clock import Clock
    from penstock_broker.cluster.metadata_store import MetadataStore
    from penstock_broker.config import BrokerConfig
    from penstock_broker.groups.coordinator import GroupCoordinator
    from penstock_broker.groups.offsets import OffsetsTopic
    from penstock_broker.metrics import Metrics
    from penstock_broker.quotas.client_quotas import ClientQuotas
    from penstock_broker.replication.partition import Partition
    from penstock_broker.replication.replica_manager import ReplicaManager
    from penstock_broker.security.acl_store import AclStore
    from penstock_broker.security.authorizer import Authorizer
    from penstock_broker.security.scram_store import ScramStore
    from penstock_broker.security.session import Session
    from penstock_broker.transactions.coordinator import TransactionCoordinator


class Exchange(Protocol):
    """One request of one connection, and the place of its answer in the order of answers."""

    @property
    def api_version(self) -> int:
        """The version of the request, and of its answer."""
        ...

    @property
    def client_id(self) -> str | None:
        """What the client calls itself."""
        ...

    @property
    def client_host(self) -> str:
        """The peer's address, as groups show it."""
        ...

    @property
    def session(self) -> Session:
        """The client: its principal, host and listener."""
        ...

    @property
    def principal(self) -> str:
        """The client's principal: "User:alice", or "User:ANONYMOUS"."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed, so that no answer can be sent."""
        ...

    @property
    def fetch_bytes_max(self) -> int:
        """The most records that the client's quota lets one Fetch answer carry."""
        ...

    def charge_mutations(self, partitions: int) -> None:
        """Partitions are about to be made or deleted: THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
        ...

    def respond(self, response: Struct) -> None:
        """Answer a request whose handler returned ``DEFERRED``; once."""
        ...

    def on_closed(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called should the connection end before the answer."""
        ...


class Delayed(Protocol):
    """A request that waits for something to happen to one of its keys."""

    def advanced(self, key: Hashable, amount: int) -> bool:
        """``amount`` more (bytes) of ``key``; True when the request need not wait longer."""
        ...

    def still_waits(self) -> bool:
        """Look again, soon after ``advanced`` said True: whether there is too little after all."""
        ...

    def complete(self) -> None:
        """Answer now: it need not wait longer, or its time is up. Called once."""
        ...


class Watcher(Protocol):
    """A listener for every advance of keys; see ``api.fetch_sessions``."""

    @property
    def waiting_key(self) -> Hashable:
        """The key of the request, if any, that waits on its behalf."""
        ...

    def advanced(self, key: Hashable, amount: int) -> bool:
        """``amount`` more (bytes) of ``key``; always False."""
        ...


class Purgatory(Protocol):
    """Where delayed requests wait; implemented by the server."""

    def park(self, operation: Delayed, keys: Iterable[Hashable], deadline: float) -> None:
        """Keep ``operation`` until a key completes it or the clock reaches ``deadline``."""
        ...

    def cancel(self, operation: Delayed) -> None:
        """Remove an operation whose client is gone."""
        ...


class Deferred:
    """Returned by a handler that answers later through :meth:`Exchange.respond`."""


class Unanswered:
    """Returned by a handler whose client wants no answer (Produce with acks=0)."""


class Encoded:
    """An answer whose body is ready: bytes as they are sent, often from a cache."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body


class CloseConnectionError(Exception):
    """There is no answer that says what is wrong: close the connection, as Kafka does."""


class Staged(Protocol):
    """Returned by a handler that has staged batches (``Services.staged``)."""

    def finish(self) -> Reply:
        """The reply, now that they have been written, or could not be."""
        ...


DEFERRED = Deferred()
UNANSWERED = Unanswered()

Reply = Struct | Encoded | Deferred | Unanswered
Steps = Generator[Any, None, Reply | Staged]
"""A handler's work in steps of a few microseconds each, for requests that may name thousands of
things: others are served between them. What it returns is the reply."""


class Services:
    """All that handlers may use; built once by the composition root."""

    __slots__ = (
        "acls",
        "address_of",
        "alterations",
        "authorizer",
        "broker_configs",
        "clock",
        "config",
        "fetch_sessions",
        "groups",
        "metadata",
        "metadata_cache",
        "metrics",
        "next_producer_id",
        "offsets",
        "purgatory",
        "quotas",
        "replicas",
        "scram",
        "staged",
        "topics",
        "transactions",
    )

    def __init__(
        self,
        *,
        config: BrokerConfig,
        broker_configs: BrokerConfigs,
        clock: Clock,
        metadata: MetadataStore,
        replicas: ReplicaManager,
        topics: TopicAdmin,
        metadata_cache: MetadataCache,
        groups: GroupCoordinator,
        offsets: OffsetsTopic,
        transactions: TransactionCoordinator,
        purgatory: Purgatory,
        fetch_sessions: FetchSessions,
        quotas: ClientQuotas,
        next_producer_id: Callable[[], int],
        metrics: Metrics,
        address_of: Callable[[str], tuple[str, int]],
        scram: ScramStore,
        acls: AclStore | None = None,
    ) -> None:
        self.config = config
        """In force now; another object after each change."""
        self.broker_configs = broker_configs
        self.fetch_sessions = fetch_sessions
        self.clock = clock
        self.metadata = metadata
        self.replicas = replicas
        self.topics = topics
        self.metadata_cache = metadata_cache
        self.offsets = offsets
        self.transactions = transactions
        self.alterations = OneAtATime()
        """Of settings, ACLs, users and quotas."""
        self.next_producer_id = next_producer_id
        self.metrics = metrics
        self.groups = groups
        self.purgatory = purgatory
        self.quotas = quotas
        self.address_of = address_of
        """The advertised host and port of this broker, for clients of a listener."""
        self.scram = scram
        self.acls = acls
        self.authorizer: Authorizer | None = acls.authorizer if acls is not None else None
        """None: every client may do everything."""
        self.staged: set[Partition] = set()
        """Partitions to which the requests of this read event append: written together at its end,
        and before anything else is looked at."""
