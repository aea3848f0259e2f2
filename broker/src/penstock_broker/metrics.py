"""Counters, gauges and histograms: plain numbers that cost an addition, read at a scrape.

One event loop owns them, so there is no lock. Code that counts keeps the object and adds to it
(``self._cuts.inc()``; on the hottest paths ``counters.bytes_in += size``); families are asked for
a child once, and the child is kept. Names and units become text only in :meth:`Metrics.render`,
when a scrape comes; what can be read from the broker's state then (log sizes, group lag) is not
counted here at all: the server adds it as a *collector*.

The names are those that the usual exporters give Apache Kafka's own metrics, so that dashboards
made for those find them; what Kafka does not have begins with ``penstock_``. The text is the
Prometheus exposition format 0.0.4, written here because it is forty lines and the client library
would be a dependency and a third of the time that a start takes; the tests parse it with that
library.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Generic, TypeVar

SECONDS_BUCKETS = (
    0.00001,
    0.000025,
    0.00005,
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
"""Upper bounds in seconds: from a produce in the page cache to a disk that stalls."""

CHILDREN_MAX = 1_000
"""Children of one family; what comes after them is counted together, under ``_other``."""
OTHER = "_other"

LabelPairs = tuple[tuple[str, str], ...]
Row = tuple[str, LabelPairs, float]
"""(suffix of the name, labels, value)"""


class Counter:
    """What only grows."""

    __slots__ = ("value",)
    kind = "counter"

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        self.value += amount

    def rows(self, labels: LabelPairs) -> Iterator[Row]:
        yield "", labels, self.value


class Gauge:
    """What goes up and down."""

    __slots__ = ("value",)
    kind = "gauge"

    def __init__(self) -> None:
        self.value: float = 0

    def set(self, value: float) -> None:
        self.value = value

    def inc(self, amount: float = 1) -> None:
        self.value += amount

    def dec(self, amount: float = 1) -> None:
        self.value -= amount

    def rows(self, labels: LabelPairs) -> Iterator[Row]:
        yield "", labels, self.value


class Histogram:
    """How many observations lie below each of some fixed bounds, and their sum."""

    __slots__ = ("_bounds", "_counts", "total")
    kind = "histogram"

    def __init__(self, bounds: Sequence[float] = SECONDS_BUCKETS) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def observe_many(self, value: float, times: int) -> None:
        """``times`` observations of about the same value, for the price of one."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self._counts)

    def rows(self, labels: LabelPairs) -> Iterator[Row]:
        seen = 0
        counts, total = list(self._counts), self.total  # the text may be written in pieces
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            seen += count
            yield "_bucket", (*labels, ("le", _number(bound))), seen
        yield "_sum", labels, total
        yield "_count", labels, seen


Metric = TypeVar("Metric", Counter, Gauge, Histogram)


@dataclass(frozen=True, slots=True)
class Block:
    """One metric as it is written: its name, what it is, and its rows. The rows are looked at
    later than the block is made, in pieces: they must not come straight from a dict that changes.
    """

    name: str
    kind: str
    help: str
    rows: Iterable[Row]
    labels: tuple[str, ...] = ()


