"""What a scrape reads from the broker's state: nothing here is counted beforehand.

Each function makes blocks from a part of the broker; :func:`collector` joins them. Rows are
snapshots, because the text is written in pieces while the broker continues. The number of
partitions and of committed offsets with rows of their own is limited; beyond that there are only
the sums, and ``penstock_metrics_rows_left_out`` is the number of omitted rows.
"""

from __future__ import annotations

import os
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from pathlib import Path
from typing import Protocol

from penstock_broker.cluster.metadata_store import MetadataStore
from penstock_broker.groups.coordinator import GroupCoordinator
from penstock_broker.groups.states import GroupState
from penstock_broker.metrics import Block, Row
from penstock_broker.replication.partition import Partition
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.transactions.coordinator import TransactionCoordinator
from penstock_broker.transactions.states import TransactionState

PARTITIONS_MAX = 10_000
"""Partitions with rows of their own."""
OFFSETS_MAX = 20_000
"""Committed offsets with rows of their own."""
STATE_RUNNING = 3
"""Kafka's number for a broker that runs."""

Collector = Callable[[], Iterator[Block]]


class Waiting(Protocol):
    """What is asked of the purgatory."""

    def kinds(self) -> Iterable[str]:
        """One name for each request that waits."""
        ...


Labelled = Iterable[tuple[tuple[str, ...], float]]
"""(values of the labels, value)"""


class Turns(Protocol):
    """What is asked of the watch on the event loop."""

    longest_seconds: float
    slow: int


class Door(Sized, Protocol):
    """What is asked of a listener; its length is how many connections it has."""

    accepted: int
    refused: int
    bytes_in: int
    bytes_out: int


def gauge(name: str, text: str, value: float) -> Block:
    """One number."""
    return Block(name, "gauge", text, [("", (), value)])


def gauges(name: str, labels: tuple[str, ...], text: str, rows: Labelled) -> Block:
    """Gauges of one name, distinguished by labels."""
    named = [("", tuple(zip(labels, values, strict=True)), value) for values, value in rows]
    return Block(name, "gauge", text, named, labels)


# -- partitions ----------------------------------------------------------------------------------


def partition_metrics(metadata: MetadataStore, replicas: ReplicaManager) -> Collector:
    """Logs, and how many of what there is."""

    def collect() -> Iterator[Block]:
        everything = list(replicas.partitions())
        offline = len(replicas.offline())
        topics = list(metadata.topics.values())
        declared = sum(len(topic.partitions) for topic in topics)
        manager = "kafka_server_replicamanager"
        yield gauge(f"{manager}_partitioncount", "Partitions of this broker.", declared)
        yield gauge(f"{manager}_leadercount", "Partitions that it leads.", declared - offline)
        yield gauge(f"{manager}_offlinereplicacount", "Partitions whose log is offline.", offline)
        yield gauge(f"{manager}_underreplicatedpartitions", "Always 0: one broker.", 0)
        controller = "kafka_controller_kafkacontroller"
        yield gauge(f"{controller}_activecontrollercount", "1: it is its own controller.", 1)
        yield gauge(f"{controller}_offlinepartitionscount", "Partitions without a leader.", offline)
        yield gauge(f"{controller}_globaltopiccount", "Topics.", len(topics))
        yield gauge(f"{controller}_globalpartitioncount", "Partitions.", declared)
        yield gauges(
            "kafka_topic_partitions",
            ("topic",),
            "Partitions of a topic.",
            [((topic.name,), len(topic.partitions)) for topic in topics],
        )
        shown = everything[:PARTITIONS_MAX]
        yield from _log_blocks(shown)
        yield gauge(
            "penstock_log_bytes", "Bytes of all logs.", sum(p.size_bytes for p in everything)
        )
        yield gauge(
            "penstock_metrics_rows_left_out",
            "Partitions without rows of their own.",
            len(everything) - len(shown),
        )

    return collect


