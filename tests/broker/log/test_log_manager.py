"""The data directory: its lock, its format, its checkpoints, and topics that come and go."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import uuid
from pathlib import Path
from random import Random

import pytest
from log_bench import values_of

from penstock_broker.cluster.metadata_file import MetadataError
from penstock_broker.cluster.metadata_store import LocalMetadataStore
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.log.data_directory import DataDirectoryError, parse_log_directory_name
from penstock_broker.log.files import Files, OsFiles
from penstock_broker.log.manager import LogManager
from penstock_broker.replication.partition import Partition
from penstock_broker.replication.replica_manager import ReplicaManager
from penstock_broker.steps import run
from penstock_broker.testing import MemFiles, SimClock
from penstock_broker.wire.batch_builder import NewRecord, build_batch
from penstock_broker.wire.records import iter_batches

DATA_DIR = Path("/data")


class Broker:
    """What the composition root builds of the storage floor."""

    def __init__(self, files: Files, data_dir: Path = DATA_DIR, **settings: str) -> None:
        self.clock = SimClock()
        self.data_dir = data_dir
        self.files = files
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.start()

    def start(self) -> None:
        config = BrokerConfig.parse(self.settings)
        self.logs = LogManager(self.data_dir, self.clock, self.files)
        self.logs.open()
        path = self.data_dir / "metadata.json"
        self.metadata = LocalMetadataStore(path, self.files, self.clock, config.broker_id)
        self.replicas = ReplicaManager(config, self.metadata, self.logs)
        self.replicas.start()

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


@pytest.fixture
def broker() -> Broker:
    return Broker(MemFiles())


def code(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


# -- the directory -----------------------------------------------------------------------------


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    logs = LogManager(tmp_path / "data", SimClock(), OsFiles())
    logs.open()
    script = (
        "import sys, pathlib\n"
        "from penstock_broker.log.files import OsFiles\n"
        "from penstock_broker.log.data_directory import DataDirectoryError\n"
        "from penstock_broker.log.manager import LogManager\n"
        "from penstock_broker.testing import SimClock\n"
        "try:\n"
        "    LogManager(pathlib.Path(sys.argv[1]), SimClock(), OsFiles()).open()\n"
        "except DataDirectoryError as error:\n"
        "    sys.exit(f'refused: {error}')\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "data")]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "refused" in second.stderr and "in use by another broker" in second.stderr
    logs.close()
    assert subprocess.run(command, check=False).returncode == 0


def test_the_lock_of_a_killed_process_is_free(broker: Broker) -> None:
    with pytest.raises(DataDirectoryError):
        LogManager(DATA_DIR, SimClock(), broker.files).open()
    broker.kill()


def test_a_newer_format_is_refused_with_both_versions(broker: Broker) -> None:
    broker.replicas.close()
    assert isinstance(broker.files, MemFiles)
    broker.files.put(DATA_DIR / "format", b"version: 2\n")
    with pytest.raises(DataDirectoryError, match=r"'version: 2'.*reads version 1"):
        broker.start()
    broker.files.put(DATA_DIR / "format", b"version: 1\n")
    broker.start()


def test_a_directory_of_something_else_is_left_alone() -> None:
    files = MemFiles()
    files.put(DATA_DIR / "thesis.tex", b"...")
    with pytest.raises(DataDirectoryError, match=r"thesis\.tex"):
        Broker(files)
    assert not files.exists(DATA_DIR / "format")


@pytest.mark.parametrize("name", ["thesis.tex", "meta.properties"])
def test_a_directory_of_something_else_gets_no_lock(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("...")
    with pytest.raises(DataDirectoryError, match=r"take another one"):
        LogManager(tmp_path, SimClock(), OsFiles()).open()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_first_start_that_was_killed_is_made_again(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / "format.tmp").write_text("vers")
    logs = LogManager(tmp_path, SimClock(), OsFiles())
    logs.open()
    assert (tmp_path / "format").read_text() == "version: 1\n"
    logs.close()


def test_names_of_directories() -> None:
    assert parse_log_directory_name("a-b.c_d-12") == ("a-b.c_d", 12)
    for name in ("x", "-1", "x-", "x-1a", f"x-1.{uuid.uuid4().hex}-delete", ".lock"):
        assert parse_log_directory_name(name) is None, name


# -- starts ------------------------------------------------------------------------------------


def test_everything_is_there_after_a_clean_restart(broker: Broker) -> None:
    broker.replicas.create_topic("t", 3, {"segment.bytes": "1000"})
    topic = broker.metadata.topic("t")
    cluster_id = broker.metadata.cluster_id
    for partition in range(3):
        broker.append("t", partition, f"p{partition}")
    broker.restart()
    assert not broker.files.exists(DATA_DIR / "clean-shutdown"), "a kill from here on is seen"
    assert broker.metadata.cluster_id == cluster_id
    assert broker.metadata.topic("t") == topic
    assert [broker.values("t", partition) for partition in range(3)] == [["p0"], ["p1"], ["p2"]]
    assert broker.replicas.partition("t", 0).log.config.segment_bytes == 1000
    assert broker.replicas.partition("t", 0).leader_epoch == 0
    assert broker.report() == []


def test_a_kill_raises_the_leader_epoch(broker: Broker) -> None:
    """Pitfall 2: offsets served before the crash may get other records, under another epoch."""
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    broker.kill()
    assert broker.replicas.partition("t", 0).leader_epoch == 1
    assert broker.metadata.topics["t"].partitions[0].leader_epoch == 1
    broker.append("t", 0, "b")
    assert broker.replicas.partition("t", 0).end_of_epoch(0) == (0, 1)
    assert broker.values("t") == ["a", "b"]
    assert [line["event"] for line in broker.report()] == ["start"]


def test_a_cut_is_in_the_recovery_report(broker: Broker) -> None:
    broker.replicas.create_topic("t", 2, {})
    broker.append("t", 1, "a", "b")
    size = broker.replicas.partition("t", 1).size_bytes
    broker.append("t", 1, "c", "d", "e")
    path = DATA_DIR / "t-1" / "00000000000000000000.log"
    assert isinstance(broker.files, MemFiles)
    broker.files.put(path, broker.files.get(path)[:-2])
    broker.kill()
    cut, start = broker.report()
    assert cut == {
        "event": "cut",
        "at_ms": broker.clock.now_ms(),
        "topic": "t",
        "partition": 1,
        "first_offset": 2,
        "end_offset": 5,
        "reason": "torn batch: 2 of 85 bytes missing",
        "segment": "00000000000000000000.log",
        "position": size,
        "bytes": 83,
        "segments_removed": [],
    }
    assert (start["event"], start["logs"], start["cuts"]) == ("start", 2, 1)
    assert broker.logs.cuts == 1
    broker.kill()
    assert [line["event"] for line in broker.report()] == ["cut", "start", "start"]


def test_recovery_points_save_work(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {"segment.bytes": "200"})
    for number in range(10):
        broker.append("t", 0, f"value {number}")
    jobs = broker.logs.flush_jobs()
    assert len(jobs) == 1
    for job in jobs:
        job.run()
    broker.logs.flushed(jobs)
    broker.logs.checkpoint_recovery_points()
    broker.append("t", 0, "last")
    broker.kill()
    log = broker.replicas.partition("t", 0).log
    assert 0 < log.recovered.bytes_checked <= 200
    assert len(broker.values("t")) == 11


def test_a_damaged_checkpoint_means_that_all_is_checked(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    broker.replicas.close()
    assert isinstance(broker.files, MemFiles)
    broker.files.put(DATA_DIR / "recovery-point-offset-checkpoint", b"0\n7\nt 0 1\n")
    broker.files = broker.files.kill()
    broker.start()
    assert broker.values("t") == ["a"]
    assert not broker.replicas.partition("t", 0).log.recovered.clean


def test_the_log_start_survives_a_kill(broker: Broker) -> None:
    broker.replicas.create_topic("t", 2, {})
    for partition in (0, 1):
        broker.append("t", partition, "a", "b", "c")
    assert broker.replicas.delete_records({("t", 0): 2, ("t", 1): -1}) == {
        ("t", 0): 2,
        ("t", 1): 3,
    }
    broker.kill()
    assert broker.replicas.partition("t", 0).log_start_offset == 2
    assert broker.replicas.partition("t", 1).log_start_offset == 3


def test_an_interrupted_delete_records_is_finished_at_the_next_start(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {"segment.bytes": "100"})
    for value in "abc":
        broker.append("t", 0, value)
    broker.replicas.partition("t", 0).log.advance_start(2)
    broker.logs.checkpoint_log_starts()
    broker.kill()
    log = broker.replicas.partition("t", 0).log
    assert (log.log_start_offset, len(log.segments)) == (2, 1)
    assert broker.values("t") == ["c"]


def test_a_log_that_cannot_be_read_is_offline_and_the_others_serve(broker: Broker) -> None:
    broker.replicas.create_topic("t", 2, {})
    broker.append("t", 0, "a")
    broker.append("t", 1, "b")
    assert isinstance(broker.files, MemFiles)
    broker.files = broker.files.kill()
    broker.files.fail("open", errno.EIO, path_part="t-0/0000", times=50)
    broker.start()
    with pytest.raises(KafkaError) as error:
        broker.replicas.partition("t", 0)
    assert code(error) is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.replicas.has_partition("t", 0)
    assert broker.values("t", 1) == ["b"]
    assert "offline" in [line["event"] for line in broker.report()]


def test_a_log_that_has_vanished_is_reported(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    broker.replicas.close()
    broker.files.remove_tree(DATA_DIR / "t-0")
    assert isinstance(broker.files, MemFiles)
    broker.files = broker.files.kill()
    broker.start()
    missing = [line for line in broker.report() if line["event"] == "missing"]
    assert missing[0]["topic"] == "t" and missing[0]["partition"] == 0
    assert broker.replicas.partition("t", 0).log_start_offset == 1, "no offset is given out again"


def test_any_moment_of_a_power_cut_leaves_a_directory_that_starts(seed: int) -> None:
    random = Random(seed)
    for _ in range(15):
        broker = Broker(MemFiles(), log_segment_bytes="400")
        alive: dict[str, None] = {}
        for step in range(30):
            action = random.random()
            name = f"t{random.randrange(4)}"
            if action < 0.25 and name not in alive:
                broker.replicas.create_topic(name, random.randint(1, 2), {})
                alive[name] = None
            elif action < 0.35 and name in alive:
                broker.replicas.delete_topic(name)
                del alive[name]
            elif name in alive:
                broker.append(name, 0, f"value {step}")
            if random.random() < 0.1:
                assert isinstance(broker.files, MemFiles)
                broker.files = broker.files.power_cut(random)
                broker.start()
                assert list(broker.metadata.topics) == sorted(alive)
        for name in alive:
            broker.append(name, 0, "still")
        broker.replicas.close()


# -- topics ------------------------------------------------------------------------------------


def test_a_topic_can_be_used_as_soon_as_it_is_created(broker: Broker) -> None:
    """Pitfall 48: metadata right after CreateTopics already lists it, with a leader."""
    topic = broker.replicas.create_topic("t", 2, {})
    assert broker.metadata.topics["t"] is topic
    assert topic.partitions[1].leader == broker.metadata.broker_id
    assert broker.append("t", 1, "a") == 0


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_directory"])
def test_a_deletion_that_the_disk_refuses_deletes_nothing(broker: Broker, operation: str) -> None:
    """Nor later: the topic lives, and a save or a start afterwards must not finish the job."""
    broker.replicas.create_topic("t", 1, {})
    topic = broker.replicas.create_topic("u", 1, {})
    broker.append("t", 0, "acknowledged")
    assert isinstance(broker.files, MemFiles)
    path_part = "/data" if operation == "sync_directory" else "metadata.json"
    broker.files.fail(operation, errno.EIO, path_part=path_part)
    with pytest.raises(KafkaError) as error:
        broker.replicas.delete_topic("t")
    assert code(error) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not broker.metadata.deleting()
    broker.kill()  # with nothing saved after it
    assert broker.values("t") == ["acknowledged"]
    broker.replicas.set_configs(topic.name, {"segment.bytes": "1000"})
    broker.append("t", 0, "later")
    broker.kill()
    assert broker.values("t") == ["acknowledged", "later"]


def test_a_refused_deletion_is_not_saved_with_the_next_change(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "acknowledged")
    assert isinstance(broker.files, MemFiles)
    broker.files.fail("write", errno.ENOSPC, path_part="metadata.json", times=2)
    with pytest.raises(KafkaError):
        broker.replicas.delete_topic("t")
    assert broker.metadata.topic("t") is not None
    broker.replicas.create_topic("u", 1, {})
    broker.kill()
    assert broker.values("t") == ["acknowledged"]


def test_a_topic_that_lives_is_not_wiped_whatever_the_metadata_want_deleted(
    broker: Broker,
) -> None:
    """A version that had failed to delete it could have written both."""
    topic = broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "acknowledged")
    assert isinstance(broker.files, MemFiles)
    document = json.loads(broker.files.get(DATA_DIR / "metadata.json"))
    document["deleting"] = {str(topic.topic_id): "t"}
    broker.files.put(DATA_DIR / "metadata.json", json.dumps(document).encode())
    broker.kill()
    assert broker.values("t") == ["acknowledged"]
    assert not broker.metadata.deleting()


@pytest.mark.parametrize("change", ["create", "configs", "partitions", "section"])
def test_a_change_that_the_disk_refuses_is_not_there(broker: Broker, change: str) -> None:
    broker.replicas.create_topic("t", 1, {})
    before, version = broker.metadata.topics, broker.metadata.version
    assert isinstance(broker.files, MemFiles)
    broker.files.fail("write", errno.ENOSPC, path_part="metadata.json", times=2)
    changes = {
        "create": lambda: broker.replicas.create_topic("u", 1, {}),
        "configs": lambda: broker.replicas.set_configs("t", {"segment.bytes": "1000"}),
        "partitions": lambda: broker.replicas.create_partitions("t", 2),
        "section": lambda: broker.metadata.put_section("x", {"a": 1}),
    }
    with pytest.raises((KafkaError, OSError)):
        changes[change]()
    assert broker.metadata.topics is before
    assert broker.metadata.version == version
    assert broker.metadata.section("x") == {}
    broker.kill()
    assert list(broker.metadata.topics) == ["t"]
    assert len(broker.metadata.topics["t"].partitions) == 1
    assert broker.metadata.section("x") == {}


def test_a_recreated_topic_is_another(broker: Broker) -> None:
    """Pitfalls 5 and 48: another id, no record of the old one, an epoch that has grown."""
    first = broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "old")
    broker.replicas.delete_topic("t")
    assert broker.metadata.topic_by_id(first.topic_id) is None
    broker.clock.advance(60_000)
    assert broker.logs.empty_trash() == 1
    assert broker.directories() == []
    second = broker.replicas.create_topic("t", 1, {})
    assert second.topic_id != first.topic_id
    assert second.partitions[0].leader_epoch > first.partitions[0].leader_epoch
    assert broker.replicas.partition("t", 0).log_end_offset == 0
    broker.restart()
    assert broker.replicas.partition("t", 0).log_end_offset == 0


def test_an_interrupted_deletion_is_finished_at_the_next_start(broker: Broker) -> None:
    broker.replicas.create_topic("t", 3, {})
    broker.append("t", 2, "a")
    run(broker.metadata.deleting_topic("t"))
    broker.kill()
    assert broker.directories() == []
    assert not broker.metadata.deleting()
    assert broker.report()[0]["event"] == "start"


def test_half_removed_directories_are_removed(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    assert isinstance(broker.files, MemFiles)
    broker.files.fail("remove", errno.EIO)
    broker.replicas.delete_topic("t")
    assert [name for name in broker.directories() if name.endswith("-delete")]
    assert broker.metadata.topic("t") is None
    broker.kill()
    assert broker.directories() == []


def test_offsets_of_a_deleted_topic_do_not_hide_records_of_the_next(broker: Broker) -> None:
    """A checkpoint knows names only; one of the old topic must not be read for the new."""
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a", "b", "c", "d")
    broker.replicas.delete_records({("t", 0): 3})
    broker.restart()
    broker.replicas.delete_topic("t")
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "e")
    broker.kill()
    assert broker.replicas.partition("t", 0).log_start_offset == 0
    assert broker.replicas.partition("t", 0).log.recovered.bytes_checked > 0
    assert broker.values("t") == ["e"]


def test_an_interrupted_creation_leaves_nothing(broker: Broker) -> None:
    config = BrokerConfig().log
    broker.logs.create("t", 0, uuid.uuid4(), config)
    broker.kill()
    assert broker.directories() == []
    broker.replicas.create_topic("t", 1, {})


@pytest.mark.parametrize("data", [None, b"", b"version: 0\ntopic"])
def test_a_log_whose_topic_id_was_lost_is_adopted(broker: Broker, data: bytes | None) -> None:
    """The note of the id is not synced when a topic is made; the log's name says enough."""
    topic = broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    assert isinstance(broker.files, MemFiles)
    path = DATA_DIR / "t-0" / "partition.metadata"
    broker.files.remove(path)
    if data is not None:
        broker.files.put(path, data)
    broker.kill()
    assert broker.values("t") == ["a"]
    assert str(topic.topic_id).encode() in broker.files.get(path)


