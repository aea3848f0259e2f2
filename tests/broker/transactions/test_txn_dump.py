"""Transactions as ``dump-log`` shows them."""

from __future__ import annotations

from pathlib import Path

from penstock_broker.log.dump import describe
from penstock_broker.log.markers import Marker, build_marker
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import LENGTH_END, PLACE


def test_a_dump_shows_what_was_decided(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    record = NewRecord(None, b"v", 1)
    data = build_batch(
        [record], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    commit = build_marker(7, 0, Marker(is_commit=True, coordinator_epoch=4), 2)
    abort = build_marker(7, 0, Marker(is_commit=False, coordinator_epoch=5), 3)
    for offset, batch in enumerate((data, commit, abort)):
        PLACE.pack_into(batch, 0, offset, len(batch) - LENGTH_END, 0)
    path.write_bytes(bytes(data + commit + abort))
    lines = list(describe(path, with_records=True))
    assert lines[0].endswith("producer 7 epoch 0 sequence 0 in a transaction")
    assert lines[2].endswith(" marker")
    assert lines[3] == "  offset 1 commits, coordinator epoch 4"
    assert lines[5] == "  offset 2 aborts, coordinator epoch 5"
    assert lines[6] == "3 batches, 225 bytes, all intact"
