"""Syncing a log in another thread than the one that owns it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_broker.log.epoch_file import EPOCHS_FILE
from penstock_broker.log.files import File
from penstock_broker.log.segment_checkpoint import CheckpointWrite

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
    with_epochs: bool = False
    """Whether the leader epochs have been written and not synced."""
    changes: tuple[int, int] = (0, 0)
    """How often both had changed when the job was made."""
    checkpoint: CheckpointWrite | None = None
    """What is written when all of that is on the disk."""

    def run(self) -> None:
        """Sync the files; in any thread. Then give the job to :meth:`Log.flushed`. OSError.

        The owner continues meanwhile: it may begin an epoch, or delete the log and make another one
        whose directory has the same name. So names are only ever opened to be synced here, which
        does another log no harm, and the checkpoint is written to a file that the owner has opened.
        """
        for file in self.files:
            file.sync()
        self._sync_names()
        if self.checkpoint is not None:
            self.checkpoint.run()

    def _sync_names(self) -> None:
        if not (self.with_directory or self.with_epochs):
            return
        place = self.log.place
        if not place.files.exists(place.directory):
            if self.log.failure is not None:
                return  # deleted meanwhile
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(place.directory))
        if self.with_epochs:
            place.files.open(place.directory / EPOCHS_FILE).sync()
        place.files.sync_directory(place.directory)