def test_a_deleted_log_can_no_longer_be_used(broker: Broker) -> None:
    """Neither by a request that holds it, nor by a sync that is under way."""
    broker.replicas.create_topic("t", 1, {"flush.ms": "0"})
    broker.append("t", 0, "a")
    partition = broker.replicas.partition("t", 0)
    (job,) = broker.logs.flush_jobs()
    broker.replicas.delete_topic("t")
    job.run()
    broker.logs.flushed([job])
    assert not partition.is_online
    with pytest.raises(KafkaError):
        partition.fetch(0, 100)


def test_idle_checkpoints_write_nothing(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    assert isinstance(broker.files, MemFiles)
    broker.logs.checkpoint_recovery_points()
    broker.logs.checkpoint_log_starts()
    writes = broker.files.writes
    broker.logs.checkpoint_recovery_points()
    broker.logs.checkpoint_log_starts()
    assert broker.files.writes == writes


def test_a_log_with_data_that_no_topic_knows_is_kept_aside(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    broker.replicas.close()
    assert isinstance(broker.files, MemFiles)
    broker.files.remove(DATA_DIR / "metadata.json")
    broker.files = broker.files.kill()
    broker.start()
    (stray,) = broker.directories()
    assert stray.startswith("t-0.") and stray.endswith("-stray")
    assert broker.report()[-1]["event"] == "stray"
    broker.replicas.create_topic("t", 1, {})
    assert broker.values("t") == []


def test_a_creation_that_fails_leaves_nothing(broker: Broker) -> None:
    assert isinstance(broker.files, MemFiles)
    broker.files.fail("open", errno.EIO, path_part="t-1")
    with pytest.raises(KafkaError) as error:
        broker.replicas.create_topic("t", 3, {})
    assert code(error) is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.metadata.topic("t") is None
    broker.replicas.create_topic("t", 3, {})


def test_partitions_can_be_added(broker: Broker) -> None:
    broker.replicas.create_topic("t", 1, {})
    broker.append("t", 0, "a")
    assert len(broker.replicas.create_partitions("t", 3).partitions) == 3
    assert broker.append("t", 2, "b") == 0
    for total in (3, 2, 0):
        with pytest.raises(KafkaError) as error:
            broker.replicas.create_partitions("t", total)
        assert code(error) is ErrorCode.INVALID_PARTITIONS
    broker.restart()
    assert broker.values("t", 2) == ["b"]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "a/b", "x" * 250])
