"""Dagster's SQLite storage, opened quickly: what the stack's ``dagster.yaml`` names as its storage.

Dagster opens its storage again for every tick of a sensor and for every run, and each time compares
the databases with the migrations that it ships, which reads and executes some ninety small Python
files: a quarter of a second of a core, dozens of times a minute. The migrations of an installed
package do not change while a process lives, so one reading serves all of them.

And its databases of runs and schedules wait for a lock as long as that of events does. Dagster
gives the latter 30 s and leaves these at SQLite's 5, which many runs on a busy machine exceed:
"database is locked" then ends a run while it starts, and it counts as starting until the timeout.

Everything else is Dagster's own ``DagsterSqliteStorage``. An instance that is not this stack's (a
user's own ``dagster.yaml``) is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.storage import sql
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes.config_class import ConfigurableClassData


class Migrations:
    """Replaces alembic's ``ScriptDirectory`` where Dagster checks a database's revision."""

    _read: dict[str, ScriptDirectory] = {}  # noqa: RUF012 - shared by the process on purpose

    @classmethod
    def from_config(cls, config: Config) -> ScriptDirectory:
        """The migrations of ``config``'s ``script_location``, read once in a process.

        Callers hold Dagster's own lock (``_alembic_lock``), so two threads never read at once.
        """
        location = config.get_main_option("script_location") or ""
        if location not in cls._read:
            cls._read[location] = ScriptDirectory.from_config(config)
        return cls._read[location]


class QuickSqliteStorage(DagsterSqliteStorage):
    """``DagsterSqliteStorage`` whose migrations are read once in a process, and all of whose
    databases wait for a lock."""

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> QuickSqliteStorage:
        setattr(sql, "ScriptDirectory", Migrations)  # noqa: B010 - not exported by it
        storage = cls.from_local(inst_data=inst_data, base_dir=str(config_value["base_dir"]))
        for part in (storage._run_storage, storage._schedule_storage):
            part._conn_string += f"?timeout={SQLITE_BUSY_TIMEOUT_SECONDS}"
        return storage
