"""An archive in memory, with the one guarantee of the real one."""

from __future__ import annotations

import threading


class MemoryArchive:
    """``archive.store.Archive`` in a dictionary: creates are atomic, also between threads."""

    uri = "memory:"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def create(self, key: str, data: bytes) -> bool:
        with self._lock:
            if key in self.objects:
                return False
            self.objects[key] = bytes(data)
            return True

    def get(self, key: str) -> bytes | None:
        return self.objects.get(key)

    def list(self, prefix: str) -> list[str]:
        with self._lock:
            return sorted(key for key in self.objects if key.startswith(prefix))

    def first_after(self, prefix: str, after: str) -> str | None:
        return next((key for key in self.list(prefix) if key > after), None)

    def ping(self) -> None:
        """It is there."""
