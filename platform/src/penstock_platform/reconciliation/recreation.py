"""Reading what a deleted topic took with it (``model/recreation.py``): archive and producers'
events, never the topic itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_platform.kafka.model import TopicRef
from penstock_platform.reconciliation.evidence import EvidenceReader
from penstock_platform.reconciliation.model.claims import Producer, producers_of
from penstock_platform.reconciliation.model.recreation import LostTopic, lost_topic
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.topics.model.declaration import TopicSpec
from penstock_platform.windows.store import WindowStore

if TYPE_CHECKING:
    from penstock_platform.connections import Connections

# The newest windows of the old chain; older ones were landed long before.
WINDOWS_MAX = 1000
# A sensor asks every few seconds while the incident lasts; late claims may still come.
KEPT_SECONDS = 300.0
_known: dict[TopicRef, tuple[float, LostTopic | None]] = {}


def known_lost(penstock: Connections, ref: TopicRef, spec: TopicSpec | None) -> LostTopic | None:
    """``lost_with``, read again after ``KEPT_SECONDS``."""
    now = penstock.clock.monotonic()
    kept = _known.get(ref)
    if kept is None or not 0 <= now - kept[0] < KEPT_SECONDS:
        kept = _known[ref] = (now, lost_with(penstock, ref, spec))
    return kept[1]


def lost_with(penstock: Connections, ref: TopicRef, spec: TopicSpec | None) -> LostTopic | None:
    """What the topic of this id took with it; None when it never had a window.

    Without ``spec`` producers' events are not read. Raises ClusterError, ArchiveError, ChainError.
    """
    store, books = WindowStore.of(penstock), BookStore.of(penstock)
    windows = store.recent(ref, WINDOWS_MAX)
    if not windows:
        return None
    producers: dict[int, Producer] = {}
    if spec is not None:
        reader = EvidenceReader(penstock.kafka, store, books, penstock.clock, penstock.lake.values)
        events = reader.read(windows[-1], spec).events
        producers = producers_of(ref.topic, events, ref.topic_id)
    return lost_topic(((w, books.newest_book(ref, w.sequence)) for w in windows), producers)
