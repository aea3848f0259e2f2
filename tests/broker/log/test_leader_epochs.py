"""Where leader epochs end, as OffsetForLeaderEpoch answers it (KIP-101, KIP-279)."""

from __future__ import annotations

from penstock_broker.log.leader_epochs import LeaderEpochs


def test_an_epoch_ends_where_the_next_begins() -> None:
    epochs = LeaderEpochs()
    for epoch, offset in ((2, 10), (5, 30)):
        epochs.note(epoch, offset)
    assert epochs.end_of(2, 40) == (2, 30)
    assert epochs.end_of(3, 40) == (2, 30), "the largest up to the one asked for"
    assert epochs.end_of(5, 40) == (5, 40)
    assert epochs.end_of(9, 40) == (5, 40)


def test_an_epoch_before_all_known_ones_ended_where_they_begin() -> None:
    """A log that was wiped and grew again says 0; one that retention shortened, its start."""
    epochs = LeaderEpochs()
    assert epochs.end_of(1, 0) == (-1, -1)
    epochs.note(4, 0)
    assert epochs.end_of(1, 7) == (1, 0)
    epochs.advance_to(5)
    assert epochs.end_of(1, 7) == (1, 5)
