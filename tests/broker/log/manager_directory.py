"""A data directory on a simulated disk, with the manager of its logs."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from random import Random

from log_bench import Bench

from penstock_broker.config import LogConfig
from penstock_broker.log.append_result import AppendResult
from penstock_broker.log.files import Files
from penstock_broker.log.keys import TopicPartition
from penstock_broker.log.log import Log
from penstock_broker.log.manager import LogManager
from penstock_broker.metrics import Metrics
from penstock_broker.testing import MemFiles, SimClock

DATA = Path("/data")
POINTS, STARTS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"
CLEAN = "clean-shutdown"
TOPIC_ID, OTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)
T0, T1 = ("t", 0), ("t", 1)


class Directory:
    """A data directory on a simulated disk, and the process that serves it."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.files = MemFiles(self.clock)
        self.metrics = Metrics()
        self.bench = Bench()  # for its batches
        self.logs = self.manager()
        self.logs.open()

    def manager(self, files: Files | None = None, data_dir: Path = DATA) -> LogManager:
        return LogManager(data_dir, self.clock, files or self.files, self.metrics)

    def create(self, *keys: TopicPartition, config: LogConfig | None = None) -> list[Log]:
        return [self.logs.create(*key, TOPIC_ID, config or LogConfig()) for key in keys]

    def filled(self, key: TopicPartition, records: int = 3, **settings: str) -> Log:
        """A new log with some records, one a batch."""
        overrides = {name.replace("_", "."): value for name, value in settings.items()}
        (log,) = self.create(key, config=LogConfig().with_overrides(overrides))
        for number in range(records):
            self.append(log, f"value {number}")
        return log

    def append(self, log: Log, value: str) -> AppendResult:
        return self.bench.append(log, value)

    def restart(self, *, how: str = "kill", open_it: bool = True) -> None:
        """End the process, properly ("close") or not, and start the next."""
        if how == "close":
            self.logs.close()
        self.files = self.files.power_cut(Random(1)) if how == "cut" else self.files.kill()
        self.logs = self.manager()
        if open_it:
            self.logs.open()

    def load(self, key: TopicPartition, config: LogConfig | None = None) -> Log:
        return self.logs.load(*key, config or LogConfig())

    def written(self, name: str) -> list[str]:
        """The entries of a checkpoint."""
        path = DATA / name
        return self.files.get(path).decode().splitlines()[2:] if self.files.exists(path) else []

    def report(self) -> list[dict[str, object]]:
        path = DATA / "recovery-report.jsonl"
        if not self.files.exists(path):
            return []
        return [json.loads(line) for line in self.files.get(path).splitlines()]

    def names(self) -> list[str]:
        """The directories in it."""
        names = self.files.names(DATA)
        return [name for name in names if self.files.is_directory(DATA / name)]

    def cut(self, key: TopicPartition, size: int = 1) -> None:
        """Tear the last bytes off a log's first segment."""
        path = DATA / f"{key[0]}-{key[1]}" / f"{0:020d}.log"
        self.files.put(path, self.files.get(path)[:-size])