def _log_blocks(shown: list[Partition]) -> Iterator[Block]:
    reads: tuple[tuple[str, str, Callable[[Partition], float]], ...] = (
        ("kafka_log_log_size", "Bytes of a log.", lambda p: p.size_bytes),
        ("kafka_log_log_numlogsegments", "Its segments.", lambda p: len(p.log.segments)),
        ("kafka_log_log_logstartoffset", "Its first offset.", lambda p: p.log_start_offset),
        ("kafka_log_log_logendoffset", "Its next offset.", lambda p: p.log_end_offset),
        (
            "kafka_cluster_partition_laststableoffsetlag",
            "Records above the last stable offset: of transactions that are not decided.",
            lambda p: p.high_watermark - p.last_stable_offset,
        ),
        (
            "kafka_topic_partition_current_offset",
            "The next offset (the name that kafka_exporter gives it).",
            lambda p: p.high_watermark,
        ),
        (
            "kafka_topic_partition_oldest_offset",
            "The first offset (the name that kafka_exporter gives it).",
            lambda p: p.log_start_offset,
        ),
        ("penstock_log_online", "Whether a log works.", lambda p: p.is_online),
    )
    places = [(partition.topic, str(partition.index)) for partition in shown]
    for name, text, read in reads:
        rows = zip(places, [float(read(partition)) for partition in shown], strict=True)
        yield gauges(name, ("topic", "partition"), text, rows)


# -- groups --------------------------------------------------------------------------------------


def group_metrics(groups: GroupCoordinator, replicas: ReplicaManager) -> Collector:
    """States of groups, and how far they are behind."""

    def collect() -> Iterator[Block]:
        everything = groups.groups()
        states = Counter(group.state for group in everything)
        manager = "kafka_coordinator_group_groupmetadatamanager"
        yield gauge(f"{manager}_numgroups", "Groups.", len(everything))
        for state in GroupState:
            name = f"{manager}_numgroups{state.value.lower()}"
            yield gauge(name, f"Groups in state {state.value}.", states[state])
        yield gauges(
            "kafka_consumergroup_members",
            ("consumergroup",),
            "Members of a group.",
            [((group.group_id,), len(group.members)) for group in everything],
        )
        places = [
            (group.group_id, topic, index, offset.offset)
            for group in everything
            for (topic, index), offset in list(groups.offsets.of(group.group_id).items())
        ]
        yield gauge(f"{manager}_numoffsets", "Committed offsets.", len(places))
        yield from _lag_blocks(places, replicas)

    return collect


def _lag_blocks(
    places: list[tuple[str, str, int, int]], replicas: ReplicaManager
) -> Iterator[Block]:
    committed: list[tuple[tuple[str, ...], float]] = []
    behind: list[tuple[tuple[str, ...], float]] = []
    sums: Counter[tuple[str, str]] = Counter()
    for group_id, topic, index, offset in places:
        partition = replicas.find(topic, index)
        if partition is None:
            continue
        lag = max(0, partition.high_watermark - max(offset, partition.log_start_offset))
        sums[group_id, topic] += lag
        if len(committed) < OFFSETS_MAX:
            place = (group_id, topic, str(index))
            committed.append((place, offset))
            behind.append((place, lag))
    labels = ("consumergroup", "topic", "partition")
    yield gauges(
        "kafka_consumergroup_current_offset", labels, "A group's committed offset.", committed
    )
    yield gauges("kafka_consumergroup_lag", labels, "Records between that and the end.", behind)
    text = "The same over all partitions of a topic."
    yield gauges("kafka_consumergroup_lag_sum", labels[:2], text, sums.items())


def transaction_metrics(transactions: TransactionCoordinator) -> Collector:
    """Transactional ids by state."""

    def collect() -> Iterator[Block]:
        found, _ = transactions.find((), (), -1)
        states = Counter(transaction.state for transaction in found)
        yield gauges(
            "kafka_coordinator_transaction_transactionalids",
            ("state",),
            "Transactional ids by the state of their transaction.",
            [((state.title,), states[state]) for state in TransactionState],
        )

    return collect


# -- the server ----------------------------------------------------------------------------------


