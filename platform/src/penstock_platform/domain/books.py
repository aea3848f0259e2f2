"""The vocabulary of the books: equations, tiers, states, findings, and the book itself.

A book is what was found out about one window at one moment. Format v1 is canonical JSON; a later
book of the window supersedes an earlier one, and none is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from penstock_platform.domain.ranges import OffsetRange, covers
from penstock_platform.domain.windows import TopicRef, Window

BOOK_VERSION = 1


class BookFormatError(ValueError):
    """A book or acceptance that cannot be read: says which key and why."""


class WindowState(StrEnum):
    """Where a window stands. The order of severity is that of ``SEVERITY_ORDER``."""

    FROZEN = "FROZEN"
    LANDED = "LANDED"
    BALANCED = "BALANCED"
    PENDING = "PENDING"
    MISSING = "MISSING"
    DUPLICATE = "DUPLICATE"
    MIXED = "MIXED"
    CORRUPT = "CORRUPT"
    UNAUDITED = "UNAUDITED"
    UNPROVEN = "UNPROVEN"
    ACCEPTED = "ACCEPTED"
    RETIRED = "RETIRED"


# The worst first. A window is in the worst state of its equations.
SEVERITY_ORDER = (
    WindowState.MISSING,
    WindowState.MIXED,
    WindowState.CORRUPT,
    WindowState.DUPLICATE,
    WindowState.UNPROVEN,
    WindowState.PENDING,
    WindowState.UNAUDITED,
    WindowState.FROZEN,
    WindowState.LANDED,
    WindowState.ACCEPTED,
    WindowState.BALANCED,
    WindowState.RETIRED,
)


class Equation(StrEnum):
    """The three equations; the values are the asset checks' names."""

    STORED_EQUALS_LANDED = "stored_equals_landed"
    PRODUCED_EQUALS_STORED = "produced_equals_stored"
    PARSED_PLUS_QUARANTINED_EQUALS_LANDED = "parsed_plus_quarantined_equals_landed"


