"""The vocabulary of the books: equations, tiers, states, findings, and the book itself.

A book is what was found out about one window at one moment. Format v2 is canonical JSON; a later
book of the window supersedes an earlier one, and none is replaced.

A window is BALANCED when every equation that applies was judged on the window's newest landing and
nothing is left unjudged. A result about an older landing is stale: it never makes a window
BALANCED, and what it found to be wrong stays until the equation is judged again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from penstock_platform.archive.model import canonical
from penstock_platform.kafka.model import TopicRef
from penstock_platform.ranges import OffsetRange, covers
from penstock_platform.windows.model.window import Window

BOOK_VERSION = 2
ACCEPTANCE_VERSION = 1


class BookFormatError(ValueError):
    """A book or acceptance that cannot be read: says which key and why."""


class WindowState(StrEnum):
    """The state of a window. The order of severity is that of ``SEVERITY_ORDER``."""

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

# Nothing is wrong with a window in one of these, and nothing is due.
GOOD_STATES = frozenset({WindowState.BALANCED, WindowState.ACCEPTED, WindowState.RETIRED})


class Equation(StrEnum):
    """The three equations; the values are the asset checks' names."""

    STORED_EQUALS_LANDED = "stored_equals_landed"
    PRODUCED_EQUALS_STORED = "produced_equals_stored"
    PARSED_PLUS_QUARANTINED_EQUALS_LANDED = "parsed_plus_quarantined_equals_landed"


# What applies to every landed window; the third does where the topic has a contract.
ALWAYS_APPLY = (Equation.STORED_EQUALS_LANDED, Equation.PRODUCED_EQUALS_STORED)


def applying(*, contract: bool) -> tuple[Equation, ...]:
    """The equations that a window of a topic with or without a contract has to fulfil."""
    return tuple(Equation) if contract else ALWAYS_APPLY


