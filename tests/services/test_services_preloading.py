"""Definitions that the service ``workers`` loads before it forks: never yesterday's."""

from __future__ import annotations

import importlib
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster import DagsterInstance
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS

from penstock_services import instance_storage, workers
from penstock_services.preloading import Definitions, load_definitions, signature_of
from penstock_services.workers import Job, WorkerServer, listen

CODE = """
import dagster as dg
from helpers_{name} import WORD

@dg.asset(name=WORD)
def asset() -> None: ...

defs = dg.Definitions(assets=[asset], jobs=[dg.define_asset_job("all", selection="*")])
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A project of a package and of a module beside it; its folder and its module's name."""
    name = f"p{uuid.uuid4().hex[:8]}"
    package = tmp_path / name
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "definitions.py").write_text(CODE.format(name=name))
    (package / "defs.yaml").write_text("a: 1\n")
    (tmp_path / f"helpers_{name}.py").write_text("WORD = 'one'\n")
    path = list(sys.path)
    yield tmp_path, f"{name}.definitions"
    sys.path[:] = path
    for module in [m for m in sys.modules if name in m]:
        del sys.modules[module]


def load(project: tuple[Path, str], *further: Path) -> Definitions:
    found = load_definitions(project[1], project[0], further)
    assert found is not None
    return found


def test_loaded_definitions_are_current_until_a_source_changes(
    project: tuple[Path, str], tmp_path: Path
) -> None:
    settings = tmp_path / "penstock.toml"
    found = load(project, settings)
    assert found.current
    settings.write_text("cluster = 'other'\n")
    assert not found.current, "a source that was not there is one too"


@pytest.mark.parametrize("file", ["{name}/defs.yaml", "{name}/new.yaml", "helpers_{name}.py"])
def test_every_kind_of_source_counts(project: tuple[Path, str], file: str) -> None:
    found = load(project)
    name = project[1].partition(".")[0]
    (project[0] / file.format(name=name)).write_text("WORD = 'two and more'\n")
    assert not found.current


def test_dropped_modules_are_read_from_their_files_again(project: tuple[Path, str]) -> None:
    found = load(project)
    name = project[1].partition(".")[0]
    (project[0] / f"helpers_{name}.py").write_text("WORD = 'second'\n")
    found.drop()
    defs = importlib.import_module(project[1]).defs
    assert [key.path[-1] for key in defs.resolve_all_asset_keys()] == ["second"]
    assert "dagster" in sys.modules, "libraries stay"


def test_a_module_that_fails_is_not_loaded_ahead(
    project: tuple[Path, str], caplog: pytest.LogCaptureFixture
) -> None:
    name = project[1].partition(".")[0]
    (project[0] / name / "definitions.py").write_text("raise RuntimeError('no broker')\n")
    with caplog.at_level("WARNING", "penstock.workers"):
        assert load_definitions(project[1], project[0], ()) is None
    assert "no broker" in caplog.text


def test_a_signature_sees_content_of_the_same_age(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("1")
    before = signature_of([tmp_path])
    (tmp_path / "b").write_text("")
    assert signature_of([tmp_path]) != before


def test_a_server_renews_changed_definitions_once_it_is_old_enough(
    project: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = load(project)
    with listen(tmp_path / "s") as listener:
        server = WorkerServer(listener, {}, found)
        (project[0] / project[1].partition(".")[0] / "more.yaml").write_text("b: 2\n")
        assert not server._renews(), "young: each run loads the change for itself"
        monkeypatch.setattr(workers, "RENEWAL_SECONDS_MIN", 0.0)
        assert server._renews()


def test_a_run_drops_definitions_that_have_changed(
    project: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = load(project)
    (project[0] / project[1].partition(".")[0] / "more.yaml").write_text("b: 2\n")

    class StoppedError(Exception):
        pass

    def stop(*_: object) -> None:
        raise StoppedError

    monkeypatch.setattr("dagster._serdes.deserialize_value", stop)
    monkeypatch.setattr("dagster._utils.interrupts.setup_interrupt_handlers", lambda: None)
    monkeypatch.setattr(workers.signal, "signal", lambda *_: None)
    with pytest.raises(StoppedError):
        workers.execute(Job("run", "arguments"), found)
    assert project[1] not in sys.modules


def declare_storage(folder: Path) -> None:
    (folder / "dagster.yaml").write_text(
        "telemetry: {enabled: false}\n"
        "storage:\n"
        "  custom:\n"
        "    module: penstock_services.instance_storage\n"
        "    class: QuickSqliteStorage\n"
        f"    config: {{base_dir: {folder / 'storage'}}}\n"
    )


def test_a_database_that_is_locked_is_waited_for(tmp_path: Path) -> None:
    """After SQLite's own 5 s a run that starts on a busy machine died of "database is locked"."""
    declare_storage(tmp_path)
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.schedule_storage is not None
        for part in (instance.run_storage, instance.schedule_storage):
            with part.connect() as connection:  # type: ignore[union-attr]
                wait_ms = connection.exec_driver_sql("PRAGMA busy_timeout").scalar()
            assert wait_ms == SQLITE_BUSY_TIMEOUT_SECONDS * 1000


def test_migrations_are_read_once_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare_storage(tmp_path)
    monkeypatch.setattr("dagster._core.storage.sql.ScriptDirectory", None)
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.get_runs() == []
        reference = instance.get_ref()
    known = dict(instance_storage.Migrations._read)
    with DagsterInstance.from_ref(reference) as instance:
        assert instance.get_runs() == []
        found, head = instance.run_storage.alembic_version() or ("", "no revision")
        assert found == head
    assert instance_storage.Migrations._read == known
    assert known, "the check of the revisions went through them"
