"""Where the rows of a window come from when it is landed again.

The log, while it has the range. What the log has deleted comes from exactly one snapshot of the
table that proves: its rows of the window have the content digest of one of the window's receipts.
The snapshot that the newest receipt names is tried first, then those of older receipts, then every
other one that is kept (a compaction may have moved the rows since). Rows that no receipt proves are
never taken for the records that were there: a row that was forged after its landing would come back
for good.

One choice, used by the landing, by the alert and by ``penstock window show``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from penstock_platform.ranges import OffsetRange
from penstock_platform.reconciliation.model.books import EquationResult, Finding, WindowState
from penstock_platform.reconciliation.model.receipts import Receipt

# What the log has deleted can be repaired from a window's receipted snapshot while that is kept.
REPAIR_HORIZON_DAYS = 90
# Snapshots whose rows are read for one choice; each costs a scan of the window.
SNAPSHOTS_TRIED_MAX = 20
# Keys of an equation result's detail: the source's kind, and its sentence.
SOURCE_KEY, SENTENCE_KEY = "rerun_from", "rerun_says"
# States of an equation that a landing may repair.
DAMAGE = frozenset(
    {WindowState.MISSING, WindowState.DUPLICATE, WindowState.MIXED, WindowState.CORRUPT}
)
# What no landing brings back, whatever it reads.
_BEYOND_HELP = frozenset({"beyond_log_end", "hole"})
# What only a snapshot brings back.
_BEYOND_THE_LOG = frozenset({"retained_away", "log_truncated"})
# The digest of a window's rows as of a snapshot; None where they cannot be read any more.
DigestOf = Callable[[int], str | None]


class SourceKind(StrEnum):
    """``LOG``: the log has every offset. ``SNAPSHOT``: a snapshot that proves has the rest.
    ``COMMIT``: the window has no receipt, and a landing that died before it wrote one did commit.
    ``NEVER``: the rest was never landed. ``NOTHING``: it was landed, and no snapshot proves."""

    LOG = "log"
    SNAPSHOT = "snapshot"
    COMMIT = "commit"
    NEVER = "never"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class KeptSnapshot:
    """A commit of the table that changed the window's rows and is still kept. ``attempt_id`` is
    empty where it was no landing: a person's DELETE, a compaction."""

    snapshot_id: int
    attempt_id: str = ""


@dataclass(frozen=True, slots=True)
class RerunSource:
    """The choice. ``gone``: the window's offsets that the log does not have. ``digest``: what the
    whole window must have after it was landed from here; empty where nothing says."""

    kind: SourceKind
    gone: tuple[OffsetRange, ...] = ()
    snapshot_id: int | None = None
    digest: str = ""
    landed_at: str = ""

    def __str__(self) -> str:
        if self.kind is SourceKind.LOG:
            return "a re-run reads the log, which has every offset of the window"
        if self.kind is SourceKind.SNAPSHOT:
            return (
                f"a re-run restores it from snapshot {self.snapshot_id} of the table, whose rows "
                f"have the digest of the receipt of {self.landed_at}"
            )
        if self.kind is SourceKind.COMMIT:
            return (
                f"a re-run restores it from snapshot {self.snapshot_id} of the table, the commit "
                "of a landing that ended before it wrote its receipt"
            )
        if self.kind is SourceKind.NEVER:
            return "the log deleted it before it was landed, so no command brings it back"
        return (
            "neither the log nor any snapshot of the table has it any more as it was proven, so "
            "no command brings it back"
        )


def choose_source(
    gone: Sequence[OffsetRange],
    receipts: Sequence[Receipt],
    snapshots: Sequence[KeptSnapshot],
    digest_of: DigestOf,
) -> RerunSource:
    """Where a landing of the window takes its rows from.

    ``receipts`` in the order of their writing, ``snapshots`` newest first. ``digest_of`` is asked
    at most ``SNAPSHOTS_TRIED_MAX`` times, and not at all while the log has everything.
    """
    if not gone:
        return RerunSource(SourceKind.LOG)
    proven = [r for r in reversed(receipts) if r.digest]
    if not receipts:
        commit = next((s for s in snapshots if s.attempt_id), None)
        if commit is None:
            return RerunSource(SourceKind.NEVER, tuple(gone))
        return RerunSource(SourceKind.COMMIT, tuple(gone), commit.snapshot_id)
    for snapshot_id in _in_order(proven, snapshots):
        digest = digest_of(snapshot_id)
        receipt = next((r for r in proven if r.digest == digest), None)
        if receipt is not None:
            return RerunSource(
                SourceKind.SNAPSHOT, tuple(gone), snapshot_id, receipt.digest, receipt.landed_at
            )
    return RerunSource(SourceKind.NOTHING, tuple(gone))


def with_source(result: EquationResult, source: RerunSource) -> EquationResult:
    """The result with a note of what a re-run would read; for alerts and ``window show``."""
    noted = {SOURCE_KEY: str(source.kind.value), SENTENCE_KEY: str(source)}
    return replace(result, detail={**result.detail, **noted})


def rerun_helps(result: EquationResult, findings: Sequence[Finding]) -> bool:
    """Whether landing again repairs anything of what was found.

    It brings no evidence. What the log has lost it brings back from a snapshot that proves; where
    nothing proves, it refuses to do anything.
    """
    kind = str(result.detail.get(SOURCE_KEY, ""))
    if kind == SourceKind.NOTHING:
        return False
    restored = kind in (SourceKind.SNAPSHOT, SourceKind.COMMIT)
    lost = _BEYOND_HELP if restored else _BEYOND_HELP | _BEYOND_THE_LOG
    return any(f.kind not in lost and f.state is not WindowState.UNAUDITED for f in findings)


def rerun_sentence(result: EquationResult) -> str:
    """What a re-run would read, or why there is no command; empty where it was not asked."""
    return str(result.detail.get(SENTENCE_KEY, ""))


def _in_order(receipts: Sequence[Receipt], snapshots: Sequence[KeptSnapshot]) -> Iterator[int]:
    """Snapshots to try: those that receipts name, newest receipt first, then the others."""
    kept = {s.snapshot_id for s in snapshots}
    named = [r.snapshot_id for r in receipts if r.snapshot_id in kept]
    order = dict.fromkeys([*named, *(s.snapshot_id for s in snapshots)])
    yield from list(order)[:SNAPSHOTS_TRIED_MAX]