# Kinds of findings and the state each puts its equation in; None only informs.
FINDING_STATES: dict[str, WindowState | None] = {
    "missing": WindowState.MISSING,  # expected, and not there
    "beyond_log_end": WindowState.MISSING,  # acknowledged, and past the end of the log
    "retained_away": WindowState.MISSING,  # deleted from the log before it was landed
    "vanished": WindowState.MISSING,  # proven once, gone from the table, and the log has it no more
    "unreadable": WindowState.MISSING,  # in a data file that cannot be read
    "log_truncated": WindowState.MISSING,  # frozen once, and the log has since become shorter
    "duplicate": WindowState.DUPLICATE,  # there more than once
    "outside": WindowState.DUPLICATE,  # there, and no part of the window
    "corrupt": WindowState.CORRUPT,  # there, with another digest than was acknowledged
    "altered": WindowState.CORRUPT,  # there, with another content than the receipt's
    "hole": WindowState.UNPROVEN,  # not there, and compaction may be why
    "unlanded": WindowState.UNPROVEN,  # not in the lake, so not compared with the claims
    "unjudged": WindowState.PENDING,  # could not be judged; the detail says why
    "pending": WindowState.PENDING,  # stored, and the producer's evidence is still due
    "undigested": WindowState.UNAUDITED,  # claimed, and the content could never be compared
    "evidence_lost": WindowState.UNAUDITED,  # events that can no longer be read
    "unclaimed": WindowState.UNAUDITED,  # stored, and no evidence came within the grace
    "incarnation_silent": WindowState.UNAUDITED,  # the same; its producer died without a word
    "unstamped": WindowState.UNAUDITED,  # stored by a client that is not audited
    "lost_event": WindowState.UNAUDITED,  # an event's number is missing, and records with it
    "unacknowledged": None,  # stored, though its producer got no acknowledgement
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
    """Outcome of one equation for one window; ``expected`` and ``found`` count records.

    ``landing`` is the attempt id of the bronze receipt that was the newest when the rows were
    read; empty for a window that was proven without one (no records). ``legal`` are the offsets
    that are correctly not in the lake (control batches, aborted transactions): found once, they are
    known for good, also when the log has deleted them.
    """

    equation: Equation
    state: WindowState
    expected: int
    found: int
    findings: tuple[Finding, ...] = ()
    detail: dict[str, int | float | str] = field(default_factory=dict)
    landing: str = ""
    legal: tuple[OffsetRange, ...] = ()

    @property
    def balanced(self) -> bool:
        return self.state is WindowState.BALANCED


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A person's decision that these findings of a window are known and accepted.

    It covers what was found then and nothing that is found later.
    """

    window_id: str
    by: str
    reason: str
    accepted_at: str
    findings: tuple[Finding, ...]
    v: int = ACCEPTANCE_VERSION

    def covers(self, finding: Finding) -> bool:
        same = [f for f in self.findings if (f.kind, f.incarnation) == _identity(finding)]
        if not finding.ranges:
            return any(f.records >= finding.records for f in same)
        return covers([r for f in same for r in f.ranges], finding.ranges)

    def to_bytes(self) -> bytes:
        return canonical(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Acceptance:
        """Raises BookFormatError for anything but a whole v1."""
        try:
            raw = json.loads(data)
            if raw["v"] != ACCEPTANCE_VERSION:
                raise BookFormatError(
                    f"acceptance version {raw['v']}: this code reads {ACCEPTANCE_VERSION}"
                )
            return cls(findings=_findings(raw.pop("findings")), **raw)
        except (KeyError, TypeError, ValueError) as error:
            raise BookFormatError(f"not an acceptance: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Book:
    """Book object v2: one reconciliation of one window.

    ``applies`` names the equations that the window has to fulfil. ``landing`` is the attempt id of
    the newest bronze receipt that was known; a result about another one is stale. ``proven_at`` is
    when the rows in the lake were last read and judged; ``proofs`` says of each table what was read
    then: a hash over the window's data and delete files (``files``, with size and ETag; empty where
    one is not there), ``digest`` and ``rows``. ``accepted`` names who accepted which
    equations' findings (names joined by commas).

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
    applies: tuple[Equation, ...]
    landing: str
    proven_at: str
    proofs: dict[str, dict[str, str | int]]
    snapshots: dict[str, int]
    evidence: dict[str, int | str]
    accepted: dict[str, str] | None
    v: int = BOOK_VERSION

    @classmethod
    def of(
        cls,
        window: Window,
        equations: Sequence[EquationResult],
        *,
        made_at: str,
        code_version: str,
        applies: Sequence[Equation] | None = None,
        landing: str | None = None,
        tiers: Mapping[str, int] | None = None,
        proofs: Mapping[str, dict[str, str | int]] | None = None,
        snapshots: Mapping[str, int] | None = None,
        evidence: Mapping[str, int | str] | None = None,
        acceptances: Sequence[Acceptance] = (),
        earlier: Book | None = None,
    ) -> Book:
        """The book of these results; equations not judged now are taken over from ``earlier``.

        Only results about this very window object are taken over. A result of ``earlier`` about
        the newest landing is kept against one about an older landing: that is how two books that
        are made at once merge. ``applies`` and ``landing`` are those of ``earlier`` where they are
        not given.
        """
        old = earlier if earlier is not None and earlier.window_sha256 == window.sha256 else None
        newest = landing if landing is not None else (old.landing if old else "")
        due = tuple(applies) if applies is not None else (old.applies if old else ALWAYS_APPLY)
        kept = {r.equation: r for r in old.equations} if old else {}
        results = {r.equation: r for r in equations if _supersedes(r, kept, newest)}
        merged = {**kept, **results}
        accepted = accepted_equations(merged.values(), acceptances)
        by = acceptances[-1] if accepted else None
        looked = Equation.STORED_EQUALS_LANDED in results
        return cls(
            cluster_id=window.cluster_id,
            topic=window.topic,
            topic_id=window.topic_id,
            sequence=window.sequence,
            window=window.window,
            window_sha256=window.sha256,
            made_at=made_at,
            state=overall_state(merged.values(), acceptances, applies=due, landing=newest),
            tiers={**(old.tiers if old else {}), **tiers_of(results.values()), **(tiers or {})},
            equations=tuple(merged[e] for e in Equation if e in merged),
            code_version=code_version,
            applies=due,
            landing=newest,
            proven_at=made_at if looked else (old.proven_at if old else ""),
            proofs={**(old.proofs if old else {}), **(proofs or {})},
            snapshots={**(old.snapshots if old else {}), **(snapshots or {})},
            evidence={**(old.evidence if old else {}), **(evidence or {})},
            accepted={
                "by": by.by,
                "reason": by.reason,
                "accepted_at": by.accepted_at,
                "equations": ",".join(e for e in Equation if e in accepted),
            }
            if by
            else None,
        )

    @property
    def ref(self) -> TopicRef:
        return TopicRef(self.cluster_id, self.topic, self.topic_id)

    @property
    def window_id(self) -> str:
        return f"{self.topic_id}/{self.sequence}"

    def result(self, equation: Equation) -> EquationResult | None:
        """What was last found, though it may be about an older landing (see ``judged``)."""
        return next((r for r in self.equations if r.equation is equation), None)

    def judged(self, equation: Equation) -> EquationResult | None:
        """The result about the newest landing; None where the equation waits to be judged."""
        found = self.result(equation)
        return found if found is not None and found.landing == self.landing else None

    def accepts(self, equation: Equation) -> bool:
        """Whether a person accepted all that this equation found."""
        return self.accepted is not None and equation in self.accepted["equations"].split(",")

    @property
    def unjudged(self) -> tuple[str, ...]:
        """What keeps the window from being BALANCED though nothing is known to be wrong."""
        said = []
        for equation in self.applies:
            if self.result(equation) is None:
                said.append(f"{equation} was never judged")
            elif self.judged(equation) is None:
                said.append(f"{equation} was judged on an older landing")
        return tuple(said)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(f for r in self.equations for f in r.findings)

    def to_bytes(self) -> bytes:
        return canonical(asdict(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Book:
        """Read a book; raises BookFormatError for anything but a whole v2."""
        try:
            raw = json.loads(data)
            if raw["v"] != BOOK_VERSION:
                raise BookFormatError(f"book version {raw['v']}: this code reads {BOOK_VERSION}")
            applies = tuple(Equation(name) for name in raw.pop("applies"))
            equations = tuple(
                EquationResult(
                    equation=Equation(r.pop("equation")),
                    state=WindowState(r.pop("state")),
                    findings=_findings(r.pop("findings")),
                    legal=tuple(OffsetRange(**found) for found in r.pop("legal")),
                    **r,
                )
                for r in raw.pop("equations")
            )
            state = WindowState(raw.pop("state"))
            return cls(state=state, equations=equations, applies=applies, **raw)
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
    results: Iterable[EquationResult],
    acceptances: Sequence[Acceptance] = (),
    *,
    applies: Sequence[Equation] = ALWAYS_APPLY,
    landing: str = "",
) -> WindowState:
    """The window's state: FROZEN before its landing is judged, LANDED before producers' evidence
    was ever read, else the worst of its equations.

    An equation counts as ACCEPTED where a person accepted every finding of it that matters. One
    that applies and was not judged on ``landing`` counts as PENDING, or as worse where its stale
    result is worse.
    """
    by_equation = {r.equation: r for r in results}
    if Equation.STORED_EQUALS_LANDED not in by_equation:
        return WindowState.FROZEN
    accepted = accepted_equations(by_equation.values(), acceptances)
    states = []
    for equation in dict.fromkeys((*by_equation, *applies)):
        result = by_equation.get(equation)
        if result is None:
            under_way = Equation.PRODUCED_EQUALS_STORED not in by_equation
            states.append(WindowState.LANDED if under_way else WindowState.PENDING)
            continue
        states.append(WindowState.ACCEPTED if equation in accepted else result.state)
        if result.landing != landing and equation in applies:
            states.append(WindowState.PENDING)
    return min(states, key=SEVERITY_ORDER.index)


def state_on(book: Book | None, landing: str) -> WindowState:
    """A window's state by its newest book, given the attempt id of its newest landing now.

    FROZEN without a book. A book about an older landing says PENDING at the best.
    """
    if book is None:
        return WindowState.FROZEN
    states = [book.state] if book.landing == landing else [book.state, WindowState.PENDING]
    return min(states, key=SEVERITY_ORDER.index)


def accepted_equations(
    results: Iterable[EquationResult], acceptances: Sequence[Acceptance]
) -> frozenset[Equation]:
    """The equations that do not balance, and whose every finding that matters is accepted."""
    accepted = set()
    for result in results:
        matters = [f for f in result.findings if f.state is not None]
        if matters and all(any(a.covers(f) for a in acceptances) for f in matters):
            accepted.add(result.equation)
    return frozenset(accepted)


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


def _supersedes(
    result: EquationResult, kept: Mapping[Equation, EquationResult], newest: str
) -> bool:
    known = kept.get(result.equation)
    return known is None or result.landing == newest or known.landing != newest


def _identity(finding: Finding) -> tuple[str, str | None]:
    return finding.kind, finding.incarnation


def _findings(raw: Sequence[dict[str, Any]]) -> tuple[Finding, ...]:
    return tuple(Finding(ranges=tuple(OffsetRange(**r) for r in f.pop("ranges")), **f) for f in raw)
