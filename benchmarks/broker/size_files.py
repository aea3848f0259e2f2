"""The disk under a broker's data directory: what of it is in the page cache."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from penstock_broker.log.files import OsFiles

Facts = dict[str, float | str | None]
"""What was measured, by what it is."""

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
PROBE_BYTES = 1 << 20


def files_of(data: Path) -> Iterator[Path]:
    return (path for path in data.rglob("*") if path.is_file())


def drop_files(paths: Iterable[Path]) -> None:
    """Sync these files, and drop them from the page cache; any user may. Files that have gone
    meanwhile are passed over."""
    for path in paths:
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def drop_all(data: Path) -> str:
    """As on a machine that has just read nothing: drop the page cache, names and inodes too, where
    that is allowed; else these files. How that was done."""
    os.sync()
    try:
        DROP_CACHES.write_text("3\n")
    except OSError:
        drop_files(files_of(data))
        return "posix_fadvise of its files (dropping all caches is for root)"
    return f"3 to {DROP_CACHES}"


def cached_share(data: Path) -> float:
    """How much of the logs is in memory: one page of each MiB is looked at."""
    files, seen, cached = OsFiles(), 0, 0
    for path in data.rglob("*.log"):
        if not path.is_file():
            continue
        file = files.open(path)
        for position in range(0, file.size(), PROBE_BYTES):
            seen += 1
            cached += file.is_cached(position, 1)
    return cached / seen if seen else 0.0


def read_of(process: psutil.Process) -> tuple[int, int]:
    """Bytes that a process has read: asked of the system, and fetched from a disk for it."""
    counters = process.io_counters()
    return counters.read_chars, counters.read_bytes
