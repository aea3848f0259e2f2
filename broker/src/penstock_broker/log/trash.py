"""Deleted files and directories, until they are removed.

A deleted segment is renamed to ``<name>.deleted`` and removed ``file.delete.delay.ms`` later; the
directory of a deleted topic is renamed by the log manager and removed as late. Both happen in the
background, because giving a gigabyte back takes a file system its time. A reader that still
holds a file open keeps its bytes. What a kill leaves behind is removed at the next start: segments
below the log's start, names that end with ``.deleted``, directories that end with ``-delete``.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from penstock_broker.clock import Clock
from penstock_broker.log.files import Files

_log = logging.getLogger(__name__)

DELETED_SUFFIX = ".deleted"


class Trash:
    """What is to be removed, and when. Owned by the event loop; jobs run elsewhere, one at a time
    and in their order, so that a file is not removed before it has been renamed."""

    def __init__(self, files: Files, clock: Clock) -> None:
        self.run_in_background: Callable[[Callable[[], None]], object] = lambda job: job()
        self._files = files
        self._clock = clock
        self._waiting: list[tuple[int, int, tuple[Path, ...]]] = []
        self._number = 0
        self._lock = threading.Lock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._is_working = False
        self._renames: dict[object, Path] = {}  # jobs, and the directories that they rename in

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, paths: Sequence[Path], delay_ms: int) -> None:
        """Rename files that are not opened any more, and remove them later.

        They must all lie in one directory. Those that are renamed already keep their name.
        """
        if not paths:
            return
        directory, job = paths[0].parent, object()
        with self._lock:
            self._renames[job] = directory
        self._later(lambda: self._rename(job, directory, paths))
        self.put_renamed([_deleted_name(path) for path in paths], delay_ms)

    def _rename(self, job: object, directory: Path, paths: Sequence[Path]) -> None:
        try:
            for path in paths:
                with self._lock:
                    if job not in self._renames:
                        return
                    if self._files.exists(path):
                        self._files.rename(path, _deleted_name(path))
            if self._files.exists(directory):
                self._files.sync_directory(directory)
        finally:
            with self._lock:
                self._renames.pop(job, None)

    def give_up(self, directory: Path) -> None:
        """Touch no name in a directory any more: it is being deleted, and another one may get its
        name."""
        with self._lock:
            self._renames = {job: at for job, at in self._renames.items() if at != directory}

    def put_renamed(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Remove files, or trees, later."""
        self._number += 1
        entry = (self._clock.now_ms() + delay_ms, self._number, tuple(paths))
        heapq.heappush(self._waiting, entry)
        self.empty()

    def empty(self) -> int:
        """Remove, in the background, what has waited long enough; how many entries that were."""
        now_ms = self._clock.now_ms()
        count = 0
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, _, paths = heapq.heappop(self._waiting)
            self._later(lambda paths=paths: remove(self._files, paths))  # type: ignore[misc]
            count += 1
        return count

    def _later(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._jobs.append(job)
            if self._is_working:
                return
            self._is_working = True
        self.run_in_background(self._work)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._is_working = False
                    return
                job = self._jobs.popleft()
            _attempt(job)


def remove(files: Files, paths: Iterable[Path]) -> None:
    """Remove files and trees; what cannot be removed is logged, and left to the next start."""
    for path in paths:
        _attempt(lambda path=path: _remove_one(files, path))  # type: ignore[misc]


def _remove_one(files: Files, path: Path) -> None:
    if files.is_directory(path):
        files.remove_tree(path)
    else:
        files.remove(path)


def _attempt(job: Callable[[], None]) -> None:
    try:
        job()
    except OSError as error:
        _log.error("a deleted file remains until the next start: %s", error)


def _deleted_name(path: Path) -> Path:
    if path.name.endswith(DELETED_SUFFIX):
        return path
    return path.with_name(path.name + DELETED_SUFFIX)
