"""A broker's storage on a simulated or a real disk, and short ways to fill and to end it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from log_bench import values_of
from storage import Storage

from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.files import Files
from penstock_broker.testing import MemFiles, SimClock
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import iter_batches

DATA_DIR = Path("/data")


class Broker:
    """The storage of one broker."""

    def __init__(self, files: Files, data_dir: Path = DATA_DIR, **settings: str) -> None:
        self.clock = SimClock()
        self.data_dir = data_dir
        self.files = files
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.start()

    def start(self) -> None:
        storage = Storage(self.data_dir, self.clock, self.files, self.settings)
        self.logs, self.replicas = storage.logs, storage.replicas
        self.metadata = storage.metadata

    def restart(self) -> None:
        self.replicas.close()
        assert isinstance(self.files, MemFiles)
        self.files = self.files.kill()
        self.start()

    def kill(self) -> None:
        assert isinstance(self.files, MemFiles)
        self.files = self.files.kill()
        self.start()

    def append(self, topic: str, partition: int, *values: str) -> int:
        records = [NewRecord(b"", value.encode(), self.clock.now_ms()) for value in values]
        data = memoryview(build_batch(records))
        return self.replicas.partition(topic, partition).append(data).base_offset

    def values(self, topic: str, partition: int = 0) -> list[str]:
        target = self.replicas.partition(topic, partition)
        data = target.fetch(target.log_start_offset, 1 << 20).read()
        return values_of([r for batch in iter_batches(memoryview(data)) for r in batch.records()])

    def report(self) -> list[dict[str, object]]:
        path = self.data_dir / "recovery-report.jsonl"
        if not self.files.exists(path):
            return []
        assert isinstance(self.files, MemFiles)
        return [json.loads(line) for line in self.files.get(path).splitlines()]

    def directories(self) -> list[str]:
        names = self.files.names(self.data_dir)
        return [name for name in names if self.files.is_directory(self.data_dir / name)]


def code(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code
