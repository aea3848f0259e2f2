"""Where requests wait for data: keyed by what they wait for, with a deadline each.

Kafka's ``DelayedOperationPurgatory`` for a single event loop. An append calls
:meth:`DelayedOperations.advance` with its partition and size; every operation parked on that key
adds it up itself, so the cost of a wake does not depend on the number of partitions of a fetch.
Operations that have enough are completed *after* the current read event: a burst of small appends
wakes a consumer once, with all of them, and no operation is completed inside an append.

A fetch session, which never stops waiting for its partitions, *watches* keys instead.

An operation is completed at most once: by a key, by its deadline, or never (cancelled, because
its connection ended). Where all that wait name more than ``keys_max`` keys together, the next one
does not wait: it is completed after the current read event, with the records there are.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable

from penstock_broker.api.context import Delayed, Watcher
from penstock_broker.clock import Timer, Timers

_logger = logging.getLogger(__name__)


class _Parked:
    """An operation with the keys that it is filed under."""

    __slots__ = ("forced", "keys", "named", "operation", "ready", "timer")

    def __init__(self, operation: Delayed, keys: tuple[Hashable, ...]) -> None:
        self.operation = operation
        self.keys = keys
        self.named = 0  # keys, with those named twice: what the request holds
        self.ready = False
        self.forced = False  # to be completed whether or not it still waits
        self.timer: Timer | None = None


class _Watch:
    """A watcher of a key: never ready."""

    __slots__ = ("operation", "ready")

    def __init__(self, watcher: Watcher) -> None:
        self.operation = watcher
        self.ready = False


class DelayedOperations:
    """The purgatory. Owned by the event loop; not thread-safe."""

    def __init__(self, timers: Timers, keys_max: int = 1_000_000) -> None:
        self.named = 0
        """Keys that all operations name."""
        self._keys_max = keys_max
        self._timers = timers
        self._by_key: dict[Hashable, dict[int, _Parked | _Watch]] = {}
        self._parked: dict[int, _Parked] = {}
        self._ready: list[_Parked] = []

    def __len__(self) -> int:
        return len(self._parked)

    def kinds(self) -> list[str]:
        """One name for each request that waits: its class without the prefix, as ``Fetch``."""
        operations = (parked.operation for parked in self._parked.values())
        return [type(operation).__name__.removeprefix("Delayed") for operation in operations]

    def park(self, operation: Delayed, keys: Iterable[Hashable], deadline: float) -> None:
        """Keep ``operation`` until a key completes it or the clock reaches ``deadline``."""
        named = list(keys)
        if self.named + len(named) > self._keys_max:
            self._timers.call_soon(operation.complete)
            return
        parked = _Parked(operation, tuple(dict.fromkeys(named)))
        parked.named = len(named)
        self.named += parked.named
        self._parked[id(operation)] = parked
        for key in parked.keys:
            self._by_key.setdefault(key, {})[id(operation)] = parked
        parked.timer = self._timers.call_at(deadline, lambda: self._complete(parked))

    def watch(self, key: Hashable, watcher: Watcher) -> None:
        """Notify ``watcher`` of every advance of ``key`` from now on."""
        self._by_key.setdefault(key, {})[id(watcher)] = _Watch(watcher)

    def unwatch(self, key: Hashable, watcher: Watcher) -> None:
        """No longer."""
        waiting = self._by_key.get(key, {})
        waiting.pop(id(watcher), None)
        if not waiting:
            self._by_key.pop(key, None)

    def advance(self, key: Hashable, amount: int) -> None:
        """``amount`` more of ``key``: operations that now have enough are completed soon."""
        waiting = self._by_key.get(key)
        if waiting is None:
            return
        for parked in waiting.values():
            if not parked.ready and parked.operation.advanced(key, amount):
                self._make_ready(parked)  # type: ignore[arg-type]  # watchers say False

    def wake_soon(self, key: Hashable) -> None:
        """Complete everything that waits for ``key``, enough or not (deleted, moved)."""
        for parked in self._by_key.get(key, {}).values():
            if isinstance(parked, _Watch):
                parked.operation.advanced(key, 0)
                self.wake_soon(parked.operation.waiting_key)
                continue
            parked.forced = True
            if not parked.ready:
                self._make_ready(parked)

    def _make_ready(self, parked: _Parked) -> None:
        parked.ready = True
        if not self._ready:
            self._timers.call_soon(self._complete_ready)
        self._ready.append(parked)

    def cancel(self, operation: Delayed) -> None:
        """Remove an operation whose client is gone."""
        parked = self._parked.get(id(operation))
        if parked is not None:
            self._remove(parked)

    def complete_all(self) -> None:
        """Answer all requests with the records there are: the broker is stopping."""
        for parked in list(self._parked.values()):
            self._complete(parked)

    def _complete_ready(self) -> None:
        ready, self._ready = self._ready, []
        for parked in ready:
            if self._parked.get(id(parked.operation)) is not parked:
                continue
            try:
                if not parked.forced and parked.operation.still_waits():
                    parked.ready = False
                else:
                    self._complete(parked)
            except Exception:  # a bug, and no reason to leave the others without an answer
                _logger.exception("a request that waited could not be answered")
                self._remove(parked)

    def _complete(self, parked: _Parked) -> None:
        if self._remove(parked):
            parked.operation.complete()

    def _remove(self, parked: _Parked) -> bool:
        identity = id(parked.operation)
        if self._parked.get(identity) is not parked:
            return False
        del self._parked[identity]
        self.named -= parked.named
        for key in parked.keys:
            waiting = self._by_key[key]
            del waiting[identity]
            if not waiting:
                del self._by_key[key]
        if parked.timer is not None:
            parked.timer.cancel()
        return True
