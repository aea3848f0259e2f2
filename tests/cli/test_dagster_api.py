"""What a user reads while a run is followed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock_platform.cli.dagster_api import DagsterApi, DagsterApiError
from penstock_platform.settings import DagsterSettings, Settings
from penstock_platform.testing.clock import ManualClock
from penstock_services.supervisor import require_own_dagster

STEP = "lake__bronze__orders"


def polls() -> Iterator[dict[str, Any]]:
    """A run that begins, works, and has ended at the third look, its last step with it."""
    for status, step in (("STARTED", None), ("STARTED", "IN_PROGRESS"), ("SUCCESS", "SUCCESS")):
        steps = [{"stepKey": STEP, "status": step}] if step else None
        yield {"runOrError": {"__typename": "Run", "status": status, "stepStats": steps}}
    yield {"logsForRun": {"__typename": "EventConnection", "events": [], "hasMore": False}}


def test_a_run_ends_after_its_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = polls()

    def query(_self: DagsterApi, _text: str, _variables: Mapping[str, Any]) -> dict[str, Any]:
        return next(answers)

    monkeypatch.setattr(DagsterApi, "query", query)
    said: list[str] = []
    api = DagsterApi(Settings.load(tmp_path), ManualClock())
    assert api.follow("run", 60, said.append).succeeded
    assert said == ["started", f"{STEP} in progress", f"{STEP} success", "success"]


def test_a_dagster_of_the_users_own_is_asked_without_services_of_ours(tmp_path: Path) -> None:
    require_own_dagster(Settings(home=tmp_path, dagster=DagsterSettings(url="http://here:3000")))
    with pytest.raises(DagsterApiError, match="does not run, and what answers at"):
        require_own_dagster(Settings(home=tmp_path))
