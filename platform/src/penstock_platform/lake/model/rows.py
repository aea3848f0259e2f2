"""A table's rows by coordinates and content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock_platform.lake.model.digests import Digests
from penstock_platform.ranges import Offsets

NO_OFFSETS: Offsets = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows by coordinates and content, as parallel arrays in any order. ``digest`` is that of
    ``lake/model/digests.py``."""

    partition: NDArray[np.int32]
    offset: Offsets
    digest: Digests

    @classmethod
    def none(cls) -> Rows:
        return cls(np.empty(0, np.int32), NO_OFFSETS, np.empty(0, np.uint64))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        if not parts:
            return cls.none()
        return cls(
            np.concatenate([p.partition for p in parts]),
            np.concatenate([p.offset for p in parts]),
            np.concatenate([p.digest for p in parts]),
        )

    def offsets(self) -> dict[int, Offsets]:
        """Per partition, sorted, duplicates included."""
        return {
            int(p): np.sort(self.offset[self.partition == p]) for p in np.unique(self.partition)
        }
