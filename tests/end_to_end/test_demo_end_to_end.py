"""One run of the demo's path, as ``make demo`` runs it where there is no terminal.

Real services on ports of their own, real producers, one of them killed, a saboteur, the alert's
own commands. The demo judges itself; here its evidence is read once more from what it left behind:
the alerts, the saboteurs' notes, and that nothing runs any more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock_platform.testing.services import free_ports

pytestmark = [pytest.mark.services, pytest.mark.end_to_end]
DEMO_SECONDS_MAX = 1200
PORTS = ("KAFKA_PORT", "S3_PORT", "SPARK_PORT", "DAGSTER_PORT", "DAGSTER_CODE_SERVER_PORT")


@pytest.mark.timeout(DEMO_SECONDS_MAX + 60)
def test_the_demo_goes_as_told(tmp_path: Path) -> None:
    home = tmp_path / ".penstock"
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    env = {**os.environ, "CI": "true", "PENSTOCK_HOME": str(home)}
    env |= {f"PENSTOCK_{name}": port for name, port in ports.items()}
    demo = Path(sys.executable).with_name("penstock-demo")
    run = subprocess.run(
        [str(demo), "--rate", "1500"],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEMO_SECONDS_MAX,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    assert "All went as told" in run.stdout
    alerts = [json.loads(line) for line in (home / "alerts.jsonl").read_text().splitlines()]
    for table in ("flights", "weather"):
        noted = json.loads((home / "demo" / f"sabotage-{table}.json").read_text())
        told = [a for a in alerts if names_exactly(a, noted)]
        assert told, f"no alert names the offsets that were taken from {table}"
        resolved = {a["dedup_key"] for a in alerts if a["event_action"] == "resolve"}
        assert told[0]["dedup_key"] in resolved
    assert not left_behind(home)


def names_exactly(alert: dict[str, Any], noted: dict[str, list[list[int]]]) -> bool:
    """Whether an alert names the saboteur's offsets, all of them and no other."""
    details = alert["payload"]["custom_details"]

    def offsets(key: str) -> list[list[int]]:
        return sorted([p, o] for p, start, end in details.get(key, []) for o in range(start, end))

    return (
        alert["event_action"] == "trigger"
        and offsets("missing") == noted["removed"]
        and offsets("duplicates") == noted["duplicated"]
    )


def left_behind(home: Path) -> list[str]:
    """Processes that still belong to this home."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(home) in line:
            found.append(f"{process.info['pid']}: {line[:200]}")
    return found
