"""The sweep as an asset, and the looks at topics."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from penstock_platform.components.platform_component import PlatformSpec, SweepSpec
from penstock_platform.kafka.errors import ClusterError
from penstock_platform.kafka.model import PartitionOffsets, Volume
from penstock_platform.reconciliation.books import Bookkeeper
from penstock_platform.topics.model.declaration import bronze_table


def decisions(result: Any) -> list[tuple[str, str]]:
    (made,) = result.get_asset_materialization_events()
    rows = made.step_materialization_data.materialization.metadata["decisions"].records
    return [(row.data["window"], row.data["action"]) for row in rows]


def log_start(stage: Any) -> int:
    return int(stage.penstock.kafka.offsets(stage.topic)[0].log_start)


def test_the_sweep_deletes_what_is_proven_and_old_and_holds_the_rest(ready: Any) -> None:
    old, hurt, young = ready.landed(100), ready.landed(50), ready.landed(10)
    ready.penstock.lake.put(bronze_table(ready.topic), hurt.window_id, {0: list(range(100, 149))})
    ready.pass_time(150)
    result = ready.run("retention")
    assert result.success
    assert decisions(result)[:2] == [(hurt.window, "hold"), (old.window, "delete")] or (
        dict(decisions(result))[hurt.window] == "hold"
    )
    assert dict(decisions(result))[old.window] == "delete"
    assert log_start(ready) == 100, "nothing behind the window that is held is deleted"
    assert ready.penstock.books.retired(old.ref, old.sequence)
    assert not ready.penstock.books.retired(hurt.ref, hurt.sequence)
    (check,) = result.get_asset_check_evaluations()
    assert (check.check_name, check.passed) == ("policy_kept", False)
    assert f"window {hurt.window}" in (check.description or "")

    ready.land(hurt)
    again = ready.run("retention")
    assert log_start(ready) == 160
    assert dict(decisions(again))[young.window] == "delete"


def test_a_dry_run_only_explains(ready: Any) -> None:
    window = ready.landed(100)
    ready.pass_time(180)
    result = ready.run("retention", tags={"penstock/apply": "false"})
    assert dict(decisions(result)) == {window.window: "delete"}
    assert log_start(ready) == 0
    assert not ready.penstock.books.retired(window.ref, window.sequence)


def materialise(stage: Any, **tags: str) -> Any:
    """The asset by itself, as a click on Materialize starts it: without the job's tags."""
    job = dg.define_asset_job("by_hand", selection=[stage.plan.retention_key])
    defs = dg.Definitions.merge(stage.defs, dg.Definitions(jobs=[job]))
    return defs.resolve_job_def("by_hand").execute_in_process(instance=stage.instance, tags=tags)


def test_materialising_the_asset_by_hand_only_explains(ready: Any) -> None:
    window = ready.landed(100)
    ready.pass_time(180)
    result = materialise(ready)
    assert dict(decisions(result)) == {window.window: "delete"}
    assert log_start(ready) == 0
    assert materialise(ready, **{"penstock/apply": "true"}).success
    assert log_start(ready) == 100, "asked for in so many words, it applies"


@pytest.mark.parametrize("tags", [{}, {"penstock/apply": "true"}])
def test_a_declared_dry_run_deletes_nothing_however_it_is_started(
    stage: Callable[..., Any], tags: dict[str, str]
) -> None:
    made = stage(platform=PlatformSpec(retention=SweepSpec(apply=False)))
    made.create_topics()
    made.pass_time(30)
    made.tick("window_sensor")
    window = made.landed(100)
    made.pass_time(180)
    for result in (made.run("retention", tags=tags), materialise(made, **tags)):
        assert dict(decisions(result)) == {window.window: "delete"}
    assert log_start(made) == 0
    assert not made.penstock.books.retired(window.ref, window.sequence)


def sized(stage: Callable[..., Any], max_bytes: int) -> Any:
    made = stage(retention={"max_bytes": max_bytes})
    made.create_topics()
    made.pass_time(30)
    made.tick("window_sensor")
    return made