def server_metrics(
    purgatory: Waiting, sessions: Sized, listeners: Callable[[], Mapping[str, Door]]
) -> Collector:
    """Connections, traffic of the listeners, and requests that wait."""

    def collect() -> Iterator[Block]:
        waiting = Counter(purgatory.kinds())
        yield gauges(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            ("delayedoperation",),
            "Requests that wait, by API.",
            [((kind,), waiting[kind]) for kind in sorted({"Fetch", "Produce", *waiting})],
        )
        yield gauge(
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            "Fetch sessions.",
            len(sessions),
        )
        yield from _listener_blocks(listeners())
        yield gauge("kafka_server_kafkaserver_brokerstate", "3: running.", STATE_RUNNING)

    return collect


def _listener_blocks(listeners: Mapping[str, Door]) -> Iterator[Block]:
    prefix = "kafka_server_socketservermetrics"
    reads: tuple[tuple[str, str, str, Callable[[Door], int]], ...] = (
        (f"{prefix}_connection_count", "gauge", "Connections.", len),
        (f"{prefix}_connection_creation_total", "counter", "Connections let in.", _accepted),
        ("penstock_connections_refused_total", "counter", "Connections over a limit.", _refused),
        (f"{prefix}_incoming_byte_total", "counter", "Bytes received.", _bytes_in),
        (f"{prefix}_outgoing_byte_total", "counter", "Bytes sent.", _bytes_out),
    )
    for name, kind, text, read in reads:
        rows = [("", (("listener", key),), float(read(door))) for key, door in listeners.items()]
        yield Block(name, kind, text, rows, ("listener",))


_accepted: Callable[[Door], int] = attrgetter("accepted")
_refused: Callable[[Door], int] = attrgetter("refused")
_bytes_in: Callable[[Door], int] = attrgetter("bytes_in")
_bytes_out: Callable[[Door], int] = attrgetter("bytes_out")


# -- the process ---------------------------------------------------------------------------------


def turn_metrics(turns: Turns) -> Collector:
    """What the watch on the event loop's turns has seen."""

    def collect() -> Iterator[Block]:
        yield gauge(
            "penstock_eventloop_longest_turn_seconds",
            "The longest turn of the event loop.",
            turns.longest_seconds,
        )
        slow: list[Row] = [("", (), turns.slow)]
        yield Block(
            "penstock_eventloop_slow_turns_total",
            "counter",
            "Turns of the event loop that took longer than 20 ms.",
            slow,
        )

    return collect


def process_metrics(data_dir: Path, started_at: float) -> Collector:
    """The process and its disk. ``started_at``: seconds since the epoch."""
    release = _release()

    def collect() -> Iterator[Block]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu: list[Row] = [("", (), usage.ru_utime + usage.ru_stime)]
        yield Block("process_cpu_seconds_total", "counter", "CPU time, user and system.", cpu)
        yield gauge("process_start_time_seconds", "When it started, since the epoch.", started_at)
        resident = resident_bytes()
        if resident is not None:
            yield gauge("process_resident_memory_bytes", "Resident memory.", resident)
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        yield gauge("process_peak_resident_memory_bytes", "The largest since the start.", peak)
        descriptors = open_descriptors()
        if descriptors is not None:
            yield gauge("process_open_fds", "Open file descriptors.", descriptors)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = float("inf") if limit == resource.RLIM_INFINITY else limit
        yield gauge("process_max_fds", "How many it may open.", most)
        try:
            disk = os.statvfs(data_dir)
        except OSError:
            pass  # a simulated disk, or one that is gone: the logs say it
        else:
            free = disk.f_bavail * disk.f_frsize
            yield gauge("penstock_data_dir_free_bytes", "Free on the data directory's disk.", free)
        yield gauges(
            "penstock_build_info", ("version",), "1; its label is the version.", [((release,), 1)]
        )

    return collect


def resident_bytes() -> int | None:
    """Resident memory now; None where the system does not say (macOS has no /proc)."""
    try:
        fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    except OSError:
        return None
    return int(fields[1]) * resource.getpagesize()


def open_descriptors() -> int | None:
    """Open descriptors; None where no directory shows them."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        try:
            return sum(1 for _ in Path(directory).iterdir()) - 1  # but for the one that reads it
        except OSError:
            continue
    return None


def _release() -> str:
    try:
        return version("penstock-broker")
    except PackageNotFoundError:
        return "unknown"
