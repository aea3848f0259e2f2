"""What is pending survives, keeps its order, and one channel that hangs delays no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock_platform.alerts import outbox as outbox_module
from penstock_platform.alerts.channels import AlertError, Alerts, WebhookChannel
from penstock_platform.alerts.outbox import OBJECTS_MAX, Outbox
from penstock_platform.testing.clock import ManualClock

BUDGET = 20.0  # generous: what is tested ends long before


def alert(action: str = "trigger", key: str = "k", number: int = 0) -> dict[str, Any]:
    return {"event_action": action, "dedup_key": key, "payload": {"summary": str(number)}}


class Channel:
    """A channel that takes alerts, refuses them, or hangs."""

    local = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.taken: list[dict[str, Any]] = []
        self.tries = 0
        self.down = False
        self.gate = threading.Event()
        self.gate.set()
        self.refuses: Callable[[Any], bool] = lambda _alert: False

    def deliver(self, alert: Any) -> None:
        self.tries += 1
        assert self.gate.wait(60)
        if self.down or self.refuses(alert):
            raise AlertError(f"{self.name}: HTTP 503")
        self.taken.append(alert)


class Post:
    """Two channels with an outbox, and a clock."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.one, self.two = Channel("one"), Channel("two #1")
        self.box = self.open()

    def open(self, *channels: Channel) -> Outbox:
        return Outbox(self.directory, Alerts(channels or (self.one, self.two)), self.clock)

    def files(self) -> list[Path]:
        return sorted((self.directory / "outbox").rglob("*.json"))


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    made = Post(tmp_path)
    yield made
    for channel in (made.one, made.two):
        channel.gate.set()
    outbox_module._threads.clear()


def test_what_is_delivered_leaves_nothing_behind(post: Post) -> None:
    post.box.add([alert(), alert("resolve"), alert(key="other")])
    assert len(post.files()) == 4, "one file for each incident and channel"
    done = post.box.deliver(BUDGET)
    assert (done.delivered, done.pending) == (6, ())
    assert post.one.taken[:2] in ([alert(), alert("resolve")], [alert(key="other"), alert()])
    assert [a["event_action"] for a in post.two.taken if a["dedup_key"] == "k"] == [
        "trigger",
        "resolve",
    ]
    assert post.files() == []
    assert post.box.deliver(BUDGET).delivered == 0


def test_what_a_channel_refuses_is_kept_in_order_and_tried_again_ever_later(post: Post) -> None:
    post.one.down = True
    post.box.add([alert()])
    pauses = []
    for _ in range(9):
        (pending,) = post.box.deliver(BUDGET).pending
        waited = 0.0
        tries = post.one.tries
        while post.one.tries == tries:
            post.clock.advance(5)
            waited += 5
            post.box.deliver(BUDGET)
        pauses.append(waited)
    assert pauses == [10, 20, 40, 80, 160, 320, 640, 900, 900]
    assert (pending.channel, pending.dedup_key, pending.error) == ("one", "k", "one: HTTP 503")
    assert post.two.taken == [alert()], "the other has it, and once"

    post.box.add([alert("resolve")])
    post.one.down = False
    assert post.box.deliver(BUDGET).pending[0].alerts == (alert(), alert("resolve"))
    assert post.one.taken == [], "a resolve does not come before its trigger, nor before its time"
    post.clock.advance(900)
    assert post.box.deliver(BUDGET).pending == ()
    assert post.one.taken == [alert(), alert("resolve")]


def test_after_a_success_a_failure_begins_with_the_shortest_pause(post: Post) -> None:
    post.one.refuses = lambda a: a["payload"]["summary"] == "1"
    post.box.add([alert(), alert("resolve", number=1)])
    (pending,) = post.box.deliver(BUDGET).pending
    assert (pending.attempts, pending.alerts) == (1, (alert("resolve", number=1),))
    post.clock.advance(10)
    (pending,) = post.box.deliver(BUDGET).pending
    assert pending.attempts == 2


def test_one_alert_that_is_refused_holds_up_no_other_incident(post: Post) -> None:
    post.one.refuses = lambda a: a["dedup_key"] == "poison"
    post.box.add([alert(key="poison"), alert(key="good")])
    (pending,) = post.box.deliver(BUDGET).pending
    assert pending.dedup_key == "poison"
    assert [a["dedup_key"] for a in post.one.taken] == ["good"]