def test_invalid_names_are_refused(broker: Broker, name: str) -> None:
    """Pitfall 23: INVALID_TOPIC_EXCEPTION, never created."""
    with pytest.raises(KafkaError) as error:
        broker.replicas.create_topic(name, 1, {})
    assert code(error) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_longest_name_can_be_used_and_deleted(broker: Broker, tmp_path: Path) -> None:
    real = Broker(OsFiles(), tmp_path / "data")
    name = "x" * 249
    real.replicas.create_topic(name, 1, {})
    real.append(name, 0, "a")
    real.replicas.delete_topic(name)
    real.replicas.close()


def test_names_that_collide_in_metrics_are_refused(broker: Broker) -> None:
    broker.replicas.create_topic("a.b", 1, {})
    with pytest.raises(KafkaError) as error:
        broker.replicas.create_topic("a_b", 1, {})
    assert code(error) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_bad_settings_are_refused(broker: Broker) -> None:
    """Pitfall 23: INVALID_CONFIG, at creation and later."""
    for configs in ({"segment.bytes": "many"}, {"no.such.setting": "1"}):
        with pytest.raises(KafkaError) as error:
            broker.replicas.create_topic("t", 1, configs)
        assert code(error) is ErrorCode.INVALID_CONFIG
    broker.replicas.create_topic("t", 1, {})
    with pytest.raises(KafkaError):
        broker.replicas.set_configs("t", {"cleanup.policy": "sometimes"})
    broker.replicas.set_configs("t", {"max.message.bytes": "100"})
    with pytest.raises(KafkaError) as error:
        broker.append("t", 0, "x" * 200)
    assert code(error) is ErrorCode.MESSAGE_TOO_LARGE
    broker.restart()
    assert broker.replicas.partition("t", 0).log.config.max_message_bytes == 100


