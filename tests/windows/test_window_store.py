"""The chain in the archive: places, searches, starts."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock_platform.testing.archive import MemoryArchive
from penstock_platform.testing.clock import EPOCH
from penstock_platform.testing.windows import make_window
from penstock_platform.topics.model.cron import CronError
from penstock_platform.windows.model.window import ChainError, Window, WindowFormatError
from penstock_platform.windows.store import WindowStore


def chain(length: int) -> list[Window]:
    windows: list[Window] = []
    for n in range(length):
        previous = windows[-1] if windows else None
        windows.append(make_window({0: (n * 10, n * 10 + 10)}, previous=previous))
    return windows


@pytest.fixture
def store() -> WindowStore:
    found = WindowStore(MemoryArchive())
    for window in chain(25):
        assert found.publish(window)
    return found


REF = make_window({0: (0, 10)}).ref


def test_places_are_taken_once(store):
    window = chain(25)[24]
    late = replace(window, frozen_at="2026-11-21T00:00:00Z")
    assert not store.publish(late)
    assert store.get(REF, 24) == window


def test_the_end_of_the_chain_is_found_by_asking(store):
    assert store.newest(REF).sequence == 24
    assert store.newest(make_window({}, topic="other").ref) is None
    assert [w.sequence for w in store.recent(REF, 3)] == [22, 23, 24]
    assert [w.sequence for w in store.all(REF, 20)] == [20, 21, 22, 23, 24]


def test_a_window_is_found_by_its_key(store):
    for window in chain(25):
        assert store.find(REF, window.window) == [window]
    assert store.find(REF, "2026-11-19-23:59") == []
    assert store.find(REF, "2026-11-20-00:25") == []
    with pytest.raises(CronError):
        store.find(REF, "yesterday")


def test_only_what_continues_the_chain_is_published(store):
    last = store.newest(REF)
    after = make_window({0: (250, 260)}, previous=last)
    for wrong, message in (
        (replace(after, sequence=27), "the place before it is empty"),
        (replace(after, previous=replace(after.previous, sha256="0" * 64)), "its hash of window"),
        (make_window({0: (251, 260)}, previous=last), "does not begin where window 24 ended"),
        (make_window({1: (0, 0)}, previous=last), "does not begin where"),
        (replace(after, part=2), "is part 2 of its tick"),
        (replace(after, window=last.window), "is part 1 of its tick"),
        (replace(after, last_truncation=3), "as its last truncation"),
    ):
        with pytest.raises(ChainError, match=message):
            store.publish(wrong)
    assert store.publish(after)


def test_a_tick_continues_until_its_last_window(store):
    last = store.newest(REF)
    first = replace(make_window({0: (250, 260)}, previous=last), more=True)
    assert store.publish(first)
    again = replace(
        make_window({0: (260, 270)}, previous=first), window=first.window, part=2, more=True
    )
    for wrong in (
        replace(again, part=1),
        replace(again, part=3),
        make_window({0: (260, 270)}, previous=first),  # the next tick: one window is left out
    ):
        with pytest.raises(ChainError, match="of its tick"):
            store.publish(wrong)
    assert store.publish(again)


def test_an_altered_window_breaks_its_chain():
    archive = MemoryArchive()
    store = WindowStore(archive)
    for window in chain(5):
        store.publish(window)
    [key] = [key for key in archive.objects if key.endswith("windows/0000000002.json")]
    raw = json.loads(archive.objects[key])
    raw["partitions"][0]["end"] -= 1
    archive.objects[key] = json.dumps(raw).encode()
    with pytest.raises(ChainError, match="its hash of window 2"):
        list(WindowStore(archive).all(REF))
    archive.objects[key] = b"{"
    with pytest.raises(WindowFormatError):
        list(WindowStore(archive).all(REF))


def test_a_window_object_is_read_back_and_other_versions_are_refused():
    window = chain(2)[1]
    assert Window.from_bytes(window.to_bytes()) == window
    assert window.window_id == f"{window.topic_id}/1"
    raw = json.loads(window.to_bytes())
    for change in ({"v": 2}, {"surprise": 1}, {"partitions": 3}):
        with pytest.raises(WindowFormatError):
            Window.from_bytes(json.dumps({**raw, **change}).encode())


def test_the_first_windows_start_is_decided_once():
    store = WindowStore(MemoryArchive())
    now = EPOCH + timedelta(minutes=7, seconds=31)
    assert store.partition_start("local", "a", "* * * * *", now) == EPOCH + timedelta(minutes=7)
    later = now + timedelta(days=3)
    assert store.partition_start("local", "a", "* * * * *", later) == EPOCH + timedelta(minutes=7)
    assert store.partition_start("local", "b", "0 * * * *", now) == EPOCH
    assert store.partition_start("local", "c", "0 0 * * *", later) == EPOCH + timedelta(days=3)
    assert store.partition_start("local", "d", "0 5 * * 1", EPOCH) == EPOCH - timedelta(
        days=3, hours=19
    )


def test_stores_with_prefixes_share_an_archive():
    archive = MemoryArchive()
    a, b = WindowStore(archive, "a"), WindowStore(archive, "b/")
    window = chain(1)[0]
    assert a.publish(window)
    assert b.newest(REF) is None
    assert b.publish(window)
    assert [key[:11] for key in archive.list("")] == ["a/clusters/", "b/clusters/"]
