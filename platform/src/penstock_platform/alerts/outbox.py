"""Undelivered alerts: one file for each incident and channel, delivered within a time budget.

::

    <home>/alerts/outbox/<channel>/<hash of the incident's key>.json

A file holds this channel's pending alerts for this incident, oldest first; one that was
delivered leaves it, and an empty file is removed. So alerts of an incident keep their order on each
channel, and no channel waits for another. Killed after a delivery and before the file was written,
it delivers again: same ``dedup_key``.

Channels that leave the machine are served by a thread each. A call waits for them as long as its
budget allows; one that hangs is left behind, its channel is tried again when it has ended (or after
``HUNG_SECONDS``, a few times), without delay for others. What failed is tried again after a pause
that doubles up to ``PAUSE_SECONDS_MAX``, without an end.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from penstock_platform.alerts.channels import Alert, AlertError, Alerts, Channel
from penstock_platform.clock import Clock, from_iso, to_iso

LOGGER = logging.getLogger("penstock.alerts")
PENDING_VERSION = 1
PAUSE_SECONDS = 10.0
PAUSE_SECONDS_MAX = 900.0
HUNG_SECONDS = 120.0
HUNG_THREADS_MAX = 3
FAILURES_IN_A_ROW_MAX = 3
# Of one incident and channel; of one channel. The oldest are dropped, with an error in the log.
ALERTS_MAX = 20
OBJECTS_MAX = 2000

# Threads of this process by channel directory: the thread and when it began.
_threads: dict[str, list[tuple[threading.Thread, float]]] = {}
_threads_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Pending:
    """The pending alerts of one channel for one incident. ``since``: when the oldest was added."""

    channel: str
    dedup_key: str
    since: str
    alerts: tuple[dict[str, Any], ...]
    attempts: int = 0
    next_at: str = ""
    error: str = ""
    v: int = PENDING_VERSION

    def due(self, now: datetime) -> bool:
        return not self.next_at or from_iso(self.next_at) <= now


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of ``deliver``: alerts delivered by it, and objects still pending."""

    delivered: int
    pending: tuple[Pending, ...]


