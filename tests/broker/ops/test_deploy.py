"""What deploy/ holds fits the broker: settings exist, metrics exist, systemd is notified."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock_broker.__main__ import _parser
from penstock_broker.config import load_config

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
WAIT = 60.0
UNIT = DEPLOY / "systemd" / "penstock-broker.service"


def documented_metrics() -> set[str]:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) ", (ROOT / "docs" / "METRICS.md").read_text(), re.M)
    names = {name for name, _ in rows}
    histograms = {name for name, kind in rows if kind == "histogram"}
    return names | {f"{name}_{end}" for name in histograms for end in ("bucket", "sum", "count")}


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:kafka|penstock|process)_[a-z_0-9]+", expression))


def test_the_sample_settings_are_known_and_those_that_are_commented_out_too() -> None:
    text = (DEPLOY / "server.properties").read_text()
    _, unknown = load_config(DEPLOY / "server.properties")
    assert unknown == []
    optional = re.findall(r"^#([a-z][a-z.]+)=(.*)$", text, re.M)
    assert len(optional) > 5
    plain = [f"{name}={value}" for name, value in optional if not name.startswith("ssl.keystore")]
    load_config(DEPLOY / "server.properties", plain)


def test_alerts_look_at_metrics_that_there_are() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    found = set()
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            assert rule["labels"]["severity"] in ("warning", "critical")
            found |= metrics_in(rule["expr"])
    assert len(found) > 8
    assert found <= documented_metrics(), found - documented_metrics()


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "penstock-broker.json").read_text())
    expressions = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    found = set().union(*map(metrics_in, expressions))
    assert len(found) > 12
    assert found <= documented_metrics(), found - documented_metrics()


# What systemd's manual pages say of each directive that the unit has: the form of its value.
YES_NO = r"yes|no"
SPAN = r"\d+(us|ms|s|min|h)?"
NAME = r"[a-z_][a-z0-9_-]*"
UNITS = r"[\w@.-]+\.(target|service)( [\w@.-]+\.(target|service))*"
DIRECTIVES = {
    "Unit": {"Description": r".+", "After": UNITS, "Wants": UNITS},
    "Install": {"WantedBy": UNITS},
    "Service": {
        "Type": r"simple|exec|forking|oneshot|dbus|notify|idle",
        "NotifyAccess": r"none|main|exec|all",
        "ExecStart": r"/\S+( \S+)*",
        **dict.fromkeys(("User", "Group", "StateDirectory", "ConfigurationDirectory"), NAME),
        "Restart": r"no|always|on-success|on-failure|on-abnormal|on-abort|on-watchdog",
        **dict.fromkeys(("RestartSec", "TimeoutStartSec", "TimeoutStopSec", "WatchdogSec"), SPAN),
        "LimitNOFILE": r"\d+(:\d+)?|infinity",
        "MemoryHigh": r"\d+[KMGT]?|\d+%|infinity",
        "OOMScoreAdjust": r"-?\d{1,3}|-?1000",
        "Environment": r"[A-Z_]+=\S*",
        **dict.fromkeys(("StateDirectoryMode", "UMask"), r"0[0-7]{3}"),
        "ReadWritePaths": r"/\S+( /\S+)*",
        **dict.fromkeys(("ProtectSystem",), r"yes|no|full|strict"),
        "ProtectHome": r"yes|no|read-only|tmpfs",
        "ProtectProc": r"noaccess|invisible|ptraceable|default",
        **dict.fromkeys(
            (
                "NoNewPrivileges",
                "ProtectClock",
                "ProtectControlGroups",
                "ProtectHostname",
                "ProtectKernelLogs",
                "ProtectKernelModules",
                "ProtectKernelTunables",
                "PrivateDevices",
                "PrivateTmp",
                "PrivateUsers",
                "LockPersonality",
                "MemoryDenyWriteExecute",
                "RestrictNamespaces",
                "RestrictRealtime",
                "RestrictSUIDSGID",
                "RemoveIPC",
            ),
            YES_NO,
        ),
        **dict.fromkeys(("CapabilityBoundingSet", "AmbientCapabilities"), r"(CAP_[A-Z_]+ ?)*"),
        "RestrictAddressFamilies": r"AF_[A-Z0-9]+( AF_[A-Z0-9]+)*",
        "SystemCallArchitectures": r"native",
        "SystemCallFilter": r"~?@[a-z-]+( @[a-z-]+)*",
        "SystemCallErrorNumber": r"E[A-Z]+",
    },
}


def unit_of(text: str) -> dict[str, dict[str, str]]:
    """Sections and directives of a unit, as systemd.syntax(7) reads them."""
    sections: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith(("#", ";")):
            continue
        if header := re.fullmatch(r"\[(\w+)\]", line):
            section = sections.setdefault(header[1], {})
            continue
        name, equals, value = line.partition("=")
        assert equals, f"neither a section nor a directive: {line}"
        assert not line.endswith("\\"), "one line each: this reader joins none"
        assert name not in section, f"{name} is there twice"
        section[name] = value
    return sections


def test_the_unit_has_only_directives_and_values_that_systemd_knows() -> None:
    unit = unit_of(UNIT.read_text())
    assert unit.keys() == DIRECTIVES.keys()
    for section, directives in unit.items():
        for name, value in directives.items():
            assert name in DIRECTIVES[section], f"[{section}] {name}"
            assert re.fullmatch(DIRECTIVES[section][name], value), f"{name}={value}"


def test_the_unit_starts_the_broker_with_options_that_it_has() -> None:
    service = unit_of(UNIT.read_text())["Service"]
    program, *arguments = service["ExecStart"].split()
    assert Path(program).name == "penstock-broker"
    options = _parser().parse_args(arguments)
    assert options.command == "serve"
    assert Path("/var/lib", service["StateDirectory"]) in options.data_dir.parents
    assert str(options.data_dir).startswith(service["ReadWritePaths"])
    assert Path("/etc", service["ConfigurationDirectory"]) in options.config.parents
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")


def test_systemd_itself_takes_the_unit_where_it_is_there(tmp_path: Path) -> None:
    """On top of the two above: `systemd-analyze` reads what they read, on machines that have it."""
    if shutil.which("systemd-analyze") is None:
        return
    own = Path(sys.executable).with_name("penstock-broker")
    text = UNIT.read_text().replace("/opt/penstock/bin/penstock-broker", str(own))
    text = re.sub(r"^(User|Group)=.*$", r"\1=root", text, flags=re.M)
    (tmp_path / "penstock-broker.service").write_text(text)
    run = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "penstock-broker.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in run.stderr.splitlines() if "penstock-broker.service" in line]
    assert not complaints


def test_systemd_is_notified_of_ready_alive_and_stopping(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(WAIT)
        environment = os.environ | {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "200000",
        }
        command = [sys.executable, "-m", "penstock_broker", "serve", "--port", "0"]
        process = subprocess.Popen(
            [*command, "--data-dir", str(tmp_path / "data")],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            first = sock.recv(1_000).decode()
            assert re.fullmatch(r"READY=1\nSTATUS=accepts requests on 127\.0\.0\.1:\d+", first)
            assert process.stdout is not None
            assert "ready on" in process.stdout.readline()
            assert [sock.recv(1_000) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            process.send_signal(signal.SIGTERM)
            while (said := sock.recv(1_000)) == b"WATCHDOG=1":
                pass
            assert said == b"STOPPING=1"
            assert process.wait(WAIT) == 0
        finally:
            process.kill()
            process.wait()


def test_without_systemd_no_notification_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock_broker.server.systemd import notify  # noqa: PLC0415

    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    assert not notify("READY=1")
