"""Where machine-wide, re-creatable files live, and how files appear whole or not at all."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def cache_directory(env: Mapping[str, str] | None = None) -> Path:
    """The user's cache directory for Penstock (``PENSTOCK_CACHE``, else the XDG one)."""
    env = os.environ if env is None else env
    if chosen := env.get("PENSTOCK_CACHE"):
        return Path(chosen).absolute()
    base = env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or Path.home()) / ".cache"
    return Path(base) / "penstock"


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write and rename: readers and a second writer see the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock among processes; it falls with the process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