def test_acks_all_below_min_insync_is_refused_before_the_append(broker: Broker) -> None:
    """Pitfall 21: NOT_ENOUGH_REPLICAS, and nothing is stored."""
    broker.replicas.create_topic("t", 1, {"min.insync.replicas": "2"})
    partition = broker.replicas.partition("t", 0)
    records = memoryview(build_batch([NewRecord(None, b"x", broker.clock.now_ms())]))
    with pytest.raises(KafkaError) as error:
        partition.append(records, acks_all=True)
    assert code(error) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.append(records).base_offset == 0


def test_listeners_hear_of_appends_and_removals(broker: Broker) -> None:
    heard: list[tuple[str, int]] = []
    gone: list[Partition] = []
    broker.replicas.advance_listeners.append(lambda p, size: heard.append((p.topic, size)))
    broker.replicas.removal_listeners.append(gone.append)
    broker.replicas.create_topic("t", 1, {})
    partition = broker.replicas.partition("t", 0)
    for _ in range(2):  # the second is a repetition
        record = NewRecord(None, b"a", broker.clock.now_ms())
        data = build_batch([record], producer_id=1, producer_epoch=0, base_sequence=0)
        partition.append(memoryview(data))
    assert heard == [("t", partition.size_bytes)]
    broker.replicas.delete_topic("t")
    assert gone == [partition]