class Outbox:
    """The outbox under one directory, of one process at a time."""

    def __init__(self, directory: Path, alerts: Alerts, clock: Clock) -> None:
        self._directory = directory / "outbox"
        self._alerts = alerts
        self._clock = clock
        self._delivered = 0

    def add(self, alerts: Sequence[Alert]) -> None:
        """Owe these to every channel, in their order. Adding the same alert twice in a row is
        putting it once. Raises OSError."""
        for name in self._alerts.names if alerts else ():
            folder = self._folder(name)
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder):
                for alert in alerts:
                    self._append(folder, name, dict(alert))
                self._drop_oldest(folder)

    def deliver(self, budget_seconds: float) -> Delivery:
        """Deliver what is due and return when that is done or the budget is used up."""
        deadline = time.monotonic() + budget_seconds
        self._delivered = 0
        self._remove_other_channels()
        started = []
        for name, channel in self._alerts.channels.items():
            if not any(pending.due(self._clock.now()) for pending in self._of(name)):
                continue
            if channel.local:
                self._serve(channel, deadline)
            elif (thread := self._start(channel, deadline)) is not None:
                started.append(thread)
        for thread in started:
            thread.join(max(0.0, deadline - time.monotonic()))
        return Delivery(self._delivered, tuple(self.pending()))

    def pending(self) -> Iterator[Pending]:
        """Everything that is not delivered."""
        for name in self._alerts.names:
            yield from self._of(name)

    # --- one channel --------------------------------------------------------------------------

    def _start(self, channel: Channel, deadline: float) -> threading.Thread | None:
        """A thread for the channel, unless one still waits for its answer."""
        key = str(self._folder(channel.name))
        with _threads_lock:
            alive = [(t, since) for t, since in _threads.get(key, ()) if t.is_alive()]
            hung = [t for t, since in alive if time.monotonic() - since > HUNG_SECONDS]
            if len(hung) < len(alive) or len(hung) >= HUNG_THREADS_MAX:
                _threads[key] = alive
                LOGGER.warning("%s has not answered yet; its alerts wait", channel.name)
                return None
            thread = threading.Thread(target=self._serve, args=(channel, deadline), daemon=True)
            _threads[key] = [*alive, (thread, time.monotonic())]
            thread.start()
            return thread

    def _serve(self, channel: Channel, deadline: float) -> None:
        """Deliver what is due, what failed least first; another one only before the deadline."""
        failures = 0
        due = [pending for pending in self._of(channel.name) if pending.due(self._clock.now())]
        for pending in sorted(due, key=lambda o: (o.attempts, o.since)):
            if failures >= FAILURES_IN_A_ROW_MAX:
                return
            for _ in range(ALERTS_MAX):
                if time.monotonic() >= deadline:
                    return
                left, failed = self._deliver_first(channel, pending.dedup_key)
                failures = failures + 1 if failed else 0
                if failed or not left:
                    break

    def _deliver_first(self, channel: Channel, dedup_key: str) -> tuple[bool, bool]:
        """Deliver an incident's oldest alert; whether there are more, and whether it failed."""
        folder = self._folder(channel.name)
        path = self._path(folder, dedup_key)
        pending = _read(path)
        if pending is None or not pending.alerts:
            return False, False
        error = ""
        try:
            channel.deliver(pending.alerts[0])
        except AlertError as refusal:
            error = str(refusal)
            LOGGER.warning("alert %s not delivered by %s", dedup_key, error)
        except Exception as fault:  # noqa: BLE001 - a library's defect must not end the others
            error = f"{channel.name}: {type(fault).__name__}"
            LOGGER.warning("alert %s not delivered by %s", dedup_key, error)
        with _locked(folder):
            return self._record(path, pending.alerts[0], error), bool(error)

    def _record(self, path: Path, sent: Alert, error: str) -> bool:
        """Record the outcome; whether more is pending. Alerts added meanwhile are kept."""
        pending = _read(path)
        if pending is None:
            return False
        if error:
            pause = min(PAUSE_SECONDS * 2**pending.attempts, PAUSE_SECONDS_MAX)
            later = to_iso(self._clock.now() + timedelta(seconds=pause))
            attempts = min(pending.attempts + 1, 30)
            _write(path, replace(pending, attempts=attempts, next_at=later, error=error))
            return True
        self._delivered += 1
        left = pending.alerts[1:] if pending.alerts[0] == sent else pending.alerts
        if left:
            _write(path, replace(pending, alerts=left, attempts=0, next_at="", error=""))
        else:
            path.unlink(missing_ok=True)
        return bool(left)

    # --- files --------------------------------------------------------------------------------

    def _append(self, folder: Path, channel: str, alert: dict[str, Any]) -> None:
        key = str(alert.get("dedup_key", ""))
        path = self._path(folder, key)
        known = _read(path)
        if known is None:
            _write(path, Pending(channel, key, to_iso(self._clock.now()), (alert,)))
            return
        kept = list(known.alerts)
        if kept and kept[-1].get("event_action") == alert.get("event_action"):
            kept.pop()  # the later trigger says all that the one before it said
        _write(path, replace(known, alerts=(*kept, alert)[-ALERTS_MAX:]))

    def _drop_oldest(self, folder: Path) -> None:
        files = sorted(folder.glob("*.json"), key=lambda f: f.stat().st_mtime)
        for path in files[: max(0, len(files) - OBJECTS_MAX)]:
            pending = _read(path)
            what = pending.dedup_key if pending else path.name
            LOGGER.error("more than %d incidents are pending; dropped %s", OBJECTS_MAX, what)
            path.unlink(missing_ok=True)

    def _remove_other_channels(self) -> None:
        """Drop the pending alerts of channels that are no longer configured."""
        if not self._directory.is_dir():
            return
        known = {self._folder(name).name for name in self._alerts.names}
        for folder in self._directory.iterdir():
            if folder.is_dir() and folder.name not in known:
                for path in folder.iterdir():
                    path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def _of(self, channel: str) -> list[Pending]:
        folder = self._folder(channel)
        found = [_read(path) for path in sorted(folder.glob("*.json"))] if folder.is_dir() else []
        return [pending for pending in found if pending is not None and pending.alerts]

    def _folder(self, channel: str) -> Path:
        return self._directory / re.sub(r"[^A-Za-z0-9.]+", "-", channel).strip("-.")

    @staticmethod
    def _path(folder: Path, dedup_key: str) -> Path:
        return folder / f"{hashlib.sha256(dedup_key.encode()).hexdigest()[:32]}.json"


def _read(path: Path) -> Pending | None:
    """What a file holds; None for one that is gone, or that cannot be read."""
    try:
        raw = json.loads(path.read_bytes())
        return (
            Pending(**{**raw, "alerts": tuple(raw["alerts"])})
            if raw["v"] == PENDING_VERSION
            else None
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, pending: Pending) -> None:
    write_whole(path, json.dumps(asdict(pending)).encode())


def write_whole(path: Path, data: bytes) -> None:
    """Write and rename: a reader sees the old file or the new one, a kill leaves one of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Among threads and processes; held only while files are written."""
    with (folder / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