def test_max_bytes_counts_the_logs_bytes_and_what_is_in_no_window_yet(
    stage: Callable[..., Any],
) -> None:
    made = sized(stage, 1000)
    windows = [made.landed(50) for _ in range(3)]  # 1,500 bytes
    assert made.run("retention").success
    assert log_start(made) == 50, "1,000 bytes are kept"
    made.produce(60)  # stored, and not frozen yet
    made.run("retention")
    assert log_start(made) == 150, "1,600 bytes from the second window on, 1,100 from the third"
    assert all(made.penstock.books.retired(w.ref, w.sequence) for w in windows)


def test_a_log_whose_size_is_not_known_is_not_deleted_and_said_to_be_so(
    stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sized(stage, 100)
    made.landed(50)

    def refused(_topic: str) -> None:
        raise ClusterError("DescribeLogDirs is refused")

    monkeypatch.setattr(made.penstock.kafka, "log_sizes", refused)
    result = made.run("retention")
    assert result.success
    assert log_start(made) == 0
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed
    assert "the log's size is not known" in (check.description or "")


def test_nothing_is_deleted_between_a_change_of_leader_and_the_next_freeze(
    ready: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may have been cut, and have grown again over offsets that were frozen before."""
    ready.landed(100)
    ready.pass_time(180)
    memory = ready.penstock.kafka.memory

    def moved(topic: str) -> dict[int, PartitionOffsets]:
        found = type(memory).offsets(memory, topic)
        return {p: dataclasses.replace(o, leader_epoch=7) for p, o in found.items()}

    with monkeypatch.context() as patch:
        patch.setattr(
            type(ready.penstock.kafka), "offsets", lambda _self, t: moved(t), raising=False
        )
        result = ready.run("retention")
    assert dict(decisions(result)).popitem()[1] == "keep"
    assert log_start(ready) == 0
    ready.run("retention")
    assert log_start(ready) == 100


def test_a_sweep_forecasts_in_numbers_that_dagster_plots(
    ready: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ready.landed(60)
    ready.penstock.lake.put(bronze_table(ready.topic), old.window_id, {0: [0]})
    ready.landed(120)
    ready.pass_time(150)
    ready.penstock.kafka.volume = Volume(100_000, 12_000)

    def numbers() -> dict[str, Any]:
        result = ready.run("retention")
        (made,) = result.get_asset_materialization_events()
        metadata = made.step_materialization_data.materialization.metadata
        return {
            k: v.value
            for k, v in metadata.items()
            if isinstance(v, (dg.IntMetadataValue, dg.FloatMetadataValue))
        }

    found = numbers()
    seconds = (ready.newest().closed_time - old.closed_time).total_seconds() + 60
    rate = round(10 * 180 / seconds, 3)
    assert found["bytes_per_second"] == rate
    assert found["records_per_second"] == round(180 / seconds, 3)
    assert (found["log_bytes"], found["disk_free_bytes"]) == (1800, 12_000)
    age = (ready.penstock.clock.now() - old.closed_time).total_seconds()
    assert found["overdue_seconds"] == int(age - 120)
    assert found["until_disk_full_seconds"] == int(12_000 / (1800 / seconds))

    def refused(_topic: str) -> None:
        raise ClusterError("DescribeLogDirs is refused")

    monkeypatch.setattr(ready.penstock.kafka, "log_sizes", refused)
    assert not {"log_bytes", "bytes_per_second", "disk_free_bytes"} & set(numbers())


def test_a_disk_that_is_nearly_full_fails_the_check(ready: Any) -> None:
    ready.landed(10)
    ready.penstock.kafka.volume = Volume(1000, 99)
    (check,) = ready.run("retention").get_asset_check_evaluations()
    assert not check.passed
    assert "the log's disk has 99 of 1,000 bytes left" in (check.description or "")


def held_for(stage: Callable[..., Any], *groups: str) -> Any:
    made = stage(retention={"keep": "2m", "hold_for": list(groups)})
    made.create_topics()
    made.pass_time(30)
    made.tick("window_sensor")
    return made


def reasons(result: Any) -> dict[str, str]:
    (made,) = result.get_asset_materialization_events()
    rows = made.step_materialization_data.materialization.metadata["decisions"].records
    return {row.data["window"]: row.data["reason"] for row in rows}


def test_a_sweep_deletes_nothing_that_a_declared_group_has_not_read(
    stage: Callable[..., Any],
) -> None:
    made = held_for(stage, "billing", "search")
    groups = made.penstock.kafka.groups
    first, second = made.landed(100), made.landed(50)
    made.pass_time(180)
    groups["search"] = {0: 150}
    result = made.run("retention")
    assert result.success
    assert dict(decisions(result)) == {first.window: "hold", second.window: "hold"}
    assert reasons(result)[first.window].endswith("but group billing does not exist")
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed, "what is held is an incident"
    assert "group billing does not exist" in (check.description or "")
    assert log_start(made) == 0

    groups["billing"] = {0: 120}
    result = made.run("retention")
    assert dict(decisions(result)) == {first.window: "delete", second.window: "hold"}
    assert reasons(result)[second.window].endswith(
        "but group billing has read partition 0 up to 120, and the window ends there at 150"
    )
    assert log_start(made) == 100
    groups["billing"] = {0: 150}
    made.run("retention")
    assert log_start(made) == 150


def test_groups_whose_offsets_cannot_be_read_hold_everything(
    stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = held_for(stage, "billing")
    made.landed(100)
    made.pass_time(180)
    made.penstock.kafka.groups["billing"] = {0: 100}

    def refused(_names: object) -> dict[str, Any]:
        raise ClusterError("cannot read the committed offsets: GroupAuthorizationFailedError")

    with monkeypatch.context() as patch:
        patch.setattr(made.penstock.kafka.groups, "committed", refused)
        result = made.run("retention")
    assert result.success
    assert log_start(made) == 0
    assert "group billing cannot be asked for its offsets: cannot read" in str(reasons(result))
    made.run("retention")
    assert log_start(made) == 100


def test_groups_are_asked_after_the_windows_are_proven(
    stage: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proving takes minutes, in which a group may be set back."""
    made = held_for(stage, "billing")
    made.landed(100)
    made.pass_time(180)
    made.penstock.kafka.groups["billing"] = {0: 100}
    judge = Bookkeeper.judge_landed

    def judge_and_rewind(self: Bookkeeper, *about: Any) -> Any:
        made.penstock.kafka.groups["billing"] = {0: 5}
        return judge(self, *about)

    monkeypatch.setattr(Bookkeeper, "judge_landed", judge_and_rewind)
    made.run("retention")
    assert log_start(made) == 0


def test_observing_reports_offsets_rate_lag_and_drift(ready: Any) -> None:
    ready.penstock.kafka.configs[ready.topic] = {"retention.ms": "1000", "retention.bytes": "-1"}
    ready.produce(100)
    first = ready.run("observe")
    assert first.success
    results = {e.check_name: e for e in first.get_asset_check_evaluations()}
    assert not results["config_drift"].passed
    assert results["config_drift"].severity is dg.AssetCheckSeverity.WARN
    assert "retention.ms is 1000, declared -1" in (results["config_drift"].description or "")
    assert results["lag"].passed

    ready.produce(500)
    ready.pass_time(10)
    second = ready.run("observe")
    records = ready.instance.fetch_observations(ready.plan.topic_key, limit=1).records
    metadata = records[0].asset_observation.metadata
    assert metadata["kafka/end_offset"].value == 600
    assert metadata["kafka/records_per_second"].value == 50.0
    assert metadata["kafka/lag_messages"].value == 600
    assert next(iter(metadata)) == "kafka/records_per_second", "what a reader looks for is first"
    lag = {e.check_name: e for e in second.get_asset_check_evaluations()}["lag"]
    assert "50 records a second; 600 records are in no window yet" in (lag.description or "")


def test_the_rate_is_since_the_last_look_whatever_else_was_observed(ready: Any) -> None:
    """A reset of a consumer group is an observation of the topic as well."""
    ready.run("observe")
    ready.produce(500)
    ready.pass_time(10)
    reset = dg.AssetObservation(ready.plan.topic_key, metadata={"kafka/group": "billing"})
    ready.instance.report_runless_asset_event(reset)
    ready.run("observe")
    records = ready.instance.fetch_observations(ready.plan.topic_key, limit=1).records
    metadata = records[0].asset_observation.metadata
    assert metadata["kafka/records_per_second"].value == 50.0


def test_a_freezer_that_does_not_run_is_a_lag(ready: Any) -> None:
    ready.frozen(10)
    ready.produce(10)
    ready.pass_time(300)
    results = {e.check_name: e for e in ready.run("observe").get_asset_check_evaluations()}
    assert not results["lag"].passed
    assert "10 records are in no window yet" in (results["lag"].description or "")
