"""The ways out of an alert: file, webhook, Apprise. Real ones, against a server of this test."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock_platform.resources.alerts import (
    AlertError,
    Alerts,
    AppriseChannel,
    FileChannel,
    WebhookChannel,
    describe,
    headline,
    read_alerts,
)
from penstock_platform.settings import Settings


def alert(action: str = "trigger", key: str = "audit:local:orders:1") -> dict[str, Any]:
    return {
        "event_action": action,
        "dedup_key": key,
        "payload": {
            "summary": "orders 05:00-06:00: 37 records missing in the lake",
            "severity": "critical",
            "custom_details": {
                "missing": [[3, 118204, 118241]],
                "rerun": "penstock window rerun x y",
            },
        },
        "links": [{"href": "http://dagster/assets/x", "text": "asset checks"}],
    }


class Receiver:
    """An HTTP server that keeps what it is sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.status = 200
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_the_file_holds_one_alert_a_line_and_none_twice_in_a_row(tmp_path: Path) -> None:
    channel = FileChannel(tmp_path / "deep" / "alerts.jsonl")
    for sent in (alert(), alert(), alert("resolve"), alert("resolve"), alert()):
        channel.deliver(sent)
    found = [a["event_action"] for a in read_alerts(tmp_path / "deep" / "alerts.jsonl")]
    assert found == ["trigger", "resolve", "trigger"]


def test_a_torn_line_is_no_alert_and_spoils_none(tmp_path: Path) -> None:
    path = tmp_path / "alerts.jsonl"
    path.write_text('{"event_action": "trig')
    FileChannel(path).deliver(alert())
    assert list(read_alerts(path)) == [alert()]


def test_a_webhook_gets_the_document(receiver: Receiver) -> None:
    WebhookChannel(f"http://{receiver.address}/hook").deliver(alert())
    assert json.loads(receiver.bodies[0]) == alert()


def test_a_webhook_that_refuses_has_not_got_it(receiver: Receiver) -> None:
    receiver.status = 500
    with pytest.raises(AlertError, match="500"):
        WebhookChannel(f"http://{receiver.address}/hook").deliver(alert())


def test_apprise_tells_people(receiver: Receiver) -> None:
    AppriseChannel(f"json://{receiver.address}/").deliver(alert())
    sent = json.loads(receiver.bodies[0])
    assert sent["title"] == headline(alert())
    assert "missing: [[3, 118204, 118241]]" in sent["message"]
    assert sent["type"] == "failure"


def test_an_address_that_apprise_does_not_know_is_named_without_its_secret() -> None:
    channel = AppriseChannel("nonsense://token-4711")
    with pytest.raises(AlertError) as caught:
        channel.deliver(alert())
    assert "4711" not in str(caught.value) + channel.name


def test_one_channel_down_holds_up_no_other(receiver: Receiver, tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {
            "home": tmp_path,
            "alerts": {"webhook": "http://127.0.0.1:9/", "urls": [f"json://{receiver.address}"]},
        }
    )
    alerts = Alerts.from_settings(settings)
    failures = alerts.deliver(alert())
    assert list(failures) == ["webhook http://127.0.0.1:9/"]
    assert len(receiver.bodies) == 1
    assert list(read_alerts(tmp_path / "alerts.jsonl")) == [alert()]
    assert not alerts.deliver(alert(), only=["a channel of yesterday"])


def test_what_people_read() -> None:
    assert headline(alert()) == (
        "ALERT: orders 05:00-06:00: 37 records missing in the lake. Run: penstock window rerun x y"
    )
    assert headline(alert("resolve")).startswith("RESOLVED: ")
    assert describe(alert()).splitlines()[-1] == "asset checks: http://dagster/assets/x"
