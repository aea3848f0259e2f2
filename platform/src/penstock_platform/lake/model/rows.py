"""A table's rows by coordinates and content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock_platform.lake.model.digests import Digests
from penstock_platform.ranges import OffsetRange, Offsets, merge, ranges_of

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


def altered_rows(found: Rows, reference: Rows) -> tuple[OffsetRange, ...]:
    """Offsets that are in both and have a row in ``found`` that is not in ``reference``."""
    changed: list[OffsetRange] = []
    for p in np.unique(found.partition):
        mine, theirs = found.partition == p, reference.partition == p
        offsets, digests = found.offset[mine], found.digest[mine]
        order = np.lexsort((reference.digest[theirs], reference.offset[theirs]))
        known, good = reference.offset[theirs][order], reference.digest[theirs][order]
        if not known.size:
            continue
        first = np.searchsorted(known, offsets)
        shared = known[np.minimum(first, known.size - 1)] == offsets
        same = shared & (good[np.minimum(first, known.size - 1)] == digests)
        changed += ranges_of(int(p), offsets[shared & ~same])
    return merge(changed)
