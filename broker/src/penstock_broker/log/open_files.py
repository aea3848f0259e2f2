"""A bound on the files that logs hold open, so that thousands of them need few descriptors.

A file that was closed is opened again when it is needed; a slice of it keeps it open. Files whose
bytes are on the disk are closed first, because a disk error is reported to those that have the
file open, and only on Linux to the one that opens it next. But being short of descriptors is worse.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from penstock_broker.log.files import Files, OsFiles
from penstock_broker.log.log import Log


class OpenFiles:
    """Closes files of logs in turn. Owned by the owner of the logs."""

    def __init__(self, files: Files) -> None:
        self.most = 1 << 30
        """About how many files may be open."""
        self._files = files
        self._next = 0

    def bound(self, logs: Iterable[Log]) -> None:
        """Keep to ``most``, in the calling thread; ``logs`` may change, it is looked at again."""
        files = self._files
        if isinstance(files, OsFiles):
            files.open_files_max = self.most
            files.on_many_open = lambda: self.release(logs, self.most - self.most // 4)
            files.owner = threading.get_ident()

    def release(self, logs: Iterable[Log], wanted: int) -> None:
        """Close files until no more than ``wanted`` are open."""
        files, candidates = self._files, list(logs)
        assert isinstance(files, OsFiles)
        start = self._next
        for only_synced in (True, False):
            for count in range(len(candidates)):
                _close_files(candidates[(start + count) % len(candidates)], only_synced)
                if files.open_files <= wanted:
                    self._next = start + count + 1
                    return


def _close_files(log: Log, only_synced: bool) -> None:
    segments = log.segments
    ends = [*(segment.base_offset for segment in segments[1:]), log.log_end_offset]
    for segment, end in zip(segments, ends, strict=True):
        if end <= log.recovery_point or not only_synced:
            segment.close_files()
