"""Syncing a log in another thread than the one that owns it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_broker.log.epoch_file import write_epochs
from penstock_broker.log.files import File

if TYPE_CHECKING:
    from penstock_broker.log.log import Log


@dataclass(frozen=True, slots=True)
class FlushJob:
    """Files to be synced, so that the log is on the disk below ``up_to_offset``."""

    log: Log
    up_to_offset: int
    files: tuple[File, ...]
    with_directory: bool = True
    """Whether the names in the log's directory have to be synced, too."""
    epochs: tuple[tuple[int, int], ...] | None = None
    """Leader epochs with their first offsets, where they have been written and not synced."""

    def run(self) -> None:
        """Sync the files; in any thread. Then give the job to :meth:`Log.flushed`. OSError."""
        for file in self.files:
            file.sync()
        place = self.log.place
        if self.with_directory:
            if not place.files.exists(place.directory):
                if self.log.failure is not None:
                    return  # deleted meanwhile
                raise FileNotFoundError(
                    errno.ENOENT, os.strerror(errno.ENOENT), str(place.directory)
                )
            place.files.sync_directory(place.directory)
        if self.epochs is not None and place.files.exists(place.directory):
            write_epochs(place.files, place.directory, self.epochs)