# Kinds of findings and the state each puts its equation in; None only informs.
FINDING_STATES: dict[str, WindowState | None] = {
    "missing": WindowState.MISSING,  # expected, and not there
    "beyond_log_end": WindowState.MISSING,  # acknowledged, and past the end of the log
    "retained_away": WindowState.MISSING,  # gone from the log before it was landed
    "log_truncated": WindowState.MISSING,  # frozen once, and the log has since become shorter
    "duplicate": WindowState.DUPLICATE,  # there more than once
    "outside": WindowState.DUPLICATE,  # there, and no part of the window
    "corrupt": WindowState.CORRUPT,  # there, with another digest than was acknowledged
    "hole": WindowState.UNPROVEN,  # not there, and compaction may be why
    "unlanded": WindowState.UNPROVEN,  # not in the lake, so not compared with the claims
    "pending": WindowState.PENDING,  # stored, and the producer's evidence is still due
    "unclaimed": WindowState.UNAUDITED,  # stored, and no evidence came within the grace
    "incarnation_silent": WindowState.UNAUDITED,  # the same; its producer died without a word
    "unstamped": WindowState.UNAUDITED,  # stored by a client that is not audited
    "lost_event": WindowState.UNAUDITED,  # an event's number is missing, and records with it
    "unacknowledged": None,  # stored, though its producer was never told so
    "client_failure": None,  # given up by the client itself: its loss, not the broker's
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not balance: a kind, exact offsets, and whose records they are.

    ``kind`` is a key of ``FINDING_STATES``. ``incarnation`` is the producer instance where it is
    known, as decimal text. ``records`` counts what has no offsets (client failures, lost events).
    """

    kind: str
    ranges: tuple[OffsetRange, ...]
    incarnation: str | None = None
    detail: str = ""
    records: int = 0

    @property
    def count(self) -> int:
        return sum(len(r) for r in self.ranges) or self.records

    @property
    def state(self) -> WindowState | None:
        return FINDING_STATES[self.kind]


@dataclass(frozen=True, slots=True)
class EquationResult:
    """Outcome of one equation for one window; ``expected`` and ``found`` count records."""

    equation: Equation
    state: WindowState
    expected: int
    found: int
    findings: tuple[Finding, ...] = ()
    detail: dict[str, int | float | str] = field(default_factory=dict)

    @property
    def balanced(self) -> bool:
        return self.state is WindowState.BALANCED


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A person's word that these findings of a window are known and lived with.

    It covers what was found then and nothing that is found later.
    """

    window_id: str
    by: str
    reason: str
    accepted_at: str
    findings: tuple[Finding, ...]
    v: int = BOOK_VERSION

    def covers(self, finding: Finding) -> bool:
        same = [f for f in self.findings if (f.kind, f.incarnation) == _identity(finding)]
        if not finding.ranges:
            return any(f.records >= finding.records for f in same)
        return covers([r for f in same for r in f.ranges], finding.ranges)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Acceptance:
        """Raises BookFormatError for anything but a whole v1."""
        try:
            raw = json.loads(data)
            return cls(findings=_findings(raw.pop("findings")), **raw)
        except (KeyError, TypeError, ValueError) as error:
            raise BookFormatError(f"not an acceptance: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Book:
    """Book object v1: one reconciliation of one window.

    ``tiers`` counts records per tier (produced, stored, landed, parsed, quarantined), as far as
    they were counted. ``snapshots`` names the table snapshots that were looked at. ``evidence``
    says what was read to judge ``produced``. Times are ISO 8601 in UTC with a final ``Z``.
    """

    cluster_id: str
    topic: str
    topic_id: str
    sequence: int
    window: str
    window_sha256: str
    made_at: str
    state: WindowState
    tiers: dict[str, int]
    equations: tuple[EquationResult, ...]
    code_version: str
    snapshots: dict[str, int] = field(default_factory=dict)
    evidence: dict[str, int | str] = field(default_factory=dict)
    accepted: dict[str, str] | None = None
    v: int = BOOK_VERSION

    @classmethod
    def of(
        cls,
        window: Window,
        equations: Sequence[EquationResult],
        *,
        made_at: str,
        code_version: str,
        tiers: Mapping[str, int] | None = None,
        snapshots: Mapping[str, int] | None = None,
        evidence: Mapping[str, int | str] | None = None,
        acceptances: Sequence[Acceptance] = (),
        earlier: Book | None = None,
    ) -> Book:
        """The book of these results; equations not judged now are taken over from ``earlier``.

        Only results about this very window object are taken over.
        """
        results = {r.equation: r for r in equations}
        old = earlier if earlier is not None and earlier.window_sha256 == window.sha256 else None
        merged = {**({r.equation: r for r in old.equations} if old else {}), **results}
        state = overall_state(merged.values(), acceptances)
        by = next((a for a in reversed(acceptances)), None)
        return cls(
            cluster_id=window.cluster_id,
            topic=window.topic,
            topic_id=window.topic_id,
            sequence=window.sequence,
            window=window.window,
            window_sha256=window.sha256,
            made_at=made_at,
            state=state,
            tiers={**(old.tiers if old else {}), **tiers_of(results.values()), **(tiers or {})},
            equations=tuple(merged[e] for e in Equation if e in merged),
            code_version=code_version,
            snapshots={**(old.snapshots if old else {}), **(snapshots or {})},
            evidence={**(old.evidence if old else {}), **(evidence or {})},
            accepted={"by": by.by, "reason": by.reason, "accepted_at": by.accepted_at}
            if by and state is WindowState.ACCEPTED
            else None,
        )

    @property
    def ref(self) -> TopicRef:
        return TopicRef(self.cluster_id, self.topic, self.topic_id)

    @property
    def window_id(self) -> str:
        return f"{self.topic_id}/{self.sequence}"

    def result(self, equation: Equation) -> EquationResult | None:
        return next((r for r in self.equations if r.equation is equation), None)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(f for r in self.equations for f in r.findings)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Book:
        """Read a book; raises BookFormatError for anything but a whole v1."""
        try:
            raw = json.loads(data)
            if raw["v"] != BOOK_VERSION:
                raise BookFormatError(f"book version {raw['v']}: this code reads 1")
            equations = tuple(
                EquationResult(
                    equation=Equation(r.pop("equation")),
                    state=WindowState(r.pop("state")),
                    findings=_findings(r.pop("findings")),
                    **r,
                )
                for r in raw.pop("equations")
            )
            return cls(state=WindowState(raw.pop("state")), equations=equations, **raw)
        except (KeyError, TypeError, ValueError) as error:
            raise BookFormatError(f"not a book: {error!r}") from error


def state_of_findings(findings: Iterable[Finding]) -> WindowState:
    """The state that findings put an equation in; BALANCED when none matters.

    Two kinds of damage at once are MIXED: as many lost as duplicated never looks like one of them.
    """
    states = {finding.state for finding in findings} - {None}
    damage = states & {WindowState.MISSING, WindowState.DUPLICATE, WindowState.CORRUPT}
    if len(damage) > 1:
        return WindowState.MIXED
    return next((state for state in SEVERITY_ORDER if state in states), WindowState.BALANCED)


def overall_state(
    results: Iterable[EquationResult], acceptances: Sequence[Acceptance] = ()
) -> WindowState:
    """The window's state: FROZEN before its landing is proven, LANDED before producers are heard,
    else the worst of its equations; ACCEPTED where a person accepted every finding that matters."""
    by_equation = {r.equation: r for r in results}
    worst = min((r.state for r in by_equation.values()), key=SEVERITY_ORDER.index, default=None)
    if worst is None or Equation.STORED_EQUALS_LANDED not in by_equation:
        return WindowState.FROZEN
    if worst is WindowState.BALANCED:
        heard = Equation.PRODUCED_EQUALS_STORED in by_equation
        return WindowState.BALANCED if heard else WindowState.LANDED
    matters = [f for r in by_equation.values() for f in r.findings if f.state is not None]
    if matters and all(any(a.covers(f) for a in acceptances) for f in matters):
        return WindowState.ACCEPTED
    return worst


def tiers_of(results: Iterable[EquationResult]) -> dict[str, int]:
    """Records per tier, as the equations counted them."""
    tiers: dict[str, int] = {}
    for result in results:
        if result.equation is Equation.STORED_EQUALS_LANDED:
            tiers |= {"stored": result.expected, "landed": result.found}
        elif result.equation is Equation.PRODUCED_EQUALS_STORED:
            tiers["produced"] = result.expected
        else:
            tiers |= {
                tier: int(result.detail[tier])
                for tier in ("parsed", "quarantined")
                if tier in result.detail
            }
    return tiers


def _identity(finding: Finding) -> tuple[str, str | None]:
    return finding.kind, finding.incarnation


def _findings(raw: Sequence[dict[str, Any]]) -> tuple[Finding, ...]:
    return tuple(Finding(ranges=tuple(OffsetRange(**r) for r in f.pop("ranges")), **f) for f in raw)
