"""A data directory: whose it is, and what the names in it mean.

    DIR/.lock                             held by the process that serves the directory
    DIR/format                            format version of all this, 1
    DIR/<topic>-<partition>/              a log (log.py)
    DIR/….<uuid>-delete/                  a deleted log, to be removed
    DIR/….<uuid>-stray/                   a log that belongs to no topic; kept, never read

A log's ``partition.metadata`` says for which topic it was made, in Kafka's form: two lines,
``version: 0`` and ``topic_id: <uuid>``.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path

from penstock_broker.log.files import Files, Lock, LockTakenError, read_file, replace_file
from penstock_broker.log.keys import TopicPartition

FORMAT_VERSION = 1
_LOG_DIRECTORY = re.compile("(.+)-(0|[1-9][0-9]*)")


class DataDirectoryError(Exception):
    """The data directory cannot be served; ``str()`` says why, for the user."""


class DataDirectoryTakenError(DataDirectoryError):
    """Another process serves it."""


# -- taking it ---------------------------------------------------------------------------------


def take_directory(files: Files, directory: Path) -> Lock:
    """Lock a directory, and format it if it is empty. A directory of other software is left as
    it is. :class:`DataDirectoryError`, OSError."""
    files.make_directory(directory)
    _is_formatted(files, directory)
    try:
        lock = files.lock(directory / ".lock")
    except LockTakenError:
        raise DataDirectoryTakenError("it is in use by another broker process") from None
    try:
        if not _is_formatted(files, directory):
            replace_file(files, directory / "format", f"version: {FORMAT_VERSION}\n".encode())
    except (DataDirectoryError, OSError):
        lock.close()
        raise
    return lock


def _is_formatted(files: Files, directory: Path) -> bool:
    """Whether a directory is one of ours; False for an empty one. DataDirectoryError."""
    path = directory / "format"
    if files.exists(path):
        text = read_file(files, path).decode("ascii", "replace").strip()
        if text != f"version: {FORMAT_VERSION}":
            raise DataDirectoryError(
                f"{path} says {text!r}; this broker reads version {FORMAT_VERSION}"
            )
        return True
    ours = (".lock", "format.tmp")  # of a first start that came no further
    others = [name for name in files.names(directory) if name not in ours]
    if "meta.properties" in others:
        raise DataDirectoryError(
            "it belongs to Apache Kafka (meta.properties): use another one, and see "
            "docs/how-to/MOVE_TOPICS.md for how topics move"
        )
    if others:
        raise DataDirectoryError(
            f"it holds other files ({others[0]}, …) and no file called format, so it is not a "
            "data directory of this broker: use another one, or an empty one"
        )
    return False


# -- names -------------------------------------------------------------------------------------


def log_directory_name(topic: str, partition: int) -> str:
    """``flights-3``."""
    return f"{topic}-{partition}"


def parse_log_directory_name(name: str) -> TopicPartition | None:
    """The reverse; None for a name that is not one of a log."""
    found = _LOG_DIRECTORY.fullmatch(name)
    return (found[1], int(found[2])) if found else None


# -- which topic a log is of -------------------------------------------------------------------


def write_topic_id(files: Files, directory: Path, topic_id: uuid.UUID) -> None:
    """Say for which topic a log was made. OSError. Not synced: a topic of many partitions would
    take seconds."""
    data = f"version: 0\ntopic_id: {topic_id}\n".encode()
    file = files.open(directory / "partition.metadata", create=True)
    file.write(data, 0)
    file.truncate(len(data))


def read_topic_id(files: Files, directory: Path) -> uuid.UUID | None:
    """For which topic a log was made; None where that cannot be read."""
    try:
        text = read_file(files, directory / "partition.metadata").decode()
        return uuid.UUID(text.split("topic_id:")[1].strip())
    except (OSError, IndexError, ValueError):
        return None
