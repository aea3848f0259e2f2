"""The chain of windows in the archive.

Every place is written once. The newest of a numbered sequence is found by asking, never by
listing: places are filled in order, so a search for the first free one is exact whatever the
store's listings say.

Called twice, or from two processes at once: ``publish`` has one winner a place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache

from penstock_platform.archive import model as keys
from penstock_platform.archive.model import canonical
from penstock_platform.archive.numbered import NumberedObjects, first_free
from penstock_platform.archive.store import Archive
from penstock_platform.clock import from_iso, to_iso
from penstock_platform.connections import Connections
from penstock_platform.kafka.model import TopicRef
from penstock_platform.topics.model.cron import CronError, last_tick, opening_of
from penstock_platform.windows.model.incarnations import Incarnation
from penstock_platform.windows.model.position import windows_holding
from penstock_platform.windows.model.truncation import Cut, cuts_in
from penstock_platform.windows.model.window import ChainError, Window, check_link

WINDOWS_CACHED = 4096


class NewIncarnationError(ChainError):
    """The topic was recreated under its name; a new chain begins only on command."""


class LostWindowError(ChainError):
    """Objects of the chain were deleted from the archive; nothing may be frozen until they are
    back."""


class WindowStore:
    """The chains of all topics in one archive."""

    def __init__(self, archive: Archive, prefix: str = "") -> None:
        self._objects = NumberedObjects(archive, prefix)
        self._newest_seen: dict[TopicRef, int] = {}
        self._end_checked: set[TopicRef] = set()
        # Windows are immutable; what was read once stays true. Absent places are not remembered.
        self._window_at = lru_cache(maxsize=WINDOWS_CACHED)(self._read_window)

    @classmethod
    def of(cls, penstock: Connections) -> WindowStore:
        """The one of these connections."""
        return penstock.shared(cls, lambda: cls(penstock.archive))

    # --- the chain ----------------------------------------------------------------------------

    def get(self, ref: TopicRef, sequence: int) -> Window | None:
        try:
            return self._window_at(ref, sequence)
        except _AbsentError:
            return None

    def newest(self, ref: TopicRef) -> Window | None:
        """The end of the chain, or None before the first window. Raises ChainError when the chain
        had begun and its place 0 is gone."""
        free = first_free(lambda n: self.get(ref, n) is not None, self._newest_seen.get(ref, 0))
        if free == 0:
            # Looked for again, since another freezer may just have begun the chain.
            begun = self._begun(ref)
            if self.get(ref, 0) is not None:
                return self.newest(ref)
            if begun:
                raise _lost_start(ref)
            return None
        self._newest_seen[ref] = free - 1
        return self.get(ref, free - 1)

    def find(self, ref: TopicRef, key: str) -> list[Window]:
        """All windows of a Dagster partition key, in chain order. Raises CronError for what is
        not a key."""
        wanted = opening_of(key)
        newest = self.newest(ref)
        low, high = 0, newest.sequence + 1 if newest else 0
        while low < high:
            middle = (low + high) // 2
            before = from_iso(self._present(ref, middle).opened_at) < wanted
            low, high = (middle + 1, high) if before else (low, middle)
        found: list[Window] = []
        while (window := self.get(ref, low + len(found))) is not None and window.window == key:
            found.append(window)
        return found

    def named(self, ref: TopicRef, name: str) -> list[Window]:
        """The windows that a person names: a key (all of its windows), ``<key>#<part>`` or a
        sequence. Raises CronError for what is none of these."""
        if name.isdecimal():
            window = self.get(ref, int(name))
            return [window] if window is not None else []
        key, mark, part = name.partition("#")
        if mark and not part.isdecimal():
            raise CronError(f"{name!r}: after # comes the number of a part, as in {key}#2")
        return [w for w in self.find(ref, key) if not mark or w.part == int(part)]

    def tick_of(self, window: Window) -> list[Window]:
        """All windows of the window's tick, in chain order; the last says ``more`` where the tick
        is not frozen to its end yet."""
        first = window.sequence - window.part + 1
        found = [self._present(window.ref, n) for n in range(first, window.sequence + 1)]
        while found[-1].more and (following := self.get(window.ref, found[-1].sequence + 1)):
            found.append(following)
        return found

    def all(self, ref: TopicRef, since: int = 0) -> Iterator[Window]:
        """The chain from a place on, each link checked. Raises ChainError where one is broken."""
        previous = self.get(ref, since - 1) if since else None
        sequence = since
        while True:
            while (window := self.get(ref, sequence)) is not None:
                check_link(previous, window)
                yield window
                previous, sequence = window, sequence + 1
            newest = self.newest(ref)
            if newest is None or newest.sequence < sequence:
                return
            self._present(ref, sequence)

    def recent(self, ref: TopicRef, most: int) -> list[Window]:
        """The last windows of the chain, oldest first."""
        newest = self.newest(ref)
        if newest is None:
            return []
        return list(self.all(ref, max(0, newest.sequence + 1 - most)))

    def publish(self, window: Window) -> bool:
        """Take the window's place in the chain; False when it is taken. Raises ChainError for a
        window that does not continue the one before."""
        before = self.get(window.ref, window.sequence - 1) if window.sequence else None
        if window.sequence and before is None:
            raise ChainError(f"window {window.window_id}: the place before it is empty")
        check_link(before, window)
        self._refuse_gap(window)
        key = keys.window_key(window.ref, window.sequence)
        published = self._objects.create(key, window.to_bytes())
        if published and window.sequence <= 1:  # at place 1 again: a crash may have come between
            self._mark_begun(window)
        return published

    def cuts(self, ref: TopicRef) -> list[Cut]:
        """The truncations that the chain records, oldest first."""
        found: list[Window] = []
        window = self.newest(ref)
        place = window.last_truncation if window is not None else None
        while place is not None:
            found.append(self._present(ref, place))
            before = self._present(ref, place - 1) if place else None
            place = before.last_truncation if before is not None else None
        return cuts_in(reversed(found))

    def holding(self, ref: TopicRef, partition: int, offset: int) -> list[Window]:
        """The windows that hold an offset, in chain order: none, one, or several where the log was
        cut and grew again. Reads about 4 log2(windows) objects."""
        newest = self.newest(ref)
        if newest is None:
            return []
        return windows_holding(
            lambda n: self._present(ref, n), newest, self.cuts(ref), partition, offset
        )

    # --- incarnations and starts --------------------------------------------------------------

    def incarnations(self, cluster_id: str, topic: str) -> list[str]:
        """The topic ids that this name has had chains for, oldest first."""
        return [entry.topic_id for entry in self.incarnation_entries(cluster_id, topic)]

    def incarnation_entries(self, cluster_id: str, topic: str) -> list[Incarnation]:
        """The incarnations of this name that have chains, oldest first."""
        found: list[Incarnation] = []
        while True:
            key = keys.incarnation_key(cluster_id, topic, len(found))
            if (data := self._objects.get(key)) is None:
                return found
            found.append(Incarnation.from_bytes(data, key))

    def begun_at(self, ref: TopicRef) -> datetime | None:
        """When the chain of a recreated topic began; None for a name's first incarnation."""
        entries = self.incarnation_entries(ref.cluster_id, ref.topic)
        later = (e.begun_at for e in entries if e.topic_id == ref.topic_id and not e.first)
        return next(later, None)

    def admit(
        self,
        ref: TopicRef,
        at: datetime,
        begin_new: bool = False,
        begin: Callable[[], Incarnation] | None = None,
    ) -> Incarnation:
        """Make sure that ``ref`` is the incarnation whose chain continues; returns it as recorded.

        The first incarnation is admitted by itself; ``begin`` decides where its chain begins and
        is called only when that is not recorded yet. The chain of a later one begins at offset 0
        of every partition, as the topic did. Raises NewIncarnationError when the topic was
        recreated since and ``begin_new`` is False.
        """
        while True:
            known = self.incarnation_entries(ref.cluster_id, ref.topic)
            if known and known[-1].topic_id == ref.topic_id:
                return known[-1]
            if known and not begin_new:
                raise NewIncarnationError(
                    f"topic {ref.topic} was recreated: its chain belongs to topic id "
                    f"{known[-1].topic_id}, the broker now has {ref.topic_id}. What the old one "
                    "held is not in the new log. To begin a new chain: penstock window begin "
                    f"{ref.topic}"
                )
            if known or begin is None:
                entry = Incarnation(ref.topic_id, at, first=not known)
            else:
                entry = begin()
            key = keys.incarnation_key(ref.cluster_id, ref.topic, len(known))
            if self._objects.create(key, entry.to_bytes()):
                return entry

    def partition_start(self, cluster: str, topic: str, cron: str, now: datetime) -> datetime:
        """When the first window of a topic opens: decided once, then read.

        The first call decides on the last tick of the cron at or before ``now``, so that the
        window under way is the first one. ``cluster`` is the cluster's name in the settings.
        """
        key = keys.start_key(cluster, topic)
        if (data := self._objects.get(key)) is None:
            opens = last_tick(cron, now)
            self._objects.create(key, canonical({"v": 1, "start": to_iso(opens)}))
            data = self._objects.get(key)
        if data is None:
            raise ChainError(f"{key} was written and cannot be read back")
        return from_iso(json.loads(data)["start"])

    def known_start(self, cluster: str, topic: str) -> datetime | None:
        """When the first window of a topic opens, or None before that was decided."""
        data = self._objects.get(keys.start_key(cluster, topic))
        return from_iso(json.loads(data)["start"]) if data is not None else None

    # --- inside -------------------------------------------------------------------------------

    def _number_of(self, ref: TopicRef) -> int | None:
        known = self.incarnations(ref.cluster_id, ref.topic)
        return known.index(ref.topic_id) if ref.topic_id in known else None

    def _mark_begun(self, window: Window) -> None:
        """Record beside the incarnation that its chain has a place 0: a chain that lost its
        beginning differs from one that never had a window."""
        ref = window.ref
        number = self._number_of(ref)
        if number is not None:
            entry = {"v": 1, "topic_id": ref.topic_id, "frozen_at": window.frozen_at}
            self._objects.create(
                keys.begun_key(ref.cluster_id, ref.topic, number), canonical(entry)
            )

    def _begun(self, ref: TopicRef) -> bool:
        """Whether the chain of this incarnation has had a place 0, as recorded beside it."""
        number = self._number_of(ref)
        if number is None:
            return False
        return self._objects.get(keys.begun_key(ref.cluster_id, ref.topic, number)) is not None

    def _refuse_gap(self, window: Window) -> None:
        """The end that was found by asking may be the edge of a gap. Places are filled in order,
        so an object beyond a free place means that this one was deleted."""
        ref = window.ref
        if ref in self._end_checked:
            return
        after = keys.window_key(ref, window.sequence - 1) if window.sequence else ""
        prefix = keys.windows_prefix(ref)
        key = self._objects.first_after(prefix, after)
        while key is not None and not keys.is_window_key(key):
            key = self._objects.first_after(prefix, key)
        own = keys.window_key(ref, window.sequence)
        if key is not None and key != own:
            raise LostWindowError(
                f"topic {ref.topic}: {own} is gone from the archive, and {key} is there. Nothing "
                "is frozen, for a second chain over the same offsets would land them again. "
                "Restore the objects between them (versions, a backup), and take the prefix out "
                "of the bucket's lifecycle rules: objects of the archive never expire"
            )
        self._end_checked.add(ref)

    def _read_window(self, ref: TopicRef, sequence: int) -> Window:
        data = self._objects.get(keys.window_key(ref, sequence))
        if data is None:
            raise _AbsentError
        return Window.from_bytes(data)

    def _present(self, ref: TopicRef, sequence: int) -> Window:
        window = self.get(ref, sequence)
        if window is None:
            raise LostWindowError(
                f"topic {ref.topic}: window {ref.topic_id}/{sequence} is missing inside its chain "
                f"({keys.window_key(ref, sequence)}); objects of the archive never expire"
            )
        return window


def window_uri(penstock: Connections, window: Window) -> str:
    """The key of the window object in the archive."""
    return f"{penstock.archive.uri}/{keys.window_key(window.ref, window.sequence)}"


def _lost_start(ref: TopicRef) -> LostWindowError:
    return LostWindowError(
        f"topic {ref.topic}: its chain of windows had begun, and {keys.window_key(ref, 0)} is gone "
        "from the archive. Nothing is frozen, for a second chain over the same offsets would land "
        "them again. Restore the object (a version, a backup), and take the prefix out of the "
        "bucket's lifecycle rules: objects of the archive never expire"
    )


class _AbsentError(LookupError):
    """No object under that key (not cached, unlike a value)."""
