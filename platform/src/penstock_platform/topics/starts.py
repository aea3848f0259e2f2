"""Where a topic's partition definition begins: decided once, then never changed.

The start is never the time of loading. It is the archive's object where there is one
(``starts/<cluster>/<topic>.json``, create-only, written by ``WindowStore.partition_start`` before
the topic's first window is frozen). Until then it is the time at which this home was created,
written once by the first process that asks: a home is older than the first window it freezes, and a
definition of a year of minutes would cost Dagster 15 seconds to enumerate. What was read from the
archive is kept beside Dagster's own state, for it cannot change, and a run process should not have
to ask S3 before it can load its definitions.

Invariant: no window is frozen before the start, so every window's key is a partition key.
"""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from penstock_platform.archive.model import start_key
from penstock_platform.archive.store import Archive, ArchiveError, S3Archive
from penstock_platform.clock import from_iso, to_iso
from penstock_platform.settings import Settings
from penstock_platform.system_clock import SystemClock
from penstock_platform.topics.model.cron import last_tick
from penstock_platform.topics.model.declaration import TopicSpec

CREATION_FILE = "created"
REACHABLE_TIMEOUT_SECONDS = 0.5
# Definitions can be loaded where no home is (a test, an editor); nothing is frozen there.
WITHOUT_HOME = datetime(2026, 11, 1, tzinfo=UTC)


def partition_start(
    settings: Settings, spec: TopicSpec, archive: Archive | None = None
) -> datetime:
    """The start of the topic's windows; without ``archive``, the configured one if it answers."""
    kept = _kept_path(settings, spec.name)
    if kept.is_file():
        return _start_of(kept.read_bytes())
    if archive is None and reachable(settings.s3_endpoint):
        archive = S3Archive(settings)
    if archive is not None:
        try:
            data = archive.get(start_key(settings.cluster, spec.name))
        except ArchiveError:  # not up yet: the creation of the home does, and is archived later
            data = None
        if data is not None:
            _create(kept, data)
            return _start_of(data)
    created = creation(settings)
    return last_tick(spec.land.cron, created) if spec.land is not None else created


def creation(settings: Settings) -> datetime:
    """The minute in which this home was created, written once; without a home, a fixed day."""
    path = settings.dagster_home / CREATION_FILE
    if not path.is_file():
        if not settings.home.is_dir():
            return WITHOUT_HOME
        now = SystemClock().now().replace(second=0, microsecond=0)
        _create(path, (to_iso(now) + "\n").encode())
    return from_iso(path.read_text().strip())


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


def reachable(endpoint: str) -> bool:
    """Whether anything accepts a connection at an HTTP address."""
    parts = urlsplit(endpoint)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), REACHABLE_TIMEOUT_SECONDS):
            return True
    except OSError:
        return False
