"""The process that listens on a port, or holds a lock.

For messages to the person who starts a broker. Linux shows it under /proc, for processes of the
same user; elsewhere the answer is None, and the message names the command that shows it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_LISTENING = "0A"


def port_holder(port: int) -> str | None:
    """The process that listens on a TCP port, as ``pid 42 (java)``."""
    inodes = {
        fields[9]
        for fields in _socket_lines()
        if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port
    }
    names = {f"socket:[{inode}]" for inode in inodes}
    if names:
        for directory in _PROC.glob("[0-9]*/fd"):
            if any(name in names for name in _links(directory)):
                return _process(int(directory.parent.name))
    return None


def lock_holder(path: Path) -> str | None:
    """The process that holds a lock (flock) on a file."""
    try:
        wanted = path.stat().st_ino
        lines = (_PROC / "locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) > 5 and fields[5].rpartition(":")[2] == str(wanted):
            return _process(int(fields[4]))
    return None


def _socket_lines() -> Iterator[list[str]]:
    for name in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / name).read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        yield from (line.split() for line in lines[1:])


def _links(directory: Path) -> Iterator[str]:
    try:
        for entry in directory.iterdir():
            yield str(entry.readlink())
    except OSError:
        return  # another user's, or just ended


def _process(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"pid {pid}"
    return f"pid {pid} ({Path(os.fsdecode(words[0])).name})" if words[0] else f"pid {pid}"