def test_epochs_that_do_not_fit_are_told_apart(broker: Broker) -> None:
    """Pitfall 5: fetch and ListOffsets check the epoch that the client believes in."""
    broker.replicas.create_topic("t", 1, {})
    broker.kill()
    partition = broker.replicas.partition("t", 0)
    partition.check_leader_epoch(-1)
    partition.check_leader_epoch(1)
    for epoch, expected in (
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        with pytest.raises(KafkaError) as error:
            partition.check_leader_epoch(epoch)
        assert code(error) is expected


# -- metadata ----------------------------------------------------------------------------------


def test_cluster_id_has_kafkas_form(broker: Broker) -> None:
    assert len(broker.metadata.cluster_id) == 22
    assert not broker.metadata.cluster_id.startswith("-")


def test_producer_ids_are_given_once(broker: Broker) -> None:
    first = run(broker.metadata.allocating_producer_ids())
    broker.kill()
    second = run(broker.metadata.allocating_producer_ids())
    assert not set(first) & set(second)


def test_views_do_not_change_under_their_holders(broker: Broker) -> None:
    broker.replicas.create_topic("a", 1, {})
    before, version = broker.metadata.topics, broker.metadata.version
    broker.replicas.create_topic("b", 1, {})
    assert list(before) == ["a"]
    assert list(broker.metadata.topics) == ["a", "b"]
    assert broker.metadata.version > version


def test_metadata_that_cannot_be_written_is_not_shown(broker: Broker) -> None:
    assert isinstance(broker.files, MemFiles)
    broker.files.fail("write", errno.ENOSPC, path_part="metadata.json")
    with pytest.raises(KafkaError) as error:
        broker.replicas.create_topic("t", 1, {})
    assert code(error) is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.metadata.topic("t") is None
    assert broker.replicas.find("t", 0) is None
    assert broker.directories() == []


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format": 1}'])
def test_damaged_metadata_stops_the_start(broker: Broker, data: bytes) -> None:
    broker.replicas.close()
    assert isinstance(broker.files, MemFiles)
    broker.files.put(DATA_DIR / "metadata.json", data)
    with pytest.raises(MetadataError, match="damaged"):
        broker.start()


def test_another_brokers_directory_is_refused(broker: Broker) -> None:
    broker.replicas.close()
    broker.settings["broker.id"] = "5"
    with pytest.raises(MetadataError, match="belongs to broker"):
        broker.start()


def test_a_section_of_the_metadata_survives_a_kill(broker: Broker) -> None:
    assert broker.metadata.section("quotas") == {}
    version = broker.metadata.version
    broker.metadata.put_section("quotas", {"app": {"producer_byte_rate": 1.0}})
    assert broker.metadata.version > version
    assert isinstance(broker.files, MemFiles)
    broker.files.fail("write", errno.ENOSPC, path_part="metadata.json")
    with pytest.raises(OSError):
        broker.metadata.put_section("quotas", {})
    assert broker.metadata.section("quotas") == {"app": {"producer_byte_rate": 1.0}}
    broker.kill()
    assert broker.metadata.section("quotas") == {"app": {"producer_byte_rate": 1.0}}
