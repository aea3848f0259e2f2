"""Small files of numbers, replaced as a whole: Kafka's checkpoint format.

    line 1   format version, 0
    line 2   number of entries
    then     one entry a line, fields separated by a space

Entries of the two offset checkpoints of the data directory are ``topic partition offset``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock_broker.log.files import Files, read_file, replace_file
from penstock_broker.log.keys import TopicPartition

_VERSION = "0"


class CheckpointDamagedError(Exception):
    """The file is not a whole checkpoint."""


def write_lines(files: Files, path: Path, entries: Iterable[str], *, sync: bool = True) -> None:
    """Replace the checkpoint; after a crash there is the old one or the new one, or, without
    ``sync`` and after a power cut, one that is found to be damaged."""
    lines = list(entries)
    data = "\n".join((_VERSION, str(len(lines)), *lines, "")).encode()
    replace_file(files, path, data, sync=sync)


def read_lines(files: Files, path: Path) -> list[str]:
    """Its entries; none where there is no file. :class:`CheckpointDamagedError`."""
    try:
        text = read_file(files, path).decode("ascii", "replace")
    except FileNotFoundError:
        return []
    lines = text.splitlines()
    if (
        not text.endswith("\n")
        or len(lines) < 2
        or lines[0] != _VERSION
        or lines[1] != str(len(lines) - 2)
    ):
        raise CheckpointDamagedError(f"{path} is damaged")
    return lines[2:]


class OffsetCheckpoint:
    """An offset per partition."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file."""
        entries = (f"{topic} {index} {offset}" for (topic, index), offset in offsets.items())
        write_lines(self._files, self._path, entries)

    def read(self) -> dict[TopicPartition, int]:
        """The offsets; empty where there is no file. :class:`CheckpointDamagedError`."""
        offsets = {}
        for line in read_lines(self._files, self._path):
            try:
                topic, index, offset = line.split(" ")
                offsets[topic, int(index)] = int(offset)
            except ValueError:
                raise CheckpointDamagedError(f"{self._path} is damaged: {line!r}") from None
        return offsets