def test_a_channel_that_is_down_is_not_asked_for_every_incident(post: Post) -> None:
    post.one.down = True
    post.box.add([alert(key=str(n)) for n in range(50)])
    post.box.deliver(BUDGET)
    assert post.one.tries == outbox_module.FAILURES_IN_A_ROW_MAX
    assert len(post.two.taken) == 50


def test_a_channel_that_hangs_delays_no_other_and_not_the_caller(post: Post) -> None:
    post.one.gate.clear()
    post.box.add([alert()])
    done = post.box.deliver(0.2)
    assert [pending.channel for pending in done.pending] == ["one"]
    assert post.two.taken == [alert()]
    post.box.add([alert("resolve")])
    post.box.deliver(0.2)
    assert post.one.tries == 1, "not asked again while it has not answered"
    assert post.two.taken == [alert(), alert("resolve")]
    (thread, _), *_ = outbox_module._threads[str(post.directory / "outbox" / "one")]
    post.one.gate.set()
    thread.join(30)
    assert post.one.taken[0] == alert(), "it answered after all, and that counts"
    post.box.deliver(BUDGET)
    assert post.one.taken == [alert(), alert("resolve")]


def test_a_channel_that_hangs_for_good_is_tried_a_few_times_more(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "HUNG_SECONDS", -1.0)
    post.one.gate.clear()
    post.box.add([alert()])
    for _ in range(10):
        post.box.deliver(0.01)
    assert post.one.tries == outbox_module.HUNG_THREADS_MAX


def test_a_budget_that_is_used_up_starts_nothing_more(post: Post) -> None:
    post.box.add([alert()])
    assert post.box.deliver(0.0).delivered == 0
    assert post.one.tries == 0


def test_what_another_process_left_is_delivered(post: Post) -> None:
    post.one.down = post.two.down = True
    post.box.add([alert()])
    post.box.deliver(BUDGET)
    post.one.down = post.two.down = False
    post.clock.advance(10)
    assert post.open().deliver(BUDGET).delivered == 2


def test_killed_before_it_was_written_down_an_alert_comes_twice(post: Post) -> None:
    post.box.add([alert()])
    kept = {path: path.read_bytes() for path in post.files()}
    post.box.deliver(BUDGET)
    for path, data in kept.items():
        path.write_bytes(data)
    post.box.deliver(BUDGET)
    assert post.one.taken == [alert(), alert()]


def test_an_unreadable_file_stops_nothing(post: Post) -> None:
    post.box.add([alert()])
    post.files()[0].write_text('{"v": 1, "channel"')
    post.box.add([alert(key="other")])
    post.box.deliver(BUDGET)
    assert [a["dedup_key"] for a in post.one.taken] == ["other"]


def test_the_newest_word_replaces_the_one_before_it(post: Post) -> None:
    post.one.down = True
    post.box.add([alert(number=1), alert(number=2), alert(number=2)])
    (pending,) = post.box.deliver(BUDGET).pending
    assert pending.alerts == (alert(number=2),)
    for n in range(30):
        post.box.add([alert("resolve", number=n), alert(number=n)])
    (pending,) = post.box.deliver(BUDGET).pending
    assert len(pending.alerts) == outbox_module.ALERTS_MAX
    assert pending.alerts[-1] == alert(number=29)


def test_a_channel_that_is_no_longer_configured_is_removed(post: Post) -> None:
    post.one.down = True
    post.box.add([alert()])
    post.box.deliver(BUDGET)
    post.open(post.two).deliver(BUDGET)
    assert post.files() == []


def test_incidents_owed_to_one_channel_are_bounded(
    post: Post, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert OBJECTS_MAX == 2000
    monkeypatch.setattr(outbox_module, "OBJECTS_MAX", 3)
    box = post.open(post.one)
    for n in range(5):
        box.add([alert(key=str(n))])
    assert len(post.files()) == 3
    assert "dropped" in caplog.text
    assert any(pending.dedup_key == "4" for pending in box.pending()), "the newest is kept"


def test_no_secret_is_in_any_file_or_its_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    channel = WebhookChannel("http://127.0.0.1:9/services/T0KEN4711")
    box = Outbox(tmp_path, Alerts([channel]), ManualClock())
    box.add([alert()])
    (pending,) = box.deliver(BUDGET).pending
    assert pending.attempts == 1
    for path in tmp_path.rglob("*"):
        assert "T0KEN4711" not in str(path)
        assert path.is_dir() or b"T0KEN4711" not in path.read_bytes()
    assert "T0KEN4711" not in caplog.text
    assert "not delivered by webhook 127.0.0.1" in caplog.text
