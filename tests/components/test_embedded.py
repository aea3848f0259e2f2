"""The platform inside a Dagster project that has jobs, sensors and an executor of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.testing.utils import create_defs_folder_sandbox

from penstock_client import AuditedProducer
from penstock_platform.alerts.channels import read_alerts
from penstock_platform.alerts.own import Own
from penstock_platform.alerts.state import load_state
from penstock_platform.clock import from_iso
from penstock_platform.connections import Connections
from penstock_platform.reconciliation.model.books import WindowState
from penstock_platform.reconciliation.store import BookStore
from penstock_platform.settings import Settings
from penstock_platform.topics.model.declaration import AUDIT_TOPIC
from penstock_platform.windows.store import WindowStore
from polling import until
from postgres import postgres

DEFINITIONS = '''
from pathlib import Path

import dagster as dg


@dg.op
def breaks() -> None:
    raise ValueError("the invoices are late")


@dg.op
def observe_topics() -> None:
    """Called as an op of the platform, but for the prefix."""


@dg.job(name="retention")
def theirs() -> None:
    breaks()
    observe_topics()


@dg.sensor(
    job=theirs, name="window_sensor", default_status=dg.DefaultSensorStatus.RUNNING
)
def window_sensor(context):
    return dg.RunRequest(run_key="once")


defs = dg.Definitions.merge(
    dg.load_from_defs_folder(path_within_project=Path(__file__).parent),
    dg.Definitions(
        jobs=[theirs],
        sensors=[window_sensor],
        resources={"penstocks": dg.ResourceDefinition.hardcoded_resource("theirs")},
        executor=dg.multiprocess_executor,
    ),
)
'''
DECLARATION = """\
type: penstock_platform.TopicComponent
attributes:
  metadata: {{name: {topic}}}
  spec: {{partitions: 1}}
  land: {{window: minutely}}
---
type: penstock_platform.ResourceComponent
attributes:
  home: {home}
  env:
    PENSTOCK_KAFKA_BOOTSTRAP_SERVERS: THEIR_KAFKA
    PENSTOCK_S3_ENDPOINT: THEIR_S3
    PENSTOCK_SPARK_REMOTE: THEIR_SPARK
---
type: penstock_platform.PlatformComponent
attributes:
  reverify: {{cron: "0 0 1 1 *"}}
  observe: {{cron: "0 0 1 1 *"}}
"""
INSTANCE = """\
storage:
  postgres:
    postgres_url: {url}
