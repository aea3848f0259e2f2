"""A log's leader epochs on the disk: ``leader-epoch-checkpoint`` (see ``leader_epochs.py``)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from penstock_broker.log.checkpoint import CheckpointDamagedError, read_lines, write_lines
from penstock_broker.log.files import Files
from penstock_broker.log.leader_epochs import LeaderEpochs
from penstock_broker.log.scan import BadBatchError
from penstock_broker.log.segment import Segment

_log = logging.getLogger(__name__)

EPOCHS_FILE = "leader-epoch-checkpoint"


def read_epochs(files: Files, directory: Path) -> LeaderEpochs | None:
    """The epochs as they were written down; recovery adds those of the batches that it reads.

    None where the file is damaged or missing: :func:`epochs_of` makes them again. OSError.
    """
    epochs = LeaderEpochs()
    try:
        for line in read_lines(files, directory / EPOCHS_FILE):
            epoch, start = line.split(" ")
            epochs.assign(int(epoch), int(start))
    except (CheckpointDamagedError, ValueError) as damage:
        _log.warning("%s: %s; reading the epochs from the batches", directory, damage)
        return None
    return epochs if epochs.entries() else None


def epochs_of(segments: Iterable[Segment]) -> LeaderEpochs:
    """The epochs that the batches say they were written under. OSError."""
    epochs = LeaderEpochs()
    for segment in segments:
        try:
            for batch in segment.batches():
                epochs.assign(batch.leader_epoch, batch.base_offset)
        except BadBatchError as bad:
            _log.error("%s is damaged: %s", segment.path, bad)
    return epochs


def write_epochs(
    files: Files, directory: Path, entries: Iterable[tuple[int, int]], *, sync: bool = True
) -> None:
    """Replace the file; with ``sync`` it is on the disk when this returns. OSError.

    An epoch begins without a sync, in the event loop, as with Kafka (KAFKA-15046): until the first
    flush of its records a power cut may damage the file, and it is made again from the batches.
    """
    lines = [f"{epoch} {start}" for epoch, start in entries]
    write_lines(files, directory / EPOCHS_FILE, lines, sync=sync)
