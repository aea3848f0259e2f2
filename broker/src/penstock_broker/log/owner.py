"""What a log needs of its owner: the manager of the data directory, or none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock_broker.log.files import Files

if TYPE_CHECKING:
    from penstock_broker.log.log import Log


class LogOwner(Protocol):
    """The owner of a log."""

    def start_advanced(self) -> None:
        """The start has moved; it is written down when this returns. Nothing has been deleted
        yet. OSError."""
        ...

    def start_moved(self, log: Log) -> None:
        """The start has moved: consumers are to be notified."""
        ...

    def flush_due(self, log: Log) -> None:
        """``flush.messages`` asks for a sync, now or soon. KafkaError KAFKA_STORAGE_ERROR."""
        ...

    def failed(self, log: Log) -> None:
        """It has gone offline."""
        ...

    def discard(self, paths: Sequence[Path], delay_ms: int) -> None:
        """Remove files of one directory after so long; they are not opened again. OSError."""
        ...


class NoOwner:
    """For a log without a manager: everything is done here and now."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def start_advanced(self) -> None:
        pass

    def start_moved(self, log: Log) -> None:
        pass

    def flush_due(self, log: Log) -> None:
        log.flush()

    def failed(self, log: Log) -> None:
        pass

    def discard(self, paths: Sequence[Path], delay_ms: int) -> None:
        for path in paths:
            self._files.remove(path)
        if paths:
            self._files.sync_directory(paths[0].parent)