class Family(Generic[Metric]):
    """Metrics of one name, distinguished by labels. Ask once for a child and keep it."""

    def __init__(
        self,
        make: Callable[[], Metric],
        name: str,
        help: str,  # noqa: A002 (what the format calls it)
        label_names: Sequence[str] = (),
        *,
        children_max: int = CHILDREN_MAX,
    ) -> None:
        self.name = name
        self.help = help
        self._make: Callable[[], Metric] = make
        self._label_names = tuple(label_names)
        self._children: dict[tuple[str, ...], Metric] = {}
        self._children_max = children_max
        self._kind = make().kind

    def labels(self, *values: str) -> Metric:
        """The child with these values, in the order of the names; made when it is new."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self._label_names):
                raise ValueError(f"{self.name} has the labels {self._label_names}")
            if len(self._children) >= self._children_max:
                values = (OTHER,) * len(values)
            child = self._children.setdefault(values, self._make())
        return child

    def block(self) -> Block:
        """All children, as they are now."""
        return Block(self.name, self._kind, self.help, self._rows(), self._label_names)

    def _rows(self) -> Iterator[Row]:
        for values, child in list(self._children.items()):
            yield from child.rows(tuple(zip(self._label_names, values, strict=True)))


class TopicMetrics:
    """What is counted per topic, as bare integers: the hot path adds to the attributes."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "duplicates",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        """Records appended."""
        self.bytes_in = 0
        """Bytes of records appended."""
        self.bytes_out = 0
        """Bytes of records handed to consumers."""
        self.bytes_rejected = 0
        """Bytes of records refused for their size."""
        self.duplicates = 0
        """Duplicate batches of idempotent producers."""
        self.produces = 0
        """Partitions in produce requests."""
        self.failed_produces = 0
        """Those of them that were answered with an error."""
        self.fetches = 0
        """Partitions in fetch requests."""
        self.failed_fetches = 0
        """Those of them that were answered with an error."""


_TOPIC_BLOCKS = (
    ("messages_in", "messagesin", "Records appended."),
    ("bytes_in", "bytesin", "Bytes of records appended."),
    ("bytes_out", "bytesout", "Bytes of records handed to consumers."),
    ("bytes_rejected", "bytesrejected", "Bytes of records refused for their size."),
    ("duplicates", "duplicatebatches", "Duplicate batches of idempotent producers."),
    ("produces", "totalproducerequests", "Partitions in produce requests."),
    ("failed_produces", "failedproducerequests", "Partitions whose produce failed."),
    ("fetches", "totalfetchrequests", "Partitions in fetch requests."),
    ("failed_fetches", "failedfetchrequests", "Partitions whose fetch failed."),
)


class Metrics:
    """All that the broker counts. One object per broker, made first and handed down."""

    def __init__(self) -> None:
        self._families: list[Family[Counter] | Family[Gauge] | Family[Histogram]] = []
        self._collectors: list[Callable[[], Iterator[Block]]] = []
        self._topics: dict[str, TopicMetrics] = {}
        self._make_server_metrics()
        self._make_log_metrics()
        self._make_coordinator_metrics()
        self._make_security_metrics()

    def _make_server_metrics(self) -> None:
        self.requests = self.counters(
            "kafka_network_requestmetrics_requests_total",
            "Requests by API and version.",
            "request",
            "version",
        )
        self.request_errors = self.counters(
            "kafka_network_requestmetrics_errors_total",
            "Errors in answers by API and code: one for each partition, topic or group refused.",
            "request",
            "error",
        )
        self.local_seconds = self.histograms(
            "kafka_network_requestmetrics_localtime_seconds",
            "Time to handle a request, until it is answered or waits.",
            "request",
        )
        self.remote_seconds = self.histograms(
            "kafka_network_requestmetrics_remotetime_seconds",
            "Time that a request waited: a fetch for data, a join for the other members.",
            "request",
        )
        self.throttle_seconds = self.histograms(
            "kafka_network_requestmetrics_throttletime_seconds",
            "Throttle times sent to clients, by quota type.",
            "quota",
        )
        self.loop_lag_seconds = self.histogram(
            "penstock_eventloop_lag_seconds",
            "How late the event loop ran callbacks that were due: the time that all others waited.",
        )
        self.unexpected_errors = self.counters(
            "penstock_unexpected_errors_total",
            "Exceptions that are bugs, answered UNKNOWN_SERVER_ERROR; see the log.",
            "request",
        )

    def _make_log_metrics(self) -> None:
        self.flush_seconds = self.histogram(
            "kafka_log_logflushstats_logflush_seconds", "Syncs of logs to the disk."
        )
        self.recovery_cuts = self.counter(
            "penstock_log_recovery_cuts_total",
            "Logs that were cut at a start because of a torn or damaged batch.",
        )
        self.recovery_bytes = self.counter(
            "penstock_log_recovery_cut_bytes_total", "Bytes that such cuts removed."
        )
        self.recovery_records = self.counter(
            "penstock_log_recovery_cut_offsets_total", "Offsets that such cuts removed, if known."
        )
        self.logs_failed = self.counter(
            "kafka_log_logmanager_offline_total", "Logs that went offline because of the disk."
        )
        self.retention_segments = self.counters(
            "penstock_log_retention_segments_total", "Segments deleted, by reason.", "reason"
        )
        self.retention_bytes = self.counters(
            "penstock_log_retention_bytes_total", "Bytes deleted, by reason.", "reason"
        )
        self.cleaner_runs = self.counters(
            "kafka_log_logcleaner_runs_total", "Compactions of a log, by result.", "result"
        )
        self.cleaner_read_bytes = self.counter(
            "kafka_log_logcleaner_read_bytes_total", "Bytes that compaction has read."
        )
        self.cleaner_written_bytes = self.counter(
            "kafka_log_logcleaner_written_bytes_total", "Bytes that compaction has kept."
        )
        self.cleaner_seconds = self.histogram(
            "kafka_log_logcleaner_clean_seconds", "Time of one log's compaction, in its process."
        )

    def _make_coordinator_metrics(self) -> None:
        self.rebalances = self.counter(
            "kafka_coordinator_group_rebalances_total", "Rebalances that were completed."
        )
        self.members_expired = self.counter(
            "kafka_coordinator_group_members_expired_total",
            "Members removed because their session timed out.",
        )
        self.offset_commits = self.counter(
            "kafka_coordinator_group_offset_commits_total", "Offsets committed."
        )
        self.offsets_expired = self.counter(
            "kafka_coordinator_group_offset_expirations_total", "Committed offsets that expired."
        )
        self.transactions_ended = self.counters(
            "kafka_coordinator_transaction_ended_total",
            "Transactions by end: commit, abort, or timeout.",
            "result",
        )
        self.producers_fenced = self.counter(
            "kafka_coordinator_transaction_fenced_total", "Producers refused for their old epoch."
        )
        self.fetch_sessions_evicted = self.counter(
            "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
            "Fetch sessions evicted for others.",
        )

    def _make_security_metrics(self) -> None:
        self.authentications = self.counters(
            "kafka_server_socketservermetrics_authentication_total",
            "Authentications by listener, mechanism and result.",
            "listener",
            "mechanism",
            "result",
        )
        self.authorizations_denied = self.counters(
            "kafka_server_authorizer_denied_total",
            "Operations refused by the authorizer.",
            "operation",
            "resource",
        )
        self.certificates_reloaded = self.counters(
            "penstock_certificates_reloaded_total", "Certificate reloads by result.", "result"
        )

    # -- making ----------------------------------------------------------------------------------

    def counters(self, name: str, help: str, *labels: str) -> Family[Counter]:  # noqa: A002
        """A family of counters, registered."""
        family = Family(Counter, name, help, labels)
        self._families.append(family)
        return family

    def gauges(self, name: str, help: str, *labels: str) -> Family[Gauge]:  # noqa: A002
        """A family of gauges, registered."""
        family = Family(Gauge, name, help, labels)
        self._families.append(family)
        return family

    def histograms(self, name: str, help: str, *labels: str) -> Family[Histogram]:  # noqa: A002
        """A family of histograms over seconds, registered."""
        family = Family(Histogram, name, help, labels)
        self._families.append(family)
        return family

    def counter(self, name: str, help: str) -> Counter:  # noqa: A002
        """A counter without labels, registered."""
        return self.counters(name, help).labels()

    def gauge(self, name: str, help: str) -> Gauge:  # noqa: A002
        """A gauge without labels, registered."""
        return self.gauges(name, help).labels()

    def histogram(self, name: str, help: str) -> Histogram:  # noqa: A002
        """A histogram without labels, registered."""
        return self.histograms(name, help).labels()

    def collect_from(self, collector: Callable[[], Iterator[Block]]) -> None:
        """Have ``collector`` asked at every scrape for what is read from the broker's state."""
        self._collectors.append(collector)

    def topic(self, name: str) -> TopicMetrics:
        """The counters of a topic; beyond ``CHILDREN_MAX`` topics, those of all further ones."""
        found = self._topics.get(name)
        if found is None:
            if len(self._topics) >= CHILDREN_MAX:
                name = OTHER
            found = self._topics.setdefault(name, TopicMetrics())
        return found

    def remove_topic(self, name: str) -> None:
        """A topic is deleted: its counters are shown no more."""
        self._topics.pop(name, None)

    # -- reading ---------------------------------------------------------------------------------

    def blocks(self) -> Iterator[Block]:
        """Everything, as it is now."""
        for attribute, name, text in _TOPIC_BLOCKS:
            rows: list[Row] = [
                ("", (("topic", topic),), getattr(counters, attribute))
                for topic, counters in self._topics.items()
            ]
            full = f"kafka_server_brokertopicmetrics_{name}_total"
            yield Block(full, "counter", text, rows, ("topic",))
        for family in self._families:
            yield family.block()
        for collector in self._collectors:
            yield from collector()

    def render(self, lines_at_once: int = 500) -> Iterator[bytes]:
        """The exposition text, in pieces of about so many lines: each is made when it is asked
        for, so that a broker with ten thousand partitions can do other things in between."""
        lines: list[str] = []
        for block in self.blocks():
            lines.append(f"# HELP {block.name} {_escaped_help(block.help)}")
            lines.append(f"# TYPE {block.name} {block.kind}")
            for suffix, labels, value in block.rows:
                lines.append(f"{block.name}{suffix}{_labels(labels)} {_number(value)}")
                if len(lines) >= lines_at_once:
                    yield ("\n".join(lines) + "\n").encode()
                    lines.clear()
        if lines:
            yield ("\n".join(lines) + "\n").encode()


def _labels(pairs: LabelPairs) -> str:
    if not pairs:
        return ""
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in pairs]) + "}"


def _escaped(value: str) -> str:
    if value.isalnum():
        return value
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text.encode("utf-8", "replace").decode()


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if not isfinite(value):
        return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
