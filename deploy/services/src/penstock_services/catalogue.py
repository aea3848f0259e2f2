"""The services: what each is started with, where it serves, and which setting replaces it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock_platform.settings import LOCATION_NAME, Settings
from penstock_services import layout
from penstock_services.errors import ServiceError
from penstock_services.java import Java

# Variables that every service carries, so that its processes can be distinguished from others.
SERVICE_VARIABLE = "PENSTOCK_SERVICE"
LOADS_DEFINITIONS = ("code", "workers")


# Nothing here multiplies matrices, and workers are forked before any thread is started: neither
# BLAS nor Arrow's allocator may start one when they are imported.
WITHOUT_THREADS = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}

# S3Proxy and the launcher idle most of their lives: a small heap and the light compiler.
FRUGAL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k")
# Spark keeps the full compiler, for generated code is its speed, but only for what is ten times as
# hot as usual: small windows spent half of their processor time in it, compiling code that ran for
# a second (eight windows of 60,000 records: 112 CPU seconds before, 94 with this, 98 without the
# full compiler at all, which made large windows slow). No heap ratios: giving idle heap back at
# once tripled the time for garbage collection, for 50 MB.
SPARK_JVM = (
    "-XX:+UseSerialGC",
    "-XX:ReservedCodeCacheSize=128m",
    "-Xms96m",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=10000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)


@dataclass(frozen=True)
class Service:
    """One process under supervision. ``after`` names services that must serve first."""

    name: str
    title: str
    endpoint: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    port_setting: str = ""
    after: tuple[str, ...] = ()
    priority: int = 0
    memory_mb: int = 0
    ready_seconds: int = 600  # against hanging: a busy machine starts a JVM in minutes


@dataclass(frozen=True)
class External:
    """A service that the settings name: not started here, only asked whether it serves."""

    name: str
    title: str
    endpoint: str
    setting: str


@dataclass(frozen=True)
class Tools:
    """What the Java services are made of; None where no Java service is started."""

    java: Java
    spark_jars: tuple[Path, ...]
    s3proxy_jar: Path


def externals(settings: Settings) -> list[External]:
    found = []
    if settings.kafka.bootstrap_servers:
        found.append(
            External("kafka", "Kafka", settings.bootstrap_servers, "kafka.bootstrap_servers")
        )
    if settings.s3.endpoint:
        found.append(External("s3", "S3", settings.s3_endpoint, "s3.endpoint"))
    if settings.spark.remote:
        found.append(External("spark", "Spark Connect", settings.spark_remote, "spark.remote"))
    return found


def needs_java(settings: Settings) -> bool:
    return not (settings.s3.endpoint and settings.spark.remote)


def outline(settings: Settings) -> list[Service]:
    """The services to start, in the order in which they are started and shown, without their
    commands: what ``status`` needs, without a look for Java."""
    table = [
        Service(
            name="broker",
            title="Kafka broker",
            endpoint=settings.bootstrap_servers,
            port=settings.kafka.port,
            port_setting="kafka.port",
            priority=10,
            memory_mb=120,
        ),
        Service(
            name="s3",
            title="S3 (S3Proxy)",
            endpoint=settings.s3_endpoint,
            port=settings.s3.port,
            port_setting="s3.port",
            priority=20,
            memory_mb=250,
        ),
        Service(
            name="spark",
            title="Spark Connect",
            endpoint=settings.spark_remote,
            port=settings.spark.port,
            port_setting="spark.port",
            priority=30,
            memory_mb=900,
        ),
        *_dagster(settings),
    ]
    given = {external.name for external in externals(settings)}
    return [
        s for s in table if s.name not in given and not (s.name == "broker" and "kafka" in given)
    ]


def _dagster(settings: Settings) -> list[Service]:
    dagster = settings.dagster
    return [
        Service(
            name="code",
            title="Dagster code server",
            endpoint=f"grpc://{settings.local_address}:{dagster.code_server_port}",
            port=dagster.code_server_port,
            port_setting="dagster.code_server_port",
            priority=40,
            memory_mb=500,
        ),
        Service(
            name="workers",
            title="Run workers",
            endpoint="",
            priority=45,
            memory_mb=300,
        ),
        Service(
            name="webserver",
            title="Dagster UI",
            endpoint=settings.dagster_url,
            port=dagster.port,
            port_setting="dagster.port",
            after=("code",),
            priority=50,
            memory_mb=300,
        ),
        Service(
            name="daemon",
            title="Dagster daemon",
            endpoint="",
            after=("code", "workers"),
            priority=60,
            memory_mb=300,
        ),
        Service(
            name="watcher",
            title="Watcher",
            endpoint="",
            priority=70,  # ends first: what ends after it is no incident
            memory_mb=60,
        ),
    ]


def services(
    settings: Settings, tools: Tools | None, env: Mapping[str, str] | None = None
) -> list[Service]:
    """``outline`` with command and environment.

    ``env`` is the caller's environment: its ``PENSTOCK_…`` variables are settings, and hold in
    the services as they do here.
    """
    env = os.environ if env is None else env
    return [
        replace(
            service,
            command=_command(service.name, settings, tools),
            environment={
                **_environment(settings, service.name, env),
                **(_spark_environment(settings, tools) if service.name == "spark" else {}),
            },
        )
        for service in outline(settings)
    ]


def _command(name: str, settings: Settings, tools: Tools | None) -> tuple[str, ...]:
    if name in ("s3", "spark"):
        if tools is None:
            raise ServiceError(f"the service {name} needs Java, which was not looked for")
        return _s3(settings, tools) if name == "s3" else _spark(settings, tools)
    plain = {
        "broker": _broker,
        "code": _code,
        "workers": _workers,
        "webserver": _webserver,
        "daemon": _daemon,
        "watcher": _watcher,
    }
    return plain[name](settings)


def _broker(settings: Settings) -> tuple[str, ...]:
    sets = [
        part
        for name, value in sorted(settings.kafka.broker.items())
        for part in ("--set", f"{name}={value}")
    ]
    return (
        _script("penstock-broker"),
        "serve",
        *("--data-dir", str(layout.broker_directory(settings))),
        *("--host", settings.host),
        *("--port", str(settings.kafka.port)),
        *sets,
    )


def _s3(settings: Settings, tools: Tools) -> tuple[str, ...]:
    return (
        str(tools.java.executable),
        *FRUGAL_JVM,
        *("-Xms32m", "-Xmx192m", "-XX:MaxDirectMemorySize=64m"),
        *("-jar", str(tools.s3proxy_jar)),
        *("--properties", str(layout.s3proxy_properties(settings))),
    )


def _spark(settings: Settings, tools: Tools) -> tuple[str, ...]:
    home = _pyspark_home()
    return (
        str(home / "bin" / "spark-submit"),
        *("--master", settings.spark.master),
        *("--properties-file", str(layout.spark_properties(settings))),
        *("--jars", ",".join(str(jar) for jar in tools.spark_jars)),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        str(next((home / "jars").glob("spark-connect_*.jar"))),
    )


def _spark_environment(settings: Settings, tools: Tools | None) -> dict[str, str]:
    return {
        **(tools.java.environment() if tools else {}),
        "SPARK_HOME": str(_pyspark_home()),
        "SPARK_CONF_DIR": str(layout.spark_conf_directory(settings)),
        "SPARK_LOCAL_IP": settings.local_address,
        # The script's own little JVM, which builds the command line of the large one.
        "SPARK_LAUNCHER_OPTS": " ".join(FRUGAL_JVM),
    }


def _code(settings: Settings) -> tuple[str, ...]:
    return (
        *(sys.executable, "-m", "dagster", "code-server", "start"),
        *("-h", settings.local_address),
        *("-p", str(settings.dagster.code_server_port)),
        *("-m", settings.dagster.module),
        *("-d", str(settings.code_folder)),
        *("--location-name", LOCATION_NAME),
        *("--log-level", "warning"),
    )


def _workers(settings: Settings) -> tuple[str, ...]:
    return (
        *(sys.executable, "-m", "penstock_services.workers"),
        *("--socket", str(layout.workers_socket(settings))),
        *("--module", settings.dagster.module),
        *("--project", str(settings.code_folder)),
        *(p for file in layout.definition_sources(settings) for p in ("--source", str(file))),
    )


def _webserver(settings: Settings) -> tuple[str, ...]:
    return (
        *(sys.executable, "-m", "dagster_webserver"),
        *("-h", settings.host),
        *("-p", str(settings.dagster.port)),
        *("-w", str(layout.workspace_yaml(settings))),
        *("--dagster-log-level", "warning"),
    )


def _daemon(settings: Settings) -> tuple[str, ...]:
    return (
        *(sys.executable, "-m", "dagster._daemon", "run"),
        *("-w", str(layout.workspace_yaml(settings))),
    )


def _watcher(_settings: Settings) -> tuple[str, ...]:
    return (sys.executable, "-m", "penstock_services.watcher")


def _environment(settings: Settings, name: str, env: Mapping[str, str]) -> dict[str, str]:
    """What every service sees, whatever shell ``up`` was typed in."""
    scripts = str(Path(sys.executable).parent)
    return {
        **(settings.project_variables() if name in LOADS_DEFINITIONS else {}),
        **{key: value for key, value in env.items() if key.startswith("PENSTOCK_")},
        "PENSTOCK_HOME": str(settings.home),
        SERVICE_VARIABLE: name,
        "DAGSTER_HOME": str(settings.dagster_home),
        "PATH": f"{scripts}:{env.get('PATH', os.defpath)}",
        "PYTHONUNBUFFERED": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "GX_ANALYTICS_ENABLED": "false",
        # Dagster's minute for any call is too short for a busy machine of two cores.
        "DAGSTER_GRPC_TIMEOUT_SECONDS": "300",
        # Many small worker processes: glibc's arena per thread would cost more than the data.
        "MALLOC_ARENA_MAX": "2",
        **WITHOUT_THREADS,
    }


def _script(name: str) -> str:
    path = Path(sys.executable).parent / name
    if not path.is_file():
        raise ServiceError(
            f"{path} is missing: the distribution {name} is not installed here; run: make install"
            " (or: pip install penstock-broker), or set kafka.bootstrap_servers to your Kafka"
        )
    return str(path)


def _pyspark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServiceError("pyspark is not installed in this environment; run: make install")
    return Path(spec.origin).parent
