"""The real services: up, killed and back by themselves, asked, and down without a trace."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import polling
from penstock_platform.alerts.dagster_state import graphql
from penstock_platform.archive.store import S3Archive
from penstock_platform.cli import main as cli_main
from penstock_platform.settings import (
    DagsterSettings,
    KafkaSettings,
    S3Settings,
    Settings,
    SparkSettings,
)
from penstock_services import doctor, layout, stack
from penstock_services.catalogue import outline
from penstock_services.errors import ServiceError
from penstock_services.probes import PROBES, NotReady
from penstock_services.stack import Progress
from penstock_services.status import stack_status
from penstock_services.supervisor import Supervisor, orphans
from polling import until

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(3600)]

DEFINITIONS = """
import os, pathlib, sys
import dagster as dg

sys.path.append({tests!r})
from polling import until

@dg.asset
def {name}() -> None: ...

@dg.op
def wait(context):
    pathlib.Path("run.pid").write_text(str(os.getpid()))
    until("the test lets it end", pathlib.Path("go").exists, seconds=3600)

@dg.job(executor_def=dg.in_process_executor)
def waiting():
    wait()

defs = dg.Definitions(assets=[{name}], jobs=[waiting])
"""
LAUNCH = """mutation {{ launchRun(executionParams: {{ runConfigData: {{}}, selector: {{
  repositoryLocationName: "pipelines", repositoryName: "__repository__", jobName: "{job}" }} }})
  {{ __typename ... on LaunchRunSuccess {{ run {{ runId }} }} }} }}"""
TERMINATE = """mutation {{ terminateRun(runId: "{run}") {{ __typename }} }}"""
LOGS = """{{ logsForRun(runId: "{run}") {{ ... on EventConnection {{ events {{
  ... on MessageEvent {{ message }} }} }} }} }}"""
STATUS = """{{ runOrError(runId: "{run}") {{ ... on Run {{ status }} }} }}"""


def write_definitions(project: Path, name: str) -> None:
    """A code location with an asset ``name``, and the job ``waiting``."""
    text = DEFINITIONS.format(name=name, tests=str(Path(polling.__file__).parent))
    (project / "tiny_definitions.py").write_text(text)


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [s.getsockname()[1] for s in sockets]


def eventually(awaited: str, holds: Callable[[], object]) -> None:
    """Wait for a service: what does not answer yet may still come."""
    until(awaited, holds, seconds=600, pause=0.2, ignoring=(NotReady, ServiceError))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    project = tmp_path_factory.mktemp("project")
    write_definitions(project, "first")
    kafka, s3, spark, code, webserver = free_ports(5)
    return Settings(
        home=project / ".penstock",
        kafka=KafkaSettings(port=kafka),
        s3=S3Settings(port=s3),
        spark=SparkSettings(port=spark, driver_memory="512m"),
        dagster=DagsterSettings(port=webserver, code_server_port=code, module="tiny_definitions"),
    )


@pytest.fixture(scope="module")
def progress_seen() -> list[Progress]:
    return []


@pytest.fixture(scope="module", autouse=True)
def running(here: Settings, progress_seen: list[Progress]) -> Iterator[None]:
    stack.up(here, progress_seen.append)
    try:
        yield
    finally:
        stack.down(here, progress_seen.append)


def pids(here: Settings) -> dict[str, int]:
    return {name: state.pid for name, state in Supervisor(here).states().items() if state.pid}


def test_every_service_serves_and_reported_ready(
    here: Settings, progress_seen: list[Progress]
) -> None:
    ready = {progress.name for progress in progress_seen if progress.phase == "ready"}
    assert ready == {"java", *(service.name for service in outline(here))}
    status = stack_status(here)
    assert status.ready, status
    document = json.loads(json.dumps(status.document()))
    assert document["memory_mb"] < 3000
    assert all(s["pid"] and s["memory_mb"] for s in document["services"])


def test_secrets_are_the_owners_alone(here: Settings) -> None:
    for file in (
        layout.supervisor_conf(here),
        layout.s3proxy_properties(here),
        layout.spark_properties(here),
    ):
        assert file.stat().st_mode & 0o077 == 0, file


def test_doctor_finds_nothing_in_the_way(here: Settings) -> None:
    findings = list(doctor.examine(here))
    assert [f for f in findings if f.status == doctor.PROBLEM] == []
    store = next(f for f in findings if f.subject == "object store")
    assert "1 of 16 racing writers" in store.text


def test_a_second_up_leaves_processes_and_loads_changed_definitions(here: Settings) -> None:
    before = pids(here)
    write_definitions(here.project, "second")
    stack.up(here, lambda _: None)
    assert pids(here) == before
    assets = "{ assetNodes { assetKey { path } } }"
    eventually(
        "the new asset is loaded",
        lambda: graphql(here, assets)["assetNodes"] == [{"assetKey": {"path": ["second"]}}],
    )


def test_definitions_that_do_not_load_are_named_and_loaded_by_the_next_up(here: Settings) -> None:
    good = (here.project / "tiny_definitions.py").read_text()
    (here.project / "tiny_definitions.py").write_text("import no_such_module_here\n")
    with pytest.raises(ServiceError, match="no_such_module_here"):
        stack.up(here, lambda _: None)
    (here.project / "tiny_definitions.py").write_text(good)
    stack.up(here, lambda _: None)
    assert PROBES["webserver"](here)


def test_another_home_on_these_ports_learns_what_holds_them(here: Settings, tmp_path: Path) -> None:
    other = here.model_copy(update={"home": tmp_path / ".penstock"})
    with pytest.raises(ServiceError) as error:
        stack.up(other, lambda _: None)
    for word in (str(here.kafka.port), "kafka.port", "PENSTOCK_KAFKA_PORT", str(here.home)):
        assert word in str(error.value)
    assert Supervisor(other).pid() is None


def test_a_killed_broker_is_back_with_its_records(here: Settings) -> None:
    admin = AdminClient({"bootstrap.servers": here.bootstrap_servers})
    admin.create_topics([NewTopic("kept", 1)])["kept"].result(10)
    producer = Producer({"bootstrap.servers": here.bootstrap_servers, "acks": "all"})
    producer.produce("kept", b"value")
    assert producer.flush(20) == 0
    before = pids(here)["broker"]
    os.kill(before, signal.SIGKILL)
    eventually("broker is started again", lambda: pids(here).get("broker") not in (None, before))
    eventually("the broker knows its topic", lambda: "1 topic(s)" in PROBES["broker"](here))
    reader = Consumer({"bootstrap.servers": here.bootstrap_servers, "group.id": "test"})
    assert reader.get_watermark_offsets(TopicPartition("kept", 0), timeout=20) == (0, 1)
    reader.close()


def test_a_killed_store_is_back_with_its_objects(here: Settings) -> None:
    archive = S3Archive(here)
    assert archive.create("kept/one", b"1")
    before = pids(here)["s3"]
    os.kill(before, signal.SIGKILL)
    eventually("s3 is started again", lambda: pids(here).get("s3") not in (None, before))
    eventually("s3 serves", lambda: PROBES["s3"](here))
    assert S3Archive(here).get("kept/one") == b"1"
    assert S3Archive(here).create("kept/one", b"2") is False


def test_a_killed_spark_is_back(here: Settings) -> None:
    before = pids(here)["spark"]
    os.kill(before, signal.SIGKILL)
    eventually("spark is started again", lambda: pids(here).get("spark") not in (None, before))
    eventually("spark serves", lambda: PROBES["spark"](here))


def launch(here: Settings) -> tuple[str, int]:
    """A run that waits for the file ``go``: its id and its process."""
    for name in ("go", "run.pid"):
        (here.project / name).unlink(missing_ok=True)
    answer = graphql(here, LAUNCH.format(job="waiting"), seconds=600)["launchRun"]
    pid_file = here.project / "run.pid"
    eventually("the run has begun", lambda: pid_file.exists() and pid_file.read_text())
    return answer["run"]["runId"], int(pid_file.read_text())


def run_status(here: Settings, run: str) -> str:
    return str(graphql(here, STATUS.format(run=run))["runOrError"]["status"])


def test_a_run_is_forked_with_everything_imported(here: Settings) -> None:
    run, pid = launch(here)
    assert psutil.Process(pid).ppid() == pids(here)["workers"]
    (here.project / "go").touch()
    eventually("the run ends", lambda: run_status(here, run) == "SUCCESS")
    eventually("its process ends", lambda: not psutil.pid_exists(pid))


def test_a_killed_run_is_failed_at_once(here: Settings) -> None:
    run, pid = launch(here)
    os.kill(pid, signal.SIGKILL)
    eventually("the run ends", lambda: run_status(here, run) == "FAILURE")
    events = graphql(here, LOGS.format(run=run))["logsForRun"]["events"]
    messages = [event.get("message") or "" for event in events]
    # The service that forked it says how it ended; Dagster's monitor, if it comes first, only that.
    reasons = "ended by SIGKILL", f"its process {pid} is gone"
    assert any(reason in message for message in messages for reason in reasons), messages


def test_a_cancelled_run_ends(here: Settings) -> None:
    run, pid = launch(here)
    graphql(here, TERMINATE.format(run=run), seconds=600)
    eventually("the run ends", lambda: run_status(here, run) == "CANCELED")
    eventually("its process ends", lambda: not psutil.pid_exists(pid))


def test_a_run_outlives_the_service_that_forked_it(here: Settings) -> None:
    run, _ = launch(here)
    before = pids(here)["workers"]
    os.kill(before, signal.SIGKILL)
    eventually("workers is started again", lambda: pids(here).get("workers") not in (None, before))
    (here.project / "go").touch()
    eventually("the run ends", lambda: run_status(here, run) == "SUCCESS")
    eventually("workers serves", lambda: PROBES["workers"](here))


def test_a_run_killed_while_no_daemon_watches_is_failed(here: Settings) -> None:
    """Service and run killed together: Dagster's run monitoring asks the launcher."""
    run, pid = launch(here)
    before = pids(here)["workers"]
    os.kill(before, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    eventually("the run ends", lambda: run_status(here, run) == "FAILURE")
    eventually("workers serves", lambda: PROBES["workers"](here))


def test_without_the_service_runs_start_as_dagster_starts_them(here: Settings) -> None:
    supervisor = Supervisor(here)
    supervisor.stop_service("workers")
    run, pid = launch(here)
    assert pids(here)["code"] in {parent.pid for parent in psutil.Process(pid).parents()}
    (here.project / "go").touch()
    eventually("the run ends", lambda: run_status(here, run) == "SUCCESS")
    supervisor.start_service("workers")
    eventually("workers serves", lambda: PROBES["workers"](here))


def test_changed_settings_are_taken_over_by_up(here: Settings) -> None:
    before = pids(here)
    changed = here.model_copy(
        update={"kafka": here.kafka.model_copy(update={"broker": {"log.segment.bytes": "2000000"}})}
    )
    stack.up(changed, lambda _: None)
    after = pids(here)
    assert after.pop("broker") != before.pop("broker")
    assert after == before


def test_commands_in_that_directory(
    here: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(here.project)
    for section in ("kafka", "s3", "spark", "dagster"):
        monkeypatch.setenv(f"PENSTOCK_{section}_PORT".upper(), str(getattr(here, section).port))
    monkeypatch.setenv("PENSTOCK_DAGSTER_CODE_SERVER_PORT", str(here.dagster.code_server_port))
    assert cli_main.run(["status"]) == 0
    assert here.dagster_url in capsys.readouterr().out
    assert cli_main.run(["logs", "broker", "-n", "50"]) == 0
    assert "ready" in capsys.readouterr().out
    assert cli_main.run(["logs", "nothing"]) == 2


def test_down_ends_everything_even_without_supervisord(here: Settings) -> None:
    """The last test of this file: it kills supervisord, so its services have no supervisor."""
    launch(here)
    processes = [psutil.Process(pid) for pid in pids(here).values()]
    children = [child for p in processes for child in p.children(recursive=True)]
    pid = Supervisor(here).pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    eventually("the supervisor is gone", lambda: Supervisor(here).pid() is None)
    assert orphans(here.home), "its services outlive it"
    stack.down(here, lambda _: None)
    assert [p for p in [*processes, *children] if p.is_running()] == []
    assert orphans(here.home) == []
    assert [s.health for s in stack_status(here).services] == ["down"] * len(outline(here))
    removed = stack.purge(here)
    assert str(layout.broker_directory(here)) in removed
    assert not here.home.exists()
    assert (here.project / "tiny_definitions.py").exists()
    assert not psutil.pid_exists(int((here.project / "run.pid").read_text())), "runs end too"
