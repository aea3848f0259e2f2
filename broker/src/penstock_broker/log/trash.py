"""Files and directories on their way out.

A deleted segment is renamed to ``<name>.deleted`` and removed ``file.delete.delay.ms`` later; the
directory of a deleted topic is renamed by the log manager and removed as late. Both happen in the
background, because giving a gigabyte back takes a file system its time. Whoever still reads a file
holds it open and keeps the bytes. What a kill leaves behind is removed at the next start: segments
below the log's start, names that end with ``.deleted``, directories that end with ``-delete``.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from penstock_broker.clock import Clock
from penstock_broker.log.files import Files

_log = logging.getLogger(__name__)

DELETED_SUFFIX = ".deleted"


class Trash:
    """What is to be removed, and when. Owned by the event loop; jobs run elsewhere."""

    def __init__(self, files: Files, clock: Clock) -> None:
        self.run_in_background: Callable[[Callable[[], None]], object] = lambda job: job()
        self._files = files
        self._clock = clock
        self._waiting: list[tuple[int, int, tuple[Path, ...]]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Rename files that nobody will open any more, and remove them later.

        They must all lie in one directory. Those that are renamed already keep their name.
        """
        given = tuple(paths)
        renamed = tuple(_deleted_name(path) for path in given)
        files = self._files

        def rename() -> None:
            for path, name in zip(given, renamed, strict=True):
                if path != name and files.exists(path):
                    files.rename(path, name)
            if given and files.exists(given[0].parent):
                files.sync_directory(given[0].parent)

        self.run_in_background(lambda: _attempt(rename))
        self.put_renamed(renamed, delay_ms)

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
            self.run_in_background(lambda paths=paths: remove(self._files, paths))  # type: ignore[misc]
            count += 1
        return count


def remove(files: Files, paths: Iterable[Path]) -> None:
    """Remove files and trees; what cannot be removed is said, and left to the next start."""
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
