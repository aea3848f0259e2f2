"""The cleaner's choice and its steps, on logs and a worker that only say what they are asked."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from penstock_broker.config import LogConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.cleaner import LogCleaner
from penstock_broker.log.compaction_worker import CompactionFailedError
from penstock_broker.log.log import Log
from penstock_broker.log.producer_state import AppendedBatch, ProducerEntry
from penstock_broker.log.recovery import LogPlace
from penstock_broker.log.segment import segment_name
from penstock_broker.log.swap import CleanerCheckpoint, read_cleaner_checkpoint
from penstock_broker.metrics import Metrics
from penstock_broker.testing import MemFiles, SimClock

pytestmark = pytest.mark.asyncio

DATA = Path("/data")
NEVER = -1
"""A time that must not be asked for: it costs a read of the disk."""


class Piece:
    """What the cleaner asks of a segment."""

    def __init__(self, base_offset: int, size: int, newest_ms: int, oldest_ms: int) -> None:
        self.base_offset = base_offset
        self.size = size
        self._times = newest_ms, oldest_ms

    @property
    def newest_ms(self) -> int:
        assert self._times[0] != NEVER
        return self._times[0]

    @property
    def oldest_ms(self) -> int:
        assert self._times[1] != NEVER
        return self._times[1]


class Table:
    """What the cleaner asks of a log: closed segments up to the last of ``ends``, an active one."""

    def __init__(self, world: World, name: str, *ends: int, **settings: str) -> None:
        self.world = world
        self.name = name
        self.place = LogPlace(world.files, DATA / f"{name}-0", name, 0, 100)
        world.files.make_directory(self.place.directory)
        overrides = {key.replace("_", "."): value for key, value in settings.items()}
        self.config = LogConfig().with_overrides(
            {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"} | overrides
        )
        bases = ends or (0, 10)
        self.segments = [
            Piece(base, 100 * (end - base), NEVER, NEVER) for base, end in pairwise(bases)
        ]
        self.segments.append(Piece(bases[-1], 0, NEVER, NEVER))
        self.last_stable_offset = self.recovery_point = bases[-1]
        self.cleaned = CleanerCheckpoint()
        self.failure: str | None = None
        self.aborted: list[tuple[int, int, int]] = []
        self.known: dict[int, ProducerEntry] = {}
        self.is_another = False
        """Whether its segments are not the same any more when they are to be replaced."""
        world.logs.append(self)

    @property
    def producers(self) -> Table:
        return self

    def __call__(self) -> dict[int, ProducerEntry]:
        return self.known

    def fail(self, reason: str) -> None:
        self.failure = reason

    def aborted_below(self, offset: int) -> list[tuple[int, int, int]]:
        return [entry for entry in self.aborted if entry[1] < offset]

    def replace_segments(self, old: list[Piece], swap: Path, cleaned: Path) -> bool:
        assert not self.world.is_in_thread
        bases = [segment.base_offset for segment in old]
        self.world.say("replaced", bases, swap.name, cleaned.parent.name)
        return not self.is_another

    def now_checked(self) -> CleanerCheckpoint:
        """What is on the disk of what compaction did."""
        return read_cleaner_checkpoint(self.world.files, self.place.directory)


class Disk(MemFiles):
    """A disk that is asked to change something in a thread only."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock)
        self._world = world

    def check(self, operation: str, path: Path) -> None:
        if operation in ("rename", "sync", "sync_directory", "remove"):
            assert self._world.is_in_thread
            self._world.say(operation, path.name)
        super().check(operation, path)


