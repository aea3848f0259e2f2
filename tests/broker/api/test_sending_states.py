"""The states of the sending side: nothing is sent while anything is still waited for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_broker.server.sending import NEXT, WAITS_FOR_PEER, Event, Sending


def test_the_table_is_total() -> None:
    assert set(NEXT) == {(state, event) for state in Sending for event in Event}


@given(st.lists(st.sampled_from(Event), max_size=30))
def test_it_sends_only_when_neither_peer_nor_disk_nor_turn_is_waited_for(
    events: list[Event],
) -> None:
    """Against one flag for each; events come in any order, but a connection begins to read or
    gives its turn away only while it sends, and a thread ends only what began."""
    state = Sending.READY
    full = reading = away = False
    for event in events:
        if event in (Event.READ_BEGAN, Event.TURN_OVER) and state is not Sending.READY:
            continue
        if event is Event.READ_ENDED and not reading:
            continue
        state = NEXT[state, event]
        if event is Event.TOOK_ENOUGH:
            full, away = True, False  # a wait for the peer replaces the turn
        elif event is Event.TAKES_MORE:
            full = False
        elif event in (Event.READ_BEGAN, Event.READ_ENDED):
            reading = event is Event.READ_BEGAN
        else:
            away = event is Event.TURN_OVER
        assert (state is Sending.READY) == (not (full or reading or away))
        assert (state in WAITS_FOR_PEER) == full
