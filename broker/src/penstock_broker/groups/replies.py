"""What a group answers, in order, and the joins and syncs of members that wait for an answer."""

from __future__ import annotations

from collections.abc import Callable

from penstock_broker.errors import ErrorCode
from penstock_broker.groups.members import (
    Answer,
    Effect,
    JoinResult,
    Member,
    Store,
    SyncResult,
)


class Replies:
    """Effects that the caller has yet to carry out. A request that waits is answered once, by
    the code that takes it out of its member."""

    __slots__ = ("_effects", "waiting_joins")

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self.waiting_joins = 0
        """Members whose join waits."""

    def answer(
        self,
        waiter: Callable[[JoinResult], None] | Callable[[SyncResult], None],
        result: JoinResult | SyncResult,
    ) -> None:
        """Hand ``result`` to a request."""
        self._effects.append(Answer(waiter, result))

    def store(self) -> None:
        """Write the group to the log before what is answered from here on."""
        self._effects.append(Store())

    def take(self) -> list[Effect]:
        """All that has come since this was last asked."""
        effects, self._effects = self._effects, []
        return effects

    def await_join(self, member: Member, waiter: Callable[[JoinResult], None]) -> None:
        """Keep a join open. If the client asked before, on another connection, that request must
        not hang."""
        self.end_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.awaiting_join = waiter
        self.waiting_joins += 1

    def end_join(self, member: Member, result: JoinResult) -> None:
        """Answer a join, if one waits."""
        waiter, member.awaiting_join = member.awaiting_join, None
        if waiter is not None:
            self.waiting_joins -= 1
            self.answer(waiter, result)

    def await_sync(self, member: Member, waiter: Callable[[SyncResult], None]) -> None:
        """Keep a sync open; one from another connection ends, as in :meth:`await_join`."""
        self.end_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = waiter

    def end_sync(self, member: Member, result: SyncResult) -> bool:
        """Answer a sync, if one waits; whether one did."""
        waiter, member.awaiting_sync = member.awaiting_sync, None
        if waiter is None:
            return False
        self.answer(waiter, result)
        return True
