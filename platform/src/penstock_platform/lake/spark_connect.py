"""The connection to the warm Spark Connect server, or to any other by its address.

What has to be known of Connect:

- The end of a client does not end its operation: a killed landing continues in the server and may
  still commit. So the work on the lake runs in *named* sessions whose id is the same in every
  process, and its operations carry a tag; a second run of the same work interrupts that tag
  first. (An operation can only be interrupted from within its own session.)
- A session that has ended, by a time-out or by being closed, cannot be used again under its id
  while the server remembers that (ours does not). A named session then continues as its next
  generation; nothing of the one before is running any more.
- A dead server shows as UNAVAILABLE for minutes with the client's own patience. Here it is asked
  for a minute, which is more than the supervisor needs to bring it back, and then named.

Called after the server was killed, ``session`` opens a new one; what ran in the old is gone.
"""

from __future__ import annotations

import atexit
import logging
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from penstock_platform.clock import Clock
from penstock_platform.extras import require_extra
from penstock_platform.lake.spark_session import CATALOG_PREFIX, catalog_conf, session_conf
from penstock_platform.settings import Settings
from penstock_platform.system_clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

LAKE_SCOPE = "lake"
USER_ID = "penstock"
CONNECT_DEADLINE_SECONDS = 60.0
PROBE_SECONDS = 2.0
PROBE_PAUSE_SECONDS = 0.25
GENERATIONS_MAX = 1000
# 0.05 s to 5 s apart: a restarted server is reached again, an absent one is given up in 45 s.
RETRIES_MAX = 12
RETRY_BACKOFF_MAX_MS = 5000
_SESSION_ENDED = ("INVALID_HANDLE.SESSION_CLOSED", "INVALID_HANDLE.SESSION_CHANGED")
_DEFAULT_PORT = 15002


class SparkUnavailableError(RuntimeError):
    """The Spark Connect server does not answer: names its address and what to do."""


class SparkConnect:
    """Sessions of one Spark Connect server, opened on first use; safe to share among threads."""

    def __init__(
        self,
        settings: Settings,
        connect_deadline_seconds: float = CONNECT_DEADLINE_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._deadline_seconds = connect_deadline_seconds
        self._sessions: dict[str, SparkSession] = {}
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        return self._settings.spark_remote

    def session(self, scope: str = "") -> SparkSession:
        """A session that answers. Without a scope it is this process's own.

        A scope names a session that all processes share: views and settings made there are seen
        by others. Raises SparkUnavailableError.
        """
        with self._lock:
            session = self._sessions.get(scope)
            if session is not None and self._reachable() is None and _answers(session):
                return session
            self._wait_for_server()
            session = self._open(scope)
            self._sessions[scope] = session
            # Left behind, a session keeps a catalog and an S3 client in the server until it times
            # out. Registered again, so that it runs before what PySpark does at exit: a call to the
            # server for each client, which waits long for one that is gone.
            atexit.unregister(self.close)
            atexit.register(self.close)
            return session

    @contextmanager
    def tagged(self, tag: str, scope: str = LAKE_SCOPE) -> Iterator[SparkSession]:
        """A session whose operations of this thread carry ``tag`` (see ``spark_tag``)."""
        session = self.session(scope)
        session.addTag(spark_tag(tag))
        try:
            yield session
        finally:
            session.removeTag(spark_tag(tag))

    def interrupt(self, tag: str, scope: str = LAKE_SCOPE) -> list[str]:
        """Interrupt what runs under ``tag``, in any process; returns the operations' ids."""
        return list(self.session(scope).interruptTag(spark_tag(tag)))

    def close(self) -> None:
        """Leave all sessions; also called at the end of the process. Its own session ends with it,
        named ones stay for the others. A server that is gone is not waited for."""
        with self._lock:
            left, self._sessions = list(self._sessions.values()), {}
            gone = bool(left) and self._reachable() is not None
            for session in left:
                if gone:
                    cast("ConnectSession", session).release_session_on_close = False
                session.stop()

    def _open(self, scope: str) -> SparkSession:
        if not scope:
            return self._ready(self._connect(""))
        for generation in range(GENERATIONS_MAX):
            session = self._connect(self._session_id(scope, generation))
            try:
                return self._ready(session)
            except _SessionEndedError:
                session.stop()
        raise SparkUnavailableError(
            f"Spark Connect at {self.address} has closed {GENERATIONS_MAX} sessions of {scope}; "
            "restart it: penstock down, penstock up"
        )

    def _session_id(self, scope: str, generation: int) -> str:
        # The home is part of it: two installations on one server must not end each other's work.
        name = f"{self._settings.home}|{self._settings.cluster}|{scope}|{generation}"
        return str(uuid.uuid5(uuid.NAMESPACE_URL, name))

    def _connect(self, session_id: str) -> SparkSession:
        require_extra("pyspark")
        from pyspark.sql import SparkSession  # noqa: PLC0415 - 1.5 s, once it is needed
        from pyspark.sql.connect.client.retries import DefaultPolicy  # noqa: PLC0415

        # Every error reaches its caller as an exception; PySpark writes it to stderr as well, with
        # two stack traces in a line of 15 kB.
        logging.getLogger("SQLQueryContextLogger").disabled = True
        remote = self.address
        if session_id:
            joint = ";" if "/;" in remote else "/;"
            remote = f"{remote.rstrip('/')}{joint}user_id={USER_ID};session_id={session_id}"
        session: SparkSession = SparkSession.builder.remote(remote).create()
        connected = cast("ConnectSession", session)
        connected.release_session_on_close = not session_id  # a named one is others' too
        connected.client.set_retry_policies(
            [DefaultPolicy(max_retries=RETRIES_MAX, max_backoff=RETRY_BACKOFF_MAX_MS)]
        )
        return session

    def _ready(self, session: SparkSession) -> SparkSession:
        from pyspark.errors import PySparkException  # noqa: PLC0415

        try:
            for name, value in session_conf().items():
                session.conf.set(name, value)
            # A user's own server may not know the catalog; ours was started with it.
            if session.conf.get(CATALOG_PREFIX, None) is None:
                for name, value in catalog_conf(self._settings).items():
                    session.conf.set(name, value)
        except PySparkException as error:
            if any(name in str(error) for name in _SESSION_ENDED):
                raise _SessionEndedError from error
            raise SparkUnavailableError(
                f"Spark Connect at {self.address} refused a session: {_first_line(error)}"
            ) from error
        return session

    def _wait_for_server(self) -> None:
        deadline = self._clock.monotonic() + self._deadline_seconds
        while (problem := self._reachable()) is not None:
            if self._clock.monotonic() >= deadline:
                raise SparkUnavailableError(
                    f"Spark Connect does not answer at {self.address} "
                    f"(asked for {self._deadline_seconds:.0f} s: {problem}). Is it up? See: "
                    "penstock status; penstock logs spark"
                )
            self._clock.sleep(PROBE_PAUSE_SECONDS)

    def _reachable(self) -> OSError | None:
        parts = urlsplit(self.address.split(";")[0])
        host, port = parts.hostname or "127.0.0.1", parts.port or _DEFAULT_PORT
        try:
            socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
        except OSError as error:
            return error
        return None


class _SessionEndedError(Exception):
    """The server has closed the session of this id; it takes no other under it."""


def spark_tag(text: str) -> str:
    """``text`` as an operation tag: Spark forbids commas and empty tags."""
    return text.replace(",", "_") or "_"


def _answers(session: SparkSession) -> bool:
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        session.conf.get("spark.sql.session.timeZone")
    except (PySparkException, OSError, ValueError):  # ValueError: the channel is closed
        return False
    return True


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
