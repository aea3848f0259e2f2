"""Readiness: each probe asks the service for what it is there for; an open port proves nothing.

A probe returns a few words on what it saw, or raises ``NotReady``.
"""

from __future__ import annotations

import json
import logging
import socket
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from penstock_platform.alerts.dagster_state import (
    CALL_SECONDS,
    DAEMONS,
    DagsterSilentError,
    first_cause,
    graphql,
)
from penstock_platform.alerts.model.chain_health import HEARTBEAT_SECONDS_MAX
from penstock_platform.settings import LOCATION_NAME, Settings
from penstock_platform.system_clock import SystemClock
from penstock_services import layout
from penstock_services.workers import ask

WATCHER_SECONDS_MAX = 90.0
# The first query of a Connect server loads classes for some seconds.
SPARK_SECONDS = 60.0
PROBE_SESSION = str(uuid.uuid4())  # one a process: see probe_spark


class NotReady(Exception):  # noqa: N818 - not an error: the service is not there yet
    """The service does not serve (yet); the text says what was seen."""


class Broken(NotReady):
    """It will not become ready by waiting: the text says what to fix."""


Probe = Callable[[Settings], str]


def probe_kafka(settings: Settings) -> str:
    """Metadata through librdkafka, with the user's own properties (SASL, TLS)."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - only what is probed is loaded
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    _connect(settings.bootstrap_servers.split(",")[0])
    quiet = logging.getLogger("penstock.probe.kafka")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    client = AdminClient(
        {
            **settings.kafka.properties,
            "bootstrap.servers": settings.bootstrap_servers,
            "socket.timeout.ms": int(CALL_SECONDS * 1000),
        },
        logger=quiet,
    )
    try:
        metadata = client.list_topics(timeout=CALL_SECONDS)
    except KafkaException as error:
        raise NotReady(f"no metadata: {error.args[0]}") from error
    topics = sum(not name.startswith("__") for name in metadata.topics)
    return f"{len(metadata.brokers)} broker(s), {topics} topic(s)"


def probe_broker(settings: Settings) -> str:
    """Penstock's broker: its own readiness report where it has one, then as any Kafka.

    With ``penstock.http.listener`` among the broker's settings the reasons are its own: how many
    logs are loaded, which partitions are offline.
    """
    address = settings.kafka.broker.get("penstock.http.listener", "")
    if address and not address.endswith(":0"):
        _connect(address)
        try:
            with urllib.request.urlopen(f"http://{address}/health/ready", timeout=CALL_SECONDS):
                pass
        except urllib.error.HTTPError as refusal:
            reasons = json.load(refusal).get("reasons", []) if refusal.code == 503 else []
            raise NotReady("; ".join(reasons) or str(refusal)) from refusal
        except (OSError, ValueError) as error:
            raise NotReady(str(error)) from error
    return probe_kafka(settings)


def probe_s3(settings: Settings) -> str:
    """A signed call for the bucket."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore  # noqa: PLC0415

    from penstock_platform.archive.store import s3_client  # noqa: PLC0415

    address = urlsplit(settings.s3_endpoint)
    port = address.port or (443 if address.scheme == "https" else 80)
    _connect(f"{address.hostname}:{port}")
    try:
        s3_client(settings, seconds=CALL_SECONDS, attempts=1).head_bucket(Bucket=settings.s3.bucket)
    except ClientError as error:
        status = error.response["ResponseMetadata"].get("HTTPStatusCode")
        if status == 404:
            return f"serving; bucket {settings.s3.bucket} is not there yet"
        raise Broken(
            f"the store refuses bucket {settings.s3.bucket} with {status}: check s3.access_key "
            "and s3.secret_key"
        ) from error
    except BotoCoreError as error:
        raise NotReady(str(error)) from error
    return f"bucket {settings.s3.bucket}"