run_launcher: {{module: dagster, class: DefaultRunLauncher}}
run_coordinator: {{module: dagster, class: QueuedRunCoordinator}}
run_retries: {{enabled: false}}
telemetry: {{enabled: false}}
"""


def platform(attributes: str = "{}") -> str:
    return f"type: penstock_platform.PlatformComponent\nattributes: {attributes}\n"


def topic(name: str) -> str:
    return (
        "type: penstock_platform.TopicComponent\n"
        f"attributes: {{metadata: {{name: {name}}}, land: {{window: minutely}}}}\n"
    )


@contextmanager
def loaded(*documents: str) -> Iterator[dg.Definitions]:
    """A project with these documents in its ``defs`` folder."""
    with create_defs_folder_sandbox() as sandbox:
        file = sandbox.defs_folder_path / "penstock" / "defs.yaml"
        file.parent.mkdir(parents=True)
        file.write_text("---\n".join(documents))
        with sandbox.build_all_defs() as defs:
            yield defs


def names_of(defs: dg.Definitions) -> set[str]:
    repository = defs.get_repository_def()
    return {
        *(job for job in repository.job_names if not job.startswith("__")),
        *(sensor.name for sensor in repository.sensor_defs),
        *(schedule.name for schedule in repository.schedule_defs),
    }


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that does not exist, and no socket that opens."""
    home = tmp_path / "nowhere" / "home"
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    monkeypatch.chdir(tmp_path)

    def refuse(*_arguments: Any, **_options: Any) -> Any:
        raise AssertionError("definitions load without a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    return home


def test_every_name_has_the_prefix_and_the_executor_is_the_projects(nowhere: Path) -> None:
    with loaded(topic("orders"), platform()) as defs:
        assert all(name.startswith("penstock_") for name in names_of(defs))
        assert defs.executor is None
        assert dict(defs.resources or {}).keys() == {"penstock"}
        job = defs.resolve_job_def("penstock_land_orders")
        tags = {"penstock/job": "land", "penstock/cluster": "local", "penstock/topic": "orders"}
        assert tags.items() <= job.run_tags.items()
        for name in defs.get_repository_def().job_names:
            if name.startswith("penstock_"):
                assert defs.resolve_job_def(name).run_tags["penstock/job"]
    with loaded(topic("orders"), platform('{prefix: "acme_"}')) as defs:
        assert all(name.startswith("acme_") for name in names_of(defs))


def test_loading_writes_nothing_and_connects_nowhere(nowhere: Path) -> None:
    with loaded(topic("orders"), platform()) as defs:
        dg.Definitions.validate_loadable(defs)
    assert not nowhere.parent.exists()


def test_the_resource_is_the_projects_to_configure(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = (
        "type: penstock_platform.ResourceComponent\n"
        f"attributes:\n  home: {tmp_path}/other\n"
        "  env: {PENSTOCK_KAFKA_BOOTSTRAP_SERVERS: BROKERS}\n"
    )
    with loaded(topic("orders"), declared, platform()) as defs:
        (resource,) = dict(defs.resources or {}).values()
        with pytest.raises(Exception, match="BROKERS is not set"):
            _ = resource.connections
        monkeypatch.setenv("BROKERS", "kafka.example:9092")
        settings = resource.connections.settings
        assert settings.bootstrap_servers == "kafka.example:9092"
        assert settings.home == tmp_path / "other"

        @dg.op(required_resource_keys={"penstock"})
        def reads(context: dg.OpExecutionContext) -> str:
            assert isinstance(context.resources.penstock, Connections)
            return str(context.resources.penstock.settings.home)

        @dg.job(resource_defs={"penstock": resource})
        def reading() -> None:
            reads()

        done = reading.execute_in_process()
        assert done.output_for_node("reads") == str(tmp_path / "other")


def test_a_variable_that_does_not_exist_is_named_with_its_line(nowhere: Path) -> None:
    declared = (
        "type: penstock_platform.ResourceComponent\n"
        "attributes:\n  env:\n    PENSTOCK_S3_ENDPONT: X\n"
    )
    with pytest.raises(Exception) as raised, loaded(declared):
        pass
    assert "PENSTOCK_S3_ENDPOINT" in str(raised.value.__cause__ or raised.value)


@pytest.mark.parametrize(
    ("module", "extra"),
    [("pyspark", "spark"), ("great_expectations", "quality"), ("apprise", "alerts")],
)
def test_without_its_extras_the_platform_loads_and_names_what_is_missing(
    tmp_path: Path, module: str, extra: str
) -> None:
    (tmp_path / "defs" / "a").mkdir(parents=True)
    (tmp_path / "defs" / "a" / "defs.yaml").write_text(f"{topic('orders')}---\n{platform()}")
    code = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in ('pyspark', 'pandas', 'great_expectations', 'apprise',
                                      'matplotlib', 'dagster_graphql'):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import importlib.util
found = importlib.util.find_spec
def find_spec(name, package=None):
    try:
        return found(name, package)
    except ModuleNotFoundError:
        return None
importlib.util.find_spec = find_spec
from pathlib import Path
from penstock_platform.components.validation import problems_of_folder
assert problems_of_folder(Path('defs')).topics
import penstock_platform.components.platform_component, penstock_platform.quality.suite
from penstock_platform.extras import MissingExtraError, require_extra
try:
    require_extra({module!r})
except MissingExtraError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"pip install 'penstock-platform[{extra}]'" in done.stdout


def test_what_is_ours(ready: Any) -> None:
    """Runs of our jobs on our cluster, and of our assets alone; no others of the instance."""
    own = Own([ready.plan], "local")
    key = ready.plan.bronze_key

    def run(**options: Any) -> dg.DagsterRun:
        return dg.DagsterRun(job_name="any", **options)

    assert own.run(run(tags={"penstock/job": "land", "penstock/cluster": "local"}))
    assert not own.run(run(tags={"penstock/job": "land", "penstock/cluster": "another"}))
    assert not own.run(run())
    assert own.run(run(asset_selection={key}))
    assert not own.run(run(asset_selection={key, dg.AssetKey("theirs")}))
    theirs = dg.AssetCheckKey(dg.AssetKey("theirs"), "lag")
    ours = dg.AssetCheckKey(key, "stored_equals_landed")
    assert own.checks([theirs, ours]) == [ours]


def test_a_failed_run_of_another_project_raises_no_alert(ready: Any) -> None:
    @dg.op
    def breaks() -> None:
        raise ValueError("theirs")

    @dg.job(name="retention")
    def theirs() -> None:
        breaks()

    assert not theirs.execute_in_process(instance=ready.instance, raise_on_error=False).success
    cursor = ready.tick("alert_sensor").cursor
    assert not ready.alerts()
    ready.refuse_rows = None  # ours breaks too
    window = ready.frozen(5)
    assert not ready.land(window).success
    ready.tick("alert_sensor", cursor)
    assert ready.alerts(), "the alert sensor looks at our own"


class Foreign:
    """Another team's Dagster: daemon, code and PostgreSQL storage in processes of their own."""

    def __init__(self, folder: Path, settings: Settings, url: str) -> None:
        self.topic = f"orders-{uuid.uuid4().hex[:6]}"
        self.folder = folder
        package = folder / "theirs"
        (package / "defs" / "penstock").mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "definitions.py").write_text(DEFINITIONS)
        declaration = DECLARATION.format(topic=self.topic, home=settings.home)
        (package / "defs" / "penstock" / "defs.yaml").write_text(declaration)
        self.instance_home = folder / "instance"
        self.instance_home.mkdir()
        (self.instance_home / "dagster.yaml").write_text(INSTANCE.format(url=url))
        (folder / "pyproject.toml").write_text(
            '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "theirs"\n'
        )
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")},
            "DAGSTER_HOME": str(self.instance_home),
            "PYTHONPATH": str(folder),
            "THEIR_KAFKA": settings.bootstrap_servers,
            "THEIR_S3": settings.s3_endpoint,
            "THEIR_SPARK": settings.spark_remote,
        }

    @contextmanager
    def daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        program = Path(sys.executable).with_name("dagster-daemon")
        command = [program, "run", "-m", "theirs.definitions"]
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            # Its code server, too, which may outlive it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