class World:
    """Logs, the cleaner, its worker, and what they did one after the other."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.metrics = Metrics()
        self.files = Disk(self)
        self.logs: list[Table] = []
        self.is_in_thread = False
        self.events: list[tuple[object, ...]] = []
        self.commands: list[dict[str, Any]] = []
        self.on_command: Callable[[str, str], None] = lambda log, do: None
        """Called with the log and what is to be done, before it is."""
        self.map_end: int | None = None
        """Where the map is full; None: nowhere."""
        self.unchanged: set[int] = set()
        """The first offsets of groups of which all stays."""
        self.workers_closed = 0
        self.cleaner = LogCleaner(
            lambda: cast(list[Log], list(self.logs)),
            self.clock,
            self.metrics,
            in_thread=self._in_thread,
            make_worker=lambda: self,
            map_bytes=7_000,
        )

    def say(self, *event: object) -> None:
        self.events.append(event)

    async def _in_thread(self, job: Callable[[], Any]) -> Any:
        self.is_in_thread = True
        try:
            return job()
        finally:
            self.is_in_thread = False

    async def compacted(self) -> list[str]:
        """One run: the logs that it tried, in this order."""
        self.commands.clear()
        self.events.clear()
        done = self.counted('runs_total{result="done"}')
        passes = await self.cleaner.clean_all()
        assert self.counted('runs_total{result="done"}') == done + passes
        return [Path(command["directory"]).name[:-2] for command in self.done("begin")]

    def counted(self, name: str) -> float:
        """The sum of a metric of the cleaner."""
        begin = f"kafka_log_logcleaner_{name} ", f"kafka_log_logcleaner_{name}{{"
        lines = b"".join(self.metrics.render(1_000)).decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(begin))

    # -- the worker --------------------------------------------------------------------------

    def call(self, command: Mapping[str, Any]) -> dict[str, Any]:
        assert self.is_in_thread
        given = json.loads(json.dumps(command))
        self.commands.append(given)
        if given["do"] == "begin":
            self.cleaned = Path(given["cleaned"])
            self.files.make_directory(self.cleaned)
        self.on_command(self.cleaned.parent.name[:-2], given["do"])
        segments = given.get("segments", [])
        size = sum(segment[2] for segment in segments)
        if given["do"] == "map":
            return {"end_offset": self.map_end or segments[-1][1], "keys": 1, "read": size}
        if given["do"] == "clean":
            base = segments[0][0]
            if base in self.unchanged:
                return {"changed": False, "size": size, "read": size}
            self.files.put(self.cleaned / segment_name(base, ".log"), b"new")
            return {"changed": True, "size": size // 2, "read": size}
        return {}

    def close(self) -> None:
        self.workers_closed += 1
        self.say("worker closed")

    def done(self, what: str) -> list[dict[str, Any]]:
        """The commands of a kind."""
        return [command for command in self.commands if command["do"] == what]


@pytest.fixture
def world() -> World:
    return World()


# -- which log -----------------------------------------------------------------------------------


async def test_a_log_is_compacted_once_until_more_is_written(world: World) -> None:
    log = Table(world, "t")
    assert await world.compacted() == ["t"]
    assert log.cleaned == log.now_checked() == CleanerCheckpoint(10, 10)
    assert await world.compacted() == []


async def test_logs_that_are_not_compacted(world: World) -> None:
    Table(world, "deletes", cleanup_policy="delete")
    Table(world, "offline").failure = "its disk"
    Table(world, "new", 5)
    Table(world, "empty", 5, 5)
    Table(world, "does both", cleanup_policy="delete,compact")
    assert await world.compacted() == ["does both"]


async def test_the_dirtiest_log_comes_first(world: World) -> None:
    for name, dirty in (("a", 3), ("b", 8), ("c", 3), ("d", 5)):
        Table(world, name, 0, 10 - dirty, 10).cleaned = CleanerCheckpoint(10 - dirty, 0)
    assert await world.compacted() == ["b", "d", "a", "c"]


@pytest.mark.parametrize(("ratio", "chosen"), [("0.29", ["t"]), ("0.3", []), ("1.0", [])])
async def test_a_log_must_be_dirtier_than_its_ratio(
    world: World, ratio: str, chosen: list[str]
) -> None:
    log = Table(world, "t", 0, 7, 10, min_cleanable_dirty_ratio=ratio)
    log.cleaned = CleanerCheckpoint(7, 0)
    assert await world.compacted() == chosen


def overdue(world: World, name: str, oldest_ms: int, *, ratio: str = "1.0") -> Table:
    """A log whose first records are of such an age; they may wait for 5 s."""
    log = Table(
        world, name, 0, 7, 10, min_cleanable_dirty_ratio=ratio, max_compaction_lag_ms="5000"
    )
    log.cleaned = CleanerCheckpoint(7, 0)
    log.segments[1] = Piece(7, 300, NEVER, world.clock.now_ms() - oldest_ms)
    return log


@pytest.mark.parametrize(("age_ms", "chosen"), [(5_000, []), (5_001, ["t"]), (9_000, ["t"])])
async def test_what_is_overdue_is_compacted_whatever_its_ratio(
    world: World, age_ms: int, chosen: list[str]
) -> None:
    overdue(world, "t", age_ms)
    assert await world.compacted() == chosen


async def test_what_is_longest_overdue_comes_before_what_is_dirty(world: World) -> None:
    Table(world, "dirty")
    overdue(world, "a", 6_000)
    overdue(world, "b", 7_000)
    overdue(world, "not yet", 1_000, ratio="0")
    assert await world.compacted() == ["b", "a", "dirty", "not yet"]


async def test_the_first_dirty_segment_with_records_says_how_old_they_are(world: World) -> None:
    log = overdue(world, "t", 9_000)
    log.segments[1:2] = [Piece(7, 0, NEVER, NEVER), Piece(9, 100, NEVER, world.clock.now_ms())]
    assert await world.compacted() == []


@pytest.mark.parametrize(
    ("lag_ms", "age_ms", "end"), [("1", 1, 10), ("1", 0, 7), ("1000", 1, 7), ("9000", 1, None)]
)
async def test_young_segments_wait(world: World, lag_ms: str, age_ms: int, end: int | None) -> None:
    log = Table(world, "t", 0, 7, 10, min_compaction_lag_ms=lag_ms)
    now_ms = world.clock.now_ms()
    log.segments[:2] = [Piece(0, 700, now_ms - 5_000, NEVER), Piece(7, 300, now_ms - age_ms, NEVER)]
    assert await world.compacted() == (["t"] if end else [])
    assert log.cleaned.first_dirty == (end or 0)


@pytest.mark.parametrize(
    ("stable", "synced", "end"), [(99, 99, 10), (10, 10, 10), (9, 99, 7), (99, 9, 7), (6, 99, 0)]
)
async def test_what_is_undecided_or_not_on_the_disk_waits(
    world: World, stable: int, synced: int, end: int
) -> None:
    log = Table(world, "t", 0, 7, 10)
    log.last_stable_offset, log.recovery_point = stable, synced
    await world.compacted()
    assert log.cleaned.first_dirty == end


async def test_a_log_whose_segments_cannot_be_looked_at_is_offline(world: World) -> None:
    log = Table(world, "t", min_compaction_lag_ms="5")

    class Lost(Piece):
        @property
        def newest_ms(self) -> int:
            raise OSError(errno.EIO, "no disk")

    log.segments[0] = Lost(0, 100, 0, 0)
    other = Table(world, "u")
    assert await world.compacted() == ["u"]
    assert log.failure == "cannot look at its segments: [Errno 5] no disk"
    assert other.failure is None


# -- where it begins -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first_dirty", "expected", "mapped"),
    [
        (0, 5, [[5, 8, 300], [8, 12, 400]]),
        (7, 7, [[5, 8, 300], [8, 12, 400]]),  # the map was full there
        (8, 8, [[8, 12, 400]]),
        (20, 5, [[5, 8, 300], [8, 12, 400]]),  # beyond the active segment: the log was cut
    ],
)
async def test_a_pass_begins_where_the_last_one_ended(
    world: World, first_dirty: int, expected: int, mapped: list[list[int]]
) -> None:
    log = Table(world, "t", 5, 8, 12)
    log.cleaned = CleanerCheckpoint(first_dirty, 0)
    assert await world.compacted() == ["t"]
    assert world.done("map") == [{"do": "map", "first_dirty": expected, "segments": mapped}]
    assert world.done("clean") == [{"do": "clean", "segments": [[5, 8, 300], [8, 12, 400]]}]


async def test_nothing_is_dirty_up_to_the_active_segment(world: World) -> None:
    Table(world, "t", 5, 8, 12).cleaned = CleanerCheckpoint(12, 12)
    assert await world.compacted() == []


# -- what the worker is asked --------------------------------------------------------------------


async def test_the_command_that_begins_a_compaction(world: World) -> None:
    log = Table(world, "t", 0, 4, 10, delete_retention_ms="77", index_interval_bytes="50")
    log.aborted = [(7, 1, 3), (8, 4, 9), (9, 10, 11)]
    silent, busy, first = (ProducerEntry(epoch, 0, -1) for epoch in (3, 4, 5))
    busy.batches += [AppendedBatch(0, 0, 1, 2, 0), AppendedBatch(1, 1, 3, 3, 0)]
    first.batches.append(AppendedBatch(0, 0, 0, 0, 0))
    log.known = {7: silent, 8: busy, 9: first}
    await world.compacted()
    (begin,) = world.done("begin")
    cleaned = Path(begin.pop("cleaned"))
    assert (cleaned.parent, cleaned.suffix) == (log.place.directory, ".cleaned")
    assert begin == {
        "do": "begin",
        "directory": str(log.place.directory),
        "aborted": [[7, 1, 3], [8, 4, 9]],
        "producers": [[7, 3, -1], [8, 4, 3], [9, 5, 0]],
        "map_bytes": 7_000,
        "now_ms": world.clock.now_ms(),
        "delete_retention_ms": 77,
        "index_interval_bytes": 50,
    }


@pytest.mark.parametrize(
    ("settings", "groups"),
    [
        ({}, [[0, 4, 10, 12]]),
        ({"segment_bytes": "1000"}, [[0, 4], [10, 12]]),
        # 8 bytes of index for each 100 of records
        ({"segment_index_bytes": "80"}, [[0, 4], [10, 12]]),
        ({"segment_index_bytes": "79"}, [[0], [4, 10, 12]]),
        ({"segment_index_bytes": "80", "index_interval_bytes": "50"}, [[0], [4], [10, 12]]),
        ({"segment_index_bytes": "4800", "index_interval_bytes": "0"}, [[0], [4], [10, 12]]),
    ],
)
async def test_neighbours_become_one_segment_while_it_may_be_so_large(
    world: World, settings: dict[str, str], groups: list[list[int]]
) -> None:
    Table(world, "t", 0, 4, 10, 12, 13, **{"index_interval_bytes": "100"} | settings)
    await world.compacted()
    found = [[segment[0] for segment in clean["segments"]] for clean in world.done("clean")]
    assert found == groups


@pytest.mark.parametrize(("full_at", "cleaned"), [(4, [0]), (5, [0, 4]), (10, [0, 4])])
async def test_segments_from_where_the_map_was_full_wait(
    world: World, full_at: int, cleaned: list[int]
) -> None:
    log = Table(world, "t", 0, 4, 10, 12)
    world.map_end = full_at

    def once(name: str, do: str) -> None:
        log.config = log.config.with_overrides({"cleanup.policy": "delete"})

    world.on_command = once
    await world.compacted()
    (clean,) = world.done("clean")
    assert [segment[0] for segment in clean["segments"]] == cleaned
    assert log.cleaned.first_dirty == full_at


# -- taking over ---------------------------------------------------------------------------------


async def test_holes_are_announced_before_they_are_made(world: World) -> None:
    log = Table(world, "t", 0, 4, 10, 12, segment_bytes="1000")
    world.unchanged = {10}
    await world.compacted()
    swap = f"{0:020d}-{10:020d}.swap"
    written = [("sync", "cleaner-checkpoint.tmp"), ("rename", "cleaner-checkpoint.tmp"),
               ("sync_directory", "t-0")]  # fmt: skip
    assert world.events == [
        *written,
        ("rename", segment_name(0, ".log")),
        ("sync_directory", "t-0"),
        ("replaced", [0, 4], swap, "t-0"),
        ("sync_directory", "t-0"),
        *written,
        ("worker closed",),
    ]
    assert log.now_checked() == CleanerCheckpoint(12, 10)


async def test_holes_that_were_announced_are_not_announced_again(world: World) -> None:
    log = Table(world, "t", 0, 4, 10)
    log.cleaned = CleanerCheckpoint(4, 10)
    await world.compacted()
    assert world.events.count(("rename", "cleaner-checkpoint.tmp")) == 1
    assert log.now_checked() == CleanerCheckpoint(10, 10)


async def test_the_holes_are_on_the_disk_while_the_new_segment_comes(world: World) -> None:
    log = Table(world, "t", 0, 4, 10)
    log.cleaned = CleanerCheckpoint(4, 4)
    log.is_another = True
    await world.compacted()
    assert log.now_checked() == CleanerCheckpoint(4, 10)


async def test_a_log_that_is_another_meanwhile_keeps_its_segments(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    log = Table(world, "t")
    log.is_another = True
    assert await world.cleaner.clean_all() == 0
    assert world.files.names(log.place.directory) == ["cleaner-checkpoint"]
    assert "t-0 is not compacted: it has changed meanwhile" in caplog.text
    assert world.workers_closed == 1
    assert not world.cleaner.refused()


@pytest.mark.parametrize("when", ["map", "clean"])
async def test_a_log_that_goes_offline_meanwhile_is_left_alone(world: World, when: str) -> None:
    log = Table(world, "t", 0, 4, 10)
    log.cleaned = CleanerCheckpoint(0, 99)
    world.unchanged = {0} if when == "map" else set()

    def offline(name: str, do: str) -> None:
        if do == when:
            log.failure = "its disk"

    world.on_command = offline
    assert await world.cleaner.clean_all() == 0
    assert world.files.names(log.place.directory) == []
    assert log.cleaned == CleanerCheckpoint(0, 99)


# -- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        CompactionFailedError("no space"),
        OSError(errno.ENOSPC, "no space"),
        KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space"),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_a_log_that_fails_comes_last_from_then_on(
    world: World, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = Table(world, "bad"), Table(world, "good", 0, 5, 10)
    good.cleaned = CleanerCheckpoint(5, 5)

    def fails(name: str, do: str) -> None:
        if name == "bad":
            raise failure

    world.on_command = fails
    assert await world.compacted() == ["bad", "good"]
    assert "bad-0 is not compacted: " in caplog.text
    assert "no space" in caplog.text
    assert world.counted('runs_total{result="failed"}') == world.counted("runs_total") - 1 == 1
    good.cleaned = CleanerCheckpoint(5, 5)
    assert await world.compacted() == ["good", "bad"]
    assert not world.cleaner.refused()
    world.on_command = lambda name, do: None
    good.cleaned = CleanerCheckpoint(5, 5)
    assert await world.compacted() == ["good", "bad"]
    good.cleaned, bad.cleaned = CleanerCheckpoint(5, 5), CleanerCheckpoint()
    assert await world.compacted() == ["bad", "good"], "it is as the others again"
    assert not any(".cleaned" in name for name in world.files.names(bad.place.directory))


async def test_a_damaged_log_is_not_tried_again(world: World) -> None:
    log = Table(world, "bad")

    def fails(name: str, do: str) -> None:
        raise CompactionFailedError("CRC", is_damage=True)

    world.on_command = fails
    assert await world.compacted() == ["bad"]
    assert world.cleaner.refused() == {str(log.place.directory): "CRC"}
    assert await world.compacted() == []


async def test_nothing_is_remembered_of_a_deleted_log(world: World) -> None:
    Table(world, "bad")

    def fails(name: str, do: str) -> None:
        raise CompactionFailedError("CRC", is_damage=True)

    world.on_command = fails
    assert await world.compacted() == ["bad"]
    assert len(world.cleaner._failed) == len(world.cleaner.refused()) == 1
    world.logs.clear()
    assert await world.compacted() == []
    assert not world.cleaner._failed
    assert not world.cleaner.refused()


async def test_a_directory_that_cannot_be_removed_remains(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    Table(world, "t")
    world.unchanged = {0}
    world.on_command = lambda name, do: world.files.put(world.cleaned / "x.index", b"")
    world.files.fail("remove", errno.EIO, path_part=".cleaned")
    assert await world.cleaner.clean_all() == 1
    assert ".cleaned remains until the next start: [Errno 5]" in caplog.text


# -- the end, and what is counted ----------------------------------------------------------------


async def test_a_stop_ends_the_worker(world: World) -> None:
    Table(world, "t")
    world.cleaner.stop()
    assert world.workers_closed == 0
    world.on_command = lambda name, do: world.cleaner.stop()
    await world.cleaner.clean_all()
    assert world.workers_closed == 3 + 1
    world.cleaner.stop()
    assert world.workers_closed == 4, "it has ended"


async def test_what_is_counted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = Table(world, "t", 0, 4, 10, 12, segment_bytes="1000")
    log.cleaned = CleanerCheckpoint(4, 4)
    world.unchanged = {10}
    world.clock.advance(100)
    world.on_command = lambda name, do: world.clock.advance(500)
    await world.compacted()
    assert world.counted('runs_total{result="done"}') == world.counted("runs_total") == 1
    assert world.counted("clean_seconds_sum") == 2.0
    assert world.counted("read_bytes_total") == 800 + 1_200
    assert world.counted("written_bytes_total") == 1_000 // 2 + 200
    assert "t-0 is compacted up to 12: 1200 bytes of it" in caplog.text
