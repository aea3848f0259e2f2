"""An offset of each log, kept over restarts in a checkpoint.

A log that has not been opened, or cannot be, keeps the offset that was written of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from penstock_broker.log.checkpoint import OffsetCheckpoint
from penstock_broker.log.files import Files
from penstock_broker.log.keys import TopicPartition
from penstock_broker.log.log import Log
from penstock_broker.log.saving import Saver
from penstock_broker.steps import Work


class KeptOffsets:
    """One checkpoint. Owned by the event loop; what :meth:`job` gives runs in any thread."""

    def __init__(
        self, files: Files, path: Path, offset_of: Callable[[Log], int], *, zeros: bool
    ) -> None:
        """Without ``zeros`` an offset of 0 need not be written."""
        self._zeros = zeros
        self._checkpoint = OffsetCheckpoint(files, path)
        self._offset_of = offset_of
        self._name = str(path)
        self._known: dict[TopicPartition, int] = {}
        self._saver: Saver[Mapping[TopicPartition, int]] = Saver(
            self._checkpoint.write, {}, name=self._name
        )

    def load(self) -> None:
        """Read the file. CheckpointDamagedError: nothing is known. OSError."""
        self._known = self._checkpoint.read()
        self._saver = self._made_from(dict(self._known))

    def _made_from(
        self, saved: Mapping[TopicPartition, int]
    ) -> Saver[Mapping[TopicPartition, int]]:
        return Saver(self._checkpoint.write, saved, name=self._name)

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._known

    def get(self, key: TopicPartition) -> int:
        """The offset of a log; 0 where none is known."""
        return self._known.get(key, 0)

    def remove(self, key: TopicPartition) -> None:
        """The log is gone."""
        self._known.pop(key, None)

    def is_written(self, key: TopicPartition) -> bool:
        """Whether the file has an offset of a log, which may have been removed since."""
        return key in self._saver.saved

    def job(self, logs: Mapping[TopicPartition, Log]) -> Work:
        """What writes down the offsets of these logs, as they are now, and of others known."""
        self._known |= {key: self._offset_of(log) for key, log in logs.items()}
        offsets = {key: offset for key, offset in self._known.items() if offset or self._zeros}
        if offsets == self._saver.saved == self._saver.offered:
            return _nothing
        return partial(self._saver.save, self._saver.offer(offsets))


def _nothing() -> None:
    pass
