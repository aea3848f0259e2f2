"""The generated files, compared with goldens. Rewrite them: PENSTOCK_GOLDEN=rewrite pytest …"""

from __future__ import annotations

import configparser
import os
import shlex
import sys
from pathlib import Path

import pyspark
import pytest
import yaml
from dagster import DagsterInstance
from supervisor.datatypes import dict_of_key_value_pairs

from penstock_platform.settings import (
    DagsterSettings,
    KafkaSettings,
    S3Settings,
    Settings,
    SparkSettings,
)
from penstock_services import catalogue, configuration, layout
from penstock_services.catalogue import Tools, outline, services
from penstock_services.errors import ServiceError
from penstock_services.java import Java

GOLDEN = Path(__file__).parent / "golden"
TOOLS = Tools(
    Java(Path("/java"), 21, "test"),
    (Path("/jars/a.jar"), Path("/jars/b.jar")),
    Path("/jars/s3.jar"),
)
HOME = Path("/home/someone/project/.penstock")


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(catalogue, "_script", lambda name: f"BIN/{name}")
    return Settings(home=HOME)


def compare(name: str, text: str) -> None:
    for found, label in (
        (sys.executable, "PYTHON"),
        (str(Path(sys.executable).parent), "BIN"),
        (str(Path(pyspark.__file__).parent), "PYSPARK"),
    ):
        text = text.replace(found, label)
    file = GOLDEN / name
    if os.environ.get("PENSTOCK_GOLDEN") == "rewrite":
        file.write_text(text)
    assert text == file.read_text(), f"{file}: rewrite with PENSTOCK_GOLDEN=rewrite, and look"


def test_supervisord(settings: Settings) -> None:
    table = services(settings, TOOLS, {"PATH": "/usr/bin", "PENSTOCK_CLUSTER": "local"})
    compare("supervisord.conf", configuration.supervisord_conf(settings, table, "root"))


def test_s3proxy(settings: Settings) -> None:
    compare("s3proxy.properties", configuration.s3proxy_properties(settings))


def test_dagster(settings: Settings) -> None:
    compare("dagster.yaml", configuration.dagster_yaml(settings))
    compare("workspace.yaml", configuration.workspace_yaml(settings))


def test_dagster_accepts_its_configuration(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    settings.dagster_home.mkdir(parents=True)
    layout.dagster_yaml(settings).write_text(configuration.dagster_yaml(settings))
    with DagsterInstance.from_config(str(settings.dagster_home)) as instance:
        assert instance.telemetry_enabled is False
        assert instance.run_monitoring_enabled
        assert instance.run_launcher.supports_check_run_worker_health
        coordinator = instance.run_coordinator.get_run_queue_config()
        assert coordinator.max_concurrent_runs == settings.dagster.max_concurrent_runs


def test_values_that_need_quoting_survive_supervisord(settings: Settings) -> None:
    odd = Settings(
        home=Path('/with space/50% "of" it/.penstock'),
        kafka=KafkaSettings(broker={"log.segment.bytes": "1000", "some.name": "a b"}),
    )
    table = services(odd, TOOLS, {"PENSTOCK_S3_SECRET_KEY": "q'u%o\\te,=#;"})
    parser = configparser.RawConfigParser()
    parser.read_string(configuration.supervisord_conf(odd, table))
    command = shlex.split(parser["program:broker"]["command"].replace("%%", "%"))
    assert command == list(table[0].command)
    assert str(layout.broker_directory(odd)) in command
    environment = dict_of_key_value_pairs(
        parser["program:broker"]["environment"].replace("%%", "%")
    )
    assert environment["PENSTOCK_HOME"].replace("%%", "%") == str(odd.home)
    assert environment["PENSTOCK_S3_SECRET_KEY"] == "q'u%o\\te,=#;"


def test_the_definitions_are_found_under_src_and_see_the_variables_of_the_project(
    tmp_path: Path,
) -> None:
    (tmp_path / "src" / "shop").mkdir(parents=True)
    (tmp_path / ".env").write_text("STAGE=prod\n")
    dagster = DagsterSettings(module="shop.definitions")
    table = services(Settings(home=tmp_path / ".penstock", dagster=dagster), TOOLS, {})
    found = {service.name: service for service in table}
    for name, flag in (("code", "-d"), ("workers", "--project")):
        command = found[name].command
        assert command[command.index(flag) + 1] == str(tmp_path / "src")
    assert {n for n, s in found.items() if s.environment.get("STAGE")} == {"code", "workers"}


def test_a_value_that_supervisord_cannot_quote_is_refused(settings: Settings) -> None:
    table = services(settings, TOOLS, {"PENSTOCK_S3_SECRET_KEY": "'\""})
    with pytest.raises(ServiceError, match="PENSTOCK_S3_SECRET_KEY"):
        configuration.supervisord_conf(settings, table)


@pytest.mark.parametrize(
    ("given", "started"),
    [
        ({}, ["broker", "s3", "spark", "code", "workers", "webserver", "daemon", "watcher"]),
        (
            {"kafka": KafkaSettings(bootstrap_servers="kafka:9092")},
            ["s3", "spark", "code", "workers", "webserver", "daemon", "watcher"],
        ),
        (
            {
                "s3": S3Settings(endpoint="https://s3.example"),
                "spark": SparkSettings(remote="sc://s"),
            },
            ["broker", "code", "workers", "webserver", "daemon", "watcher"],
        ),
    ],
)
def test_only_what_is_not_given_is_started(given: dict, started: list[str]) -> None:
    settings = Settings(home=HOME, **given)
    assert [service.name for service in outline(settings)] == started
    assert catalogue.needs_java(settings) is ("spark" in started)


def test_broker_properties_reach_its_command_line(settings: Settings) -> None:
    custom = settings.model_copy(
        update={"kafka": KafkaSettings(port=9192, broker={"log.segment.bytes": "1048576"})}
    )
    command = " ".join(services(custom, TOOLS, {})[0].command)
    assert "--port 9192 --set log.segment.bytes=1048576" in command


def test_no_secret_is_on_a_command_line(settings: Settings) -> None:
    for service in services(settings, TOOLS, {}):
        assert settings.s3.secret_key not in " ".join(service.command)


def test_a_long_home_gets_a_short_socket() -> None:
    settings = Settings(home=Path("/" + "x" * 200))
    assert len(str(layout.supervisor_socket(settings))) <= layout.SOCKET_PATH_MAX
    other = Settings(home=Path("/" + "y" * 200))
    assert layout.supervisor_socket(settings) != layout.supervisor_socket(other)


def test_workspace_points_at_the_code_server(settings: Settings) -> None:
    document = yaml.safe_load(configuration.workspace_yaml(settings))
    server = document["load_from"][0]["grpc_server"]
    assert server["port"] == settings.dagster.code_server_port