def probe_spark(settings: Settings) -> str:
    """A query that goes through the catalog, over the Connect protocol itself.

    On a cold machine an attempt can time out while its session still makes the catalog's tables in
    the server. The next attempt is in the same session, which waits for that; another session would
    make them too, and fail.
    """
    import grpc  # type: ignore[import-untyped]  # noqa: PLC0415
    from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc  # noqa: PLC0415

    address = settings.spark_remote.removeprefix("sc://").split("/")[0]
    _connect(address if ":" in address else f"{address}:15002")
    plan = base_pb2.Plan()
    plan.command.sql_command.input.sql.query = "SHOW NAMESPACES IN lake"
    request = base_pb2.ExecutePlanRequest(session_id=PROBE_SESSION, plan=plan)
    request.user_context.user_id = "penstock-probe"
    with grpc.insecure_channel(address) as channel:
        stub = base_pb2_grpc.SparkConnectServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            for _ in stub.ExecutePlan(request, timeout=SPARK_SECONDS):
                continue
            release = base_pb2.ReleaseSessionRequest(session_id=request.session_id)
            release.user_context.user_id = "penstock-probe"
            stub.ReleaseSession(release, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            text = str(error.details()).strip().splitlines() or ["no details"]
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise NotReady(text[0]) from error
            # Another session (a run's) may just be making the catalog's tables: not the last word.
            raise NotReady(f"Spark cannot use the catalog: {text[0]}") from error
    return "catalog lake answers"


def probe_code(settings: Settings) -> str:
    """The health service of the code server."""
    import grpc  # noqa: PLC0415

    address = f"{settings.local_address}:{settings.dagster.code_server_port}"
    _connect(address)
    with grpc.insecure_channel(address) as channel:
        # grpc.health.v1: request {1: service name}, response {1: status}, 1 = SERVING.
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        name = b"DagsterApi"
        try:
            answer = check(bytes([10, len(name)]) + name, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise NotReady(str(error.code())) from error
    if answer != b"\x08\x01":
        raise NotReady("it does not serve yet")
    return settings.dagster.module


def probe_workers(settings: Settings) -> str:
    """The service that forks runs answers."""
    try:
        answer = ask(layout.workers_socket(settings), {"ping": True}, CALL_SECONDS)
    except (OSError, ValueError) as error:
        raise NotReady(str(error)) from error
    return f"{answer.get('running', 0)} run(s) in progress"


def probe_webserver(settings: Settings) -> str:
    """Version and code location through GraphQL; a location that does not load is named."""
    answer = _dagster(settings, _LOCATIONS)
    entries = answer["workspaceOrError"].get("locationEntries", [])
    mine = [entry for entry in entries if entry["name"] == LOCATION_NAME]
    if not mine or mine[0]["loadStatus"] != "LOADED":
        raise NotReady("the code location is loading")
    loaded = mine[0]["locationOrLoadError"]
    if loaded["__typename"] != "RepositoryLocation":
        raise Broken(
            f"The definitions in {settings.dagster.module} do not load: {first_cause(loaded)}; "
            "fix them and run: penstock up"
        )
    return f"Dagster {answer['version']}"


def probe_daemon(settings: Settings) -> str:
    """Every daemon that launches work has reported lately: Dagster itself calls one healthy for
    half an hour after its last heartbeat."""
    answer = _dagster(settings, _DAEMONS)
    statuses = answer["instance"]["daemonHealth"]["allDaemonStatuses"]
    healthy = {s["daemonType"]: s["lastHeartbeatTime"] for s in statuses if s["healthy"]}
    if missing := [name for name in DAEMONS if healthy.get(name) is None]:
        raise NotReady(f"no heartbeat yet from {', '.join(missing)}")
    oldest = max(SystemClock().now().timestamp() - float(healthy[name]) for name in DAEMONS)
    if oldest > HEARTBEAT_SECONDS_MAX:
        raise NotReady(f"its last heartbeat was {oldest:.0f} s ago")
    return f"{len(healthy)} daemons"


def probe_watcher(settings: Settings) -> str:
    """It has looked lately."""
    file = layout.watcher_directory(settings) / "looked"
    try:
        age = SystemClock().now().timestamp() - file.stat().st_mtime
    except OSError as error:
        raise NotReady("it has not run yet") from error
    if age > WATCHER_SECONDS_MAX:
        raise NotReady(f"it last looked {age:.0f} s ago")
    return "looks every few seconds"


PROBES: dict[str, Probe] = {
    "broker": probe_broker,
    "kafka": probe_kafka,
    "s3": probe_s3,
    "spark": probe_spark,
    "code": probe_code,
    "workers": probe_workers,
    "webserver": probe_webserver,
    "daemon": probe_daemon,
    "watcher": probe_watcher,
}

_LOCATIONS = """{ version workspaceOrError { ... on Workspace { locationEntries {
  name loadStatus
  locationOrLoadError { __typename ... on PythonError { message causes { message } } }
} } } }"""
_DAEMONS = (
    "{ instance { daemonHealth { allDaemonStatuses { daemonType healthy lastHeartbeatTime } } } }"
)
_RELOAD = """mutation { reloadRepositoryLocation(repositoryLocationName: "%s") { __typename } }"""


def reload_code(settings: Settings) -> None:
    """Have the code server reload the definitions (``up`` on services that run)."""
    _dagster(settings, _RELOAD % LOCATION_NAME, seconds=60)


def _dagster(settings: Settings, query: str, seconds: float = CALL_SECONDS) -> dict[str, Any]:
    """The webserver's answer to a query; NotReady where there is none."""
    try:
        return graphql(settings, query, seconds)
    except DagsterSilentError as error:
        raise NotReady(str(error)) from error


def _connect(address: str) -> None:
    """A refused connection costs microseconds; client libraries take seconds to find out."""
    host, _, port = address.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CALL_SECONDS).close()
    except (OSError, ValueError) as error:
        raise NotReady(f"{address}: {error}") from error
