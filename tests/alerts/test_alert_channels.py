"""The ways out of an alert: file, webhook, Apprise. Real ones, against a server of this test."""

from __future__ import annotations

import http.server
import json
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock_platform.alerts.channels import (
    AlertError,
    Alerts,
    AppriseChannel,
    FileChannel,
    PagerDutyChannel,
    WebhookChannel,
    describe,
    headline,
    ping,
    read_alerts,
)
from penstock_platform.cli import alert as alert_command
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
        self.answer = b""
        self.answers = threading.Event()  # while it is not set, a call gets no answer
        self.answers.set()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.answers.wait(120)
                self.send_response(receiver.status)
                self.end_headers()
                self.wfile.write(receiver.answer)

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


def test_apprise_notifies_people(receiver: Receiver) -> None:
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


def test_pagerduty_gets_its_routing_key_and_no_more_than_it_takes(receiver: Receiver) -> None:
    channel = PagerDutyChannel("R0UT1NGKEY4711", f"http://{receiver.address}/v2/enqueue")
    channel.deliver(alert())
    sent = json.loads(receiver.bodies[0])
    assert sent == {**alert(), "routing_key": "R0UT1NGKEY4711", "client": "Penstock"}
    long = alert(key="k" * 256)
    long["payload"]["summary"] = "s" * 1025
    channel.deliver(long)
    sent = json.loads(receiver.bodies[1])
    assert len(sent["dedup_key"]) == 64
    assert sent["payload"]["summary"] == "s" * 1023 + "…"
    receiver.status = 400
    receiver.answer = b"invalid key R0UT1NGKEY4711"
    with pytest.raises(AlertError, match=r"HTTP 400 .*invalid key …") as refused:
        channel.deliver(alert())
    assert "4711" not in str(refused.value) + channel.name


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/services/T0KEN4711?key=T0KEN4711",
        "http://T0KEN4711:T0KEN4711@127.0.0.1:9/",
        "nonsense//T0KEN4711",
        "http://127.0.0.1:notaport/T0KEN4711",
    ],
)
def test_a_webhooks_address_is_a_secret(url: str) -> None:
    channel = WebhookChannel(url)
    with pytest.raises(AlertError) as refused:
        channel.deliver(alert())
    shown = "".join(traceback.format_exception(refused.value))
    assert "T0KEN4711" not in shown + channel.name
    with pytest.raises(AlertError) as refused:
        ping(url)
    assert "T0KEN4711" not in str(refused.value)


def test_two_channels_of_one_host_have_two_names() -> None:
    one, two = (WebhookChannel(f"https://hooks.example/{n}").name for n in "ab")
    assert one != two
    assert one.startswith("webhook hooks.example #")


def test_all_channels_are_tried_at_once_and_each_says_how_it_went(
    receiver: Receiver, tmp_path: Path
) -> None:
    receiver.answers.clear()
    hanging = WebhookChannel(f"http://{receiver.address}/")
    alerts = Alerts(
        [hanging, WebhookChannel("http://127.0.0.1:9/"), FileChannel(tmp_path / "alerts.jsonl")]
    )
    failures = alerts.try_all(alert(), seconds=0.5)
    assert list(failures) == [hanging.name, alerts.names[1]]
    assert "no answer within" in failures[hanging.name]
    assert list(read_alerts(tmp_path / "alerts.jsonl")) == [alert()]
    assert alerts.remote == alerts.names[:2]
    receiver.answers.set()


def test_the_channels_are_those_of_the_settings(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {
            "home": tmp_path,
            "alerts": {
                "webhook": "http://127.0.0.1:9/",
                "urls": ["json://127.0.0.1:9"],
                "pagerduty_routing_key": "4711",
            },
        }
    )
    kinds = [name.split(" #")[0] for name in Alerts.from_settings(settings).names]
    assert kinds == [
        "log",
        "file",
        "webhook 127.0.0.1",
        "pagerduty events.pagerduty.com",
        "apprise json",
    ]


def test_without_a_channel_that_reaches_people_the_test_fails(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    result = CliRunner().invoke(alert_command.command, ["test"])
    assert result.exit_code == 1
    assert "no channel leaves this machine" in result.output
    assert "alerts.webhook" in result.output
    monkeypatch.setenv("PENSTOCK_ALERTS_WEBHOOK", f"http://{receiver.address}/hook")
    assert CliRunner().invoke(alert_command.command, ["test"]).exit_code == 0
    assert json.loads(receiver.bodies[0])["payload"]["class"] == "test"
    receiver.status = 503
    result = CliRunner().invoke(alert_command.command, ["test", "-o", "json"])
    assert result.exit_code == 1
    answers = json.loads(result.output)
    assert answers["reaches_people"]
    assert [c["delivered"] for c in answers["channels"]] == [True, True, False]
    assert "HTTP 503" in answers["channels"][2]["error"]


def test_what_people_read() -> None:
    assert headline(alert()) == (
        "ALERT: orders 05:00-06:00: 37 records missing in the lake. Run: penstock window rerun x y"
    )
    ended = alert("resolve")
    ended["payload"]["summary"] = "resolved: 37 records missing"
    assert headline(ended) == "RESOLVED: 37 records missing", "once is enough"
    assert describe(alert()).splitlines()[-1] == "asset checks: http://dagster/assets/x"
