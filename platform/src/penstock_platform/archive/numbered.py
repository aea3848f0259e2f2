"""Numbered objects of the archive: places that are filled in order from 0, each once.

The newest of a numbered sequence is found by asking, never by listing: a search for the first free
place is exact whatever the store's listings say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock_platform.archive.store import Archive, ArchiveError

Key = Callable[[int], str]


class NumberedObjects:
    """Create-only objects under a prefix of one archive. Keys are given without the prefix."""

    def __init__(self, archive: Archive, prefix: str = "") -> None:
        self._archive = archive
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def create(self, key: str, data: bytes) -> bool:
        """Write an object; False when the key is taken."""
        return self._archive.create(self._prefix + key, data)

    def get(self, key: str) -> bytes | None:
        return self._archive.get(self._prefix + key)

    def present(self, key: str) -> bytes:
        """An object whose creation was refused because it is there."""
        data = self.get(key)
        if data is None:
            raise ArchiveError(f"{key} was refused as existing and cannot be read")
        return data

    def first_after(self, prefix: str, after: str) -> str | None:
        """The first key under ``prefix`` behind the key ``after`` (empty: the first of all)."""
        found = self._archive.first_after(
            self._prefix + prefix, self._prefix + after if after else ""
        )
        return found.removeprefix(self._prefix) if found is not None else None

    def all(self, key: Key) -> Iterator[bytes]:
        """Every object of the sequence, in the order of its writing."""
        number = 0
        while (data := self.get(key(number))) is not None:
            yield data
            number += 1

    def last(self, key: Key) -> bytes | None:
        """The newest object of the sequence."""
        free = first_free(lambda n: self.get(key(n)) is not None, 0)
        return self.get(key(free - 1)) if free else None

    def append(self, key: Key, data: bytes) -> int:
        """Write an object at the next free place, and return that."""
        number = first_free(lambda n: self.get(key(n)) is not None, 0)
        while not self.create(key(number), data):
            number += 1
        return number


def first_free(taken: Callable[[int], bool], hint: int) -> int:
    """The least number that is not taken, where places are taken in order from 0.

    Doubles its step from the hint (one that was taken once, or 0), then halves: about twice
    log2(n) questions, two when the hint is the last one taken.
    """
    if not taken(hint):
        if hint == 0:
            return 0
        return first_free(taken, 0)
    low, step = hint, 1
    while taken(low + step):
        low, step = low + step, step * 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if taken(middle) else (low, middle)
    return high