@pytest.mark.services
@pytest.mark.slow
@pytest.mark.xdist_group("lake")
def test_a_window_lands_in_a_foreign_project(penstock: Connections, tmp_path: Path) -> None:
    """Their job, sensor, executor, launcher and database; our window, and no alert of theirs."""
    with postgres() as url:
        foreign = Foreign(tmp_path, penstock.settings, url)
        for name in (foreign.topic, AUDIT_TOPIC):
            if name not in penstock.kafka.topics():
                penstock.kafka.create(name, 1)
        with (
            foreign.daemon() as daemon,
            dg.DagsterInstance.from_config(str(foreign.instance_home)) as instance,
        ):
            story(penstock, foreign, daemon, instance)


def story(
    penstock: Connections,
    foreign: Foreign,
    daemon: subprocess.Popen[bytes],
    instance: dg.DagsterInstance,
) -> None:
    def alive() -> bool:
        assert daemon.poll() is None, (foreign.folder / "log").read_text()[-4000:]
        return True

    store, ref = WindowStore.of(penstock), penstock.kafka.ref(foreign.topic)
    cluster = penstock.settings.cluster
    until(
        "the window sensor has looked",
        lambda: alive() and store.known_start(cluster, foreign.topic),
        seconds=600,
    )
    with AuditedProducer({"bootstrap.servers": penstock.settings.bootstrap_servers}) as producer:
        for number in range(20):
            producer.produce(foreign.topic, b'{"id": %d}' % number)

    def balanced() -> bool:
        found = [w for w in store.all(ref, 0) if w.record_count]
        books = [BookStore.of(penstock).newest_book(ref, w.sequence) for w in found]
        return bool(books) and all(b and b.state is WindowState.BALANCED for b in books)

    until("the window is landed and proven", lambda: alive() and balanced(), seconds=900, pause=1)

    (landing,) = instance.get_runs(dg.RunsFilter(job_name=f"penstock_land_{table(foreign.topic)}"))
    until("the run has ended", lambda: instance.get_run_by_id(landing.run_id).is_finished)
    assert landing.tags["penstock/job"] == "land"
    assert not workers(instance, landing.run_id), "our job's steps ran in its own process"

    (theirs,) = instance.get_runs(dg.RunsFilter(job_name="retention"))
    until("their run has ended", lambda: instance.get_run_by_id(theirs.run_id).is_finished)
    assert instance.get_run_by_id(theirs.run_id).is_failure
    assert workers(instance, theirs.run_id), "their executor is still theirs"
    assert not any(tag.startswith("penstock") for tag in theirs.tags)

    after = datetime.now(UTC)
    directory = penstock.settings.alert_directory
    until(
        "the alert sensor has looked since",
        lambda: alive() and (at := load_state(directory).at) and from_iso(at) > after,
        pause=1,
    )
    said = json.dumps(list(read_alerts(penstock.settings.alert_file)))
    assert "invoices" not in said
    assert theirs.run_id not in said


def workers(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Whether steps of the run had processes of their own."""
    kind = dg.DagsterEventType.STEP_WORKER_STARTED
    return bool(instance.get_records_for_run(run_id, of_type=kind).records)


def table(topic: str) -> str:
    return topic.replace("-", "_").replace(".", "_")
