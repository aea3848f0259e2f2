"""Where a topic's partition definition begins: decided once, then never changed.

Loading definitions asks no service and writes no file, and the start is never the time of loading.
It is what this home has recorded, in this order:

- the archive's own object (``starts/<cluster>/<topic>.json``, create-only, written by
  ``WindowStore.partition_start`` before the topic's first window is frozen): the window sensor
  records it here when it first looks, and `penstock up` those of an archive that is the user's own;
- the time at which this home was created, which `penstock up` records: a home is older than the
  first window it freezes, and a definition of a year of minutes would cost Dagster 15 seconds to
  enumerate;
- a fixed day, where nothing is recorded yet (a test, an editor, a project that was just deployed).

Invariant: no window is frozen before the start, so every window's key is a partition key.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from penstock_platform.archive.model import start_key
from penstock_platform.archive.store import Archive
from penstock_platform.clock import from_iso, to_iso
from penstock_platform.settings import Settings
from penstock_platform.system_clock import SystemClock
from penstock_platform.topics.model.cron import last_tick
from penstock_platform.topics.model.declaration import TopicSpec

CREATION_FILE = "created"
# Older than every window of a home that has recorded nothing.
UNRECORDED = datetime(2026, 11, 1, tzinfo=UTC)


def partition_start(settings: Settings, spec: TopicSpec) -> datetime:
    """The start of the topic's windows, by what the home has recorded."""
    kept = _kept_path(settings, spec.name)
    if kept.is_file():
        return _start_of(kept.read_bytes())
    created = creation(settings)
    return last_tick(spec.land.cron, created) if spec.land is not None else created


def creation(settings: Settings) -> datetime:
    """The minute in which this home was created; where that is not recorded, a fixed day."""
    path = settings.dagster_home / CREATION_FILE
    return from_iso(path.read_text().strip()) if path.is_file() else UNRECORDED


def record_creation(settings: Settings) -> None:
    """Record that this home is created now, unless it was before."""
    path = settings.dagster_home / CREATION_FILE
    if not path.is_file():
        now = SystemClock().now().replace(second=0, microsecond=0)
        _create(path, (to_iso(now) + "\n").encode())


def record_start(settings: Settings, topic: str, start: datetime) -> None:
    """Record the archive's start of a topic, which never changes, for the next loading."""
    kept = _kept_path(settings, topic)
    if not kept.is_file():
        _create(kept, json.dumps({"v": 1, "start": to_iso(start)}).encode())


def record_starts(settings: Settings, archive: Archive) -> None:
    """Record all starts that the archive has of this cluster. Raises ArchiveError."""
    ending = ".json"
    folder = start_key(settings.cluster, "").removesuffix(ending)
    for key in archive.list(folder):
        topic = key.removeprefix(folder).removesuffix(ending)
        kept = _kept_path(settings, topic)
        if not kept.is_file() and (data := archive.get(key)) is not None:
            _create(kept, data)


def _start_of(data: bytes) -> datetime:
    return from_iso(str(json.loads(data)["start"])).astimezone(UTC)


def _kept_path(settings: Settings, topic: str) -> Path:
    return settings.dagster_home / "starts" / settings.cluster / f"{topic}.json"


def _create(path: Path, data: bytes) -> None:
    """Whole or not at all, and never over another's: a link from a private file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    private = path.with_name(f".{path.name}.{os.getpid()}")
    private.write_bytes(data)
    try:
        os.link(private, path)
    except FileExistsError:
        pass
    finally:
        private.unlink()
