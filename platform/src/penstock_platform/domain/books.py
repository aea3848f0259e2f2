"""The vocabulary of the books: equations, tiers, states, findings."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from penstock_platform.domain.ranges import OffsetRange


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


class Equation(StrEnum):
    """The three equations; the values are the asset checks' names."""

    STORED_EQUALS_LANDED = "stored_equals_landed"
    PRODUCED_EQUALS_STORED = "produced_equals_stored"
    PARSED_PLUS_QUARANTINED_EQUALS_LANDED = "parsed_plus_quarantined_equals_landed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not balance: a kind, exact offsets, and whose records they are.

    ``kind``: missing | duplicate | corrupt | unclaimed | unacknowledged | beyond_log_end |
    client_failure | lost_event | retained_away | incarnation_silent | hole.
    ``incarnation`` is the producer instance where it is known, as decimal text.
    """

    kind: str
    ranges: tuple[OffsetRange, ...]
    incarnation: str | None = None
    detail: str = ""

    @property
    def count(self) -> int:
        return sum(len(r) for r in self.ranges)


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
