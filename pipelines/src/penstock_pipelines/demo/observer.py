"""What the demo sees of the platform: windows, their books, alerts. It reads, and asks nothing.

Every check, alert and re-run in the demo is the platform's own, or the user's own command.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_platform.alerts.channels import read_alerts
from penstock_platform.cli.project import Connections
from penstock_platform.cli.window_documents import summary
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.kafka.model import TopicRef
from penstock_platform.reconciliation.model.books import WindowState
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.windows.model.window import Window
from penstock_platform.windows.store import WindowStore

UNDECIDED = frozenset({WindowState.FROZEN, WindowState.LANDED, WindowState.PENDING})


@dataclass(frozen=True, slots=True)
class Seen:
    """A window and the line that ``penstock window list`` shows of it."""

    window: Window
    row: dict[str, Any]

    @property
    def state(self) -> WindowState:
        return WindowState(self.row["state"])

    @property
    def decided(self) -> bool:
        return self.state not in UNDECIDED


class Observer:
    """Looks at the windows that were frozen since the demo began, and at the alerts since then."""

    def __init__(self, penstock: Connections, topics: Sequence[str]) -> None:
        self._penstock = penstock
        self._topics = topics
        self._first: dict[str, int] = {}
        self._final: dict[tuple[str, int], Seen] = {}
        self._alerts_before = len(list(read_alerts(penstock.settings.alert_file)))

    def missing_topics(self) -> list[str]:
        """Declared topics that the cluster does not have yet."""
        try:
            present = set(self._penstock.kafka.topics())
        except ClusterError:
            return list(self._topics)
        return [topic for topic in self._topics if topic not in present]

    def begin(self) -> None:
        """Windows frozen from here on are the demo's; older ones are of a run before."""
        for topic in self._topics:
            newest = WindowStore.of(self._penstock).newest(self._ref(topic))
            self._first[topic] = newest.sequence + 1 if newest is not None else 0

    def windows(self, topic: str) -> list[Seen]:
        """The topic's windows since ``begin``, oldest first, each with its current state."""
        store = WindowStore.of(self._penstock)
        return [self._see(w) for w in store.all(self._ref(topic), self._first[topic])]

    def all_windows(self) -> list[Seen]:
        """Those of every topic; none before ``begin``."""
        return [seen for topic in self._first for seen in self.windows(topic)]

    def invalidate(self, window: Window) -> None:
        """Look at this window afresh: something is being done to it."""
        self._final.pop((window.topic, window.sequence), None)

    def invalidate_all(self) -> None:
        """Look at every window afresh: a decided one may have been swept since."""
        self._final.clear()

    def incarnations_unaudited(self, window: Window) -> set[str]:
        """Producers whose records in the window carry no claim."""
        book = BookStore.of(self._penstock).newest_book(window.ref, window.sequence)
        findings = [f for r in (book.equations if book else ()) for f in r.findings]
        return {str(f.incarnation) for f in findings if f.state is WindowState.UNAUDITED}

    def open_windows(self) -> list[str]:
        """The newest window of each topic, and all with records that are not decided or UNAUDITED:
        for the message of a demo that stops. Empty while the broker is away."""
        try:
            return [line for topic in self._first for line in self._open_windows(topic)]
        except ClusterError:
            return []

    def _open_windows(self, topic: str) -> Iterator[str]:
        windows = self.windows(topic)
        for seen in windows:
            is_open = not seen.decided or seen.state is WindowState.UNAUDITED
            if seen is windows[-1] or (seen.window.record_count and is_open):
                silent = ", ".join(sorted(self.incarnations_unaudited(seen.window)))
                unclaimed = f", no claims of {silent}" if silent else ""
                yield f"{topic} {seen.window.window}: {seen.state}{unclaimed}"

    def movement(self) -> tuple[tuple[str, ...], int]:
        """What changes while the platform works: states of windows with records, alerts."""
        try:
            states = [
                f"{s.window.name} {s.state}" for s in self.all_windows() if s.window.record_count
            ]
        except ClusterError:  # before the topics are there, or while the broker is away
            states = []
        return tuple(states), len(self.alerts())

    def alerts(self) -> list[dict[str, Any]]:
        """Alerts since the demo began, in order."""
        return list(read_alerts(self._penstock.settings.alert_file))[self._alerts_before :]

    def _ref(self, topic: str) -> TopicRef:
        return self._penstock.kafka.ref(topic)

    def _see(self, window: Window) -> Seen:
        place = (window.topic, window.sequence)
        if place in self._final:
            return self._final[place]
        seen = Seen(window, summary(self._penstock, window))
        if seen.decided:
            self._final[place] = seen
        return seen


def find_alert(
    alerts: Iterable[dict[str, Any]],
    action: str,
    window: Window,
    dedup_key: str = "",
    names: str = "",
) -> dict[str, Any] | None:
    """The newest alert with this action about the window, and with ``names`` in its details."""
    found = None
    for alert in alerts:
        details = alert["payload"]["custom_details"]
        same = alert["dedup_key"] == dedup_key if dedup_key else True
        if (
            alert["event_action"] == action
            and details.get("window_id") == window.window_id
            and same
            and (not names or details.get(names))
        ):
            found = alert
    return found


def coordinates(spans: Iterable[Sequence[int]]) -> set[tuple[int, int]]:
    """``[[partition, start, end], …]`` of an alert as single (partition, offset) pairs."""
    return {(p, offset) for p, start, end in spans for offset in range(start, end)}
