"""A value that threads write for the event loop: what is on the disk, and what is refused."""

from __future__ import annotations

import errno
import threading

import pytest

from penstock_broker.log.saving import Saver, Ticket


class Disk:
    """What was written, and errors for the next writes."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.errors: list[OSError] = []

    def write(self, value: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.written.append(value)


def saver_of(disk: Disk, *, builds: bool = False) -> Saver[str]:
    return Saver(disk.write, "first", name="a file", builds=builds)


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left")


def test_the_newest_value_is_written_for_all_that_wait() -> None:
    disk = Disk()
    saver = saver_of(disk)
    assert (saver.saved, saver.offered) == ("first", "first")
    tickets = [saver.offer(value) for value in "abc"]
    assert tickets == [Ticket(0, 1), Ticket(0, 2), Ticket(0, 3)]
    assert (saver.saved, saver.offered) == ("first", "c")
    for ticket in tickets:
        saver.save(ticket)
        assert (saver.saved, disk.written) == ("c", ["c"])
    saver.save(saver.offer("d"))
    assert (saver.saved, disk.written) == ("d", ["c", "d"])


def test_a_write_that_fails_alone() -> None:
    """The next one writes the newest value, also for a ticket that has failed before."""
    disk = Disk()
    saver = saver_of(disk)
    ticket = saver.offer("a")
    disk.errors = [full()]
    with pytest.raises(OSError, match="No space left"):
        saver.save(ticket)
    assert (saver.saved, saver.offered, disk.written) == ("first", "a", [])
    saver.offer("b")
    saver.save(ticket)
    assert (saver.saved, disk.written) == ("b", ["b"])


def test_values_that_build_on_a_refused_one_are_refused() -> None:
    disk = Disk()
    saver = saver_of(disk, builds=True)
    saver.save(saver.offer("a"))
    refused, later = saver.offer("ab"), saver.offer("abc")
    disk.errors = [full()]
    with pytest.raises(OSError, match="No space left") as error:
        saver.save(refused)
    assert error.value.errno == errno.ENOSPC
    assert disk.written == ["a", "a"], "the file may hold what was refused"
    with pytest.raises(OSError, match="No space left") as error:
        saver.save(later)
    assert error.value.errno == errno.ENOSPC
    assert (saver.saved, saver.offered) == ("a", "abc")
    saver.take_back(refused)
    assert saver.offered == "a"
    saver.take_back(later)
    fourth = saver.offer("ad")
    assert fourth == Ticket(1, 4)
    with pytest.raises(OSError, match="a change before it could not be saved") as error:
        saver.save(later)
    assert error.value.errno == errno.EIO
    saver.save(fourth)
    assert (saver.saved, disk.written) == ("ad", ["a", "a", "ad"])


def test_tickets_of_a_line_that_has_ended() -> None:
    """What was saved of it before its end was saved, whenever that is asked."""
    disk = Disk()
    saver = saver_of(disk, builds=True)
    good, other = saver.offer("a"), saver.offer("ab")
    saver.save(good)
    refused = saver.offer("abc")
    disk.errors = [full()]
    for ticket in (refused,):
        with pytest.raises(OSError, match="No space left"):
            saver.save(ticket)
        saver.take_back(ticket)
    second = saver.offer("abd")
    disk.errors = [full()]
    with pytest.raises(OSError, match="No space left"):
        saver.save(second)
    saver.take_back(second)
    for ticket in (good, other):
        saver.save(ticket)
    for ticket in (refused, second):
        with pytest.raises(OSError, match="a change before it could not be saved"):
            saver.save(ticket)
    assert (saver.saved, saver.offered) == ("ab", "ab")


def test_an_error_without_a_number_is_one_of_the_disk() -> None:
    disk = Disk()
    saver = saver_of(disk, builds=True)
    first, second = saver.offer("a"), saver.offer("ab")
    disk.errors = [OSError("broken")]
    with pytest.raises(OSError, match="broken"):
        saver.save(first)
    with pytest.raises(OSError, match="broken") as error:
        saver.save(second)
    assert error.value.errno == errno.EIO


def test_a_file_that_may_hold_what_was_refused_is_named(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    saver = saver_of(disk, builds=True)
    disk.errors = [full(), full()]
    with pytest.raises(OSError, match="No space left"):
        saver.save(saver.offer("a"))
    assert "a file may hold a change that was refused: " in caplog.text


def test_a_thread_that_comes_during_a_write_waits_and_finds_its_work_done() -> None:
    """Of three changes that are made meanwhile, one write has all."""
    writing, may_end, written = threading.Event(), threading.Event(), list[str]()

    def write(value: str) -> None:
        writing.set()
        assert may_end.wait(60)
        written.append(value)

    saver = Saver(write, "first", name="a file")
    first = threading.Thread(target=saver.save, args=[saver.offer("a")])
    first.start()
    assert writing.wait(60)
    tickets = [saver.offer(value) for value in "bcd"]
    threads = [threading.Thread(target=saver.save, args=[ticket]) for ticket in tickets]
    for thread in threads:
        thread.start()
    assert saver.saved == "first"
    may_end.set()
    for thread in (first, *threads):
        thread.join(60)
    assert written == ["a", "d"]
    assert saver.saved == "d"
