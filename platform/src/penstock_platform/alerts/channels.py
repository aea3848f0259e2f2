"""Ways out of an alert: a local file, the log, a webhook, PagerDuty, and whatever Apprise knows.

An alert is one JSON document in the shape of PagerDuty's Events API v2 (``event_action``,
``dedup_key``, ``payload``, ``links``), which every receiver can map from. Receivers recognise a
repeated one by ``dedup_key``; the file recognises what it already holds.

Addresses and keys are secrets: a channel's name is its kind, its host where that is none, and a
short hash; names and errors hold nothing else of them. ``outbox`` delivers.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from penstock_platform.connections import Connections
from penstock_platform.extras import MissingExtraError, require_extra
from penstock_platform.settings import AlertSettings, Settings

LOGGER = logging.getLogger("penstock.alerts")
CALL_SECONDS = 10.0
# One alert through one channel, all attempts of its own library included.
DELIVERY_SECONDS = 30.0
ANSWER_BYTES_MAX = 300
SECRET_CHARACTERS_MIN = 4
# PagerDuty refuses longer ones.
SUMMARY_CHARACTERS_MAX = 1024
DEDUP_KEY_CHARACTERS_MAX = 255
SUMMARY_MARKS = {"trigger": "ALERT", "resolve": "RESOLVED", "acknowledge": "ACKNOWLEDGED"}

Alert = Mapping[str, Any]


class AlertError(RuntimeError):
    """A channel did not take an alert: says which and why, without its secrets."""


class Channel(Protocol):
    """One way out. ``name`` is stable and holds no secret: the outbox has files of that name.

    ``local``: delivery touches this machine alone and cannot hang.
    """

    name: str
    local: bool

    def deliver(self, alert: Alert) -> None:
        """Hand the alert over; raises AlertError when it did not arrive."""


def headline(alert: Alert) -> str:
    """One line for people: what happened, and what to type."""
    payload = alert.get("payload") or {}
    action = str(alert.get("event_action", "trigger"))
    details = payload.get("custom_details") or {}
    command = details.get("rerun") if action == "trigger" else None
    summary = str(payload.get("summary") or alert.get("dedup_key"))
    if action == "resolve":
        summary = summary.removeprefix("resolved: ")  # the mark says it
    text = f"{SUMMARY_MARKS.get(action, action)}: {summary}"
    return f"{text}. Run: {command}" if command else text


class FileChannel:
    """Appends one JSON document a line. Survives a kill: a torn last line is no alert."""

    name = "file"
    local = True

    def __init__(self, path: Path) -> None:
        self._path = path

    def deliver(self, alert: Alert) -> None:
        line = json.dumps(alert, sort_keys=True)
        try:
            if self._holds(line, str(alert.get("dedup_key", ""))):
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                end = file.tell()
                torn = end > 0 and self._path.read_bytes()[end - 1 : end] != b"\n"
                file.write((b"\n" if torn else b"") + line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise AlertError(f"{self._path}: {error}") from error

    def _holds(self, line: str, dedup_key: str) -> bool:
        last = None
        for alert in read_alerts(self._path):
            if alert.get("dedup_key") == dedup_key:
                last = json.dumps(alert, sort_keys=True)
        return last == line


class LogChannel:
    """One line in the log of the process that runs the sensor; `penstock logs` shows it."""

    name = "log"
    local = True

    def deliver(self, alert: Alert) -> None:
        level = logging.WARNING if alert.get("event_action") == "trigger" else logging.INFO
        LOGGER.log(level, "%s", headline(alert))


class WebhookChannel:
    """Posts the document as JSON; anything but a 2xx answer counts as not delivered."""

    local = False

    def __init__(self, url: str, seconds: float = CALL_SECONDS) -> None:
        self.name = f"webhook {_host(url)} #{short_hash(url)}"
        self._url = url
        self._seconds = seconds

    def deliver(self, alert: Alert) -> None:
        _post(self.name, self._url, alert, self._seconds, _secrets_of(self._url))


class PagerDutyChannel:
    """PagerDuty's Events API v2: the document with the integration's routing key, within its
    limits on length."""

    local = False

    def __init__(self, routing_key: str, url: str, seconds: float = CALL_SECONDS) -> None:
        self.name = f"pagerduty {_host(url)} #{short_hash(routing_key)}"
        self._routing_key = routing_key
        self._url = url
        self._seconds = seconds

    def deliver(self, alert: Alert) -> None:
        event = {**alert, "routing_key": self._routing_key, "client": "Penstock"}
        key = str(alert.get("dedup_key", ""))
        if len(key) > DEDUP_KEY_CHARACTERS_MAX:
            event["dedup_key"] = hashlib.sha256(key.encode()).hexdigest()
        payload = dict(alert.get("payload") or {})
        if len(str(payload.get("summary", ""))) > SUMMARY_CHARACTERS_MAX:
            payload["summary"] = f"{payload['summary'][: SUMMARY_CHARACTERS_MAX - 1]}…"
        event["payload"] = payload
        _post(self.name, self._url, event, self._seconds, (self._routing_key,))


class AppriseChannel:
    """Any of Apprise's services by one address. Its parts may all be secrets, its host too."""

    local = False

    def __init__(self, url: str) -> None:
        self.name = f"apprise {url.split('://', 1)[0]} #{short_hash(url)}"
        self._url = url

    def deliver(self, alert: Alert) -> None:
        try:
            require_extra("apprise")
        except MissingExtraError as error:
            raise AlertError(f"{self.name}: {error}") from None
        import apprise  # noqa: PLC0415 - half a second, needed only where an address is set

        # Its own log lines hold addresses.
        logging.getLogger("apprise").setLevel(logging.CRITICAL)
        service = apprise.Apprise()
        if not service.add(self._url):
            raise AlertError(f"{self.name}: Apprise does not know this kind of address")
        kind = "failure" if alert.get("event_action") == "trigger" else "success"
        if not service.notify(title=headline(alert), body=describe(alert), notify_type=kind):
            raise AlertError(f"{self.name}: the service did not take the message")


class Alerts:
    """All configured channels."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        self.channels = {channel.name: channel for channel in channels}

    @classmethod
    def from_settings(cls, settings: Settings) -> Alerts:
        return cls([LogChannel(), FileChannel(settings.alert_file), *_remote(settings.alerts)])

    @classmethod
    def of(cls, penstock: Connections) -> Alerts:
        """The channels of these connections."""
        return penstock.shared(cls, lambda: cls.from_settings(penstock.settings))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.channels)

    @property
    def remote(self) -> tuple[str, ...]:
        """The channels that leave this machine: those that reach a person."""
        return tuple(name for name, channel in self.channels.items() if not channel.local)

    def try_all(self, alert: Alert, seconds: float = DELIVERY_SECONDS) -> dict[str, str]:
        """Send through every channel at once, without the outbox; {channel: why it failed}."""
        failures: dict[str, str] = {}

        def send(channel: Channel) -> None:
            try:
                channel.deliver(alert)
            except AlertError as error:
                failures[channel.name] = str(error)
            else:
                failures.pop(channel.name, None)

        threads = []
        for name, channel in self.channels.items():
            failures[name] = f"{name}: no answer within {seconds:.0f} s"
            threads.append(threading.Thread(target=send, args=(channel,), daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds)
        return dict(failures)


def _remote(settings: AlertSettings) -> Iterator[Channel]:
    if settings.webhook:
        yield WebhookChannel(settings.webhook)
    if settings.pagerduty_routing_key:
        yield PagerDutyChannel(settings.pagerduty_routing_key, settings.pagerduty_url)
    for url in settings.urls:
        yield AppriseChannel(url)


def ping(url: str, seconds: float = CALL_SECONDS) -> None:
    """Ask a dead-man service's address. Raises AlertError, without the address."""
    name = f"heartbeat {_host(url)} #{short_hash(url)}"
    _call(name, urllib.request.Request, url, seconds, _secrets_of(url))


def _post(name: str, url: str, document: Alert, seconds: float, secrets: Sequence[str]) -> None:
    def request(address: str) -> urllib.request.Request:
        return urllib.request.Request(
            address,
            data=json.dumps(document).encode(),
            headers={"Content-Type": "application/json"},
        )

    _call(name, request, url, seconds, secrets)


def _call(name: str, request: Any, url: str, seconds: float, secrets: Sequence[str]) -> None:
    """One HTTP call; ``from None``, for the errors behind it hold the address."""
    try:
        with urllib.request.urlopen(request(url), timeout=seconds):
            return
    except urllib.error.HTTPError as error:
        answer = error.read(ANSWER_BYTES_MAX).decode(errors="replace").strip()
        text = f"HTTP {error.code} {error.reason}{f': {answer}' if answer else ''}"
    except urllib.error.URLError as error:
        text = str(error.reason)
    except (OSError, ValueError, http.client.HTTPException) as error:
        text = str(error) or type(error).__name__
    raise AlertError(f"{name}: {without(text, secrets)}") from None


def without(text: str, secrets: Sequence[str]) -> str:
    """The text on one line, each secret in it replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SECRET_CHARACTERS_MIN:
            text = text.replace(secret, "…")
    return " ".join(text.split())


def _secrets_of(url: str) -> tuple[str, ...]:
    parts = urlsplit(url)
    pieces = [url, parts.path, parts.query, parts.fragment, parts.username, parts.password]
    return tuple(piece for piece in (*pieces, *parts.path.split("/")) if piece)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "?"
    except ValueError:
        return "?"


def short_hash(text: str) -> str:
    """Six digits that distinguish two texts and reveal neither."""
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def describe(alert: Alert) -> str:
    """The alert for people: summary, details one a line, the command, the links."""
    payload = alert.get("payload") or {}
    lines = [str(payload.get("summary") or alert.get("dedup_key"))]
    for key, value in (payload.get("custom_details") or {}).items():
        if value not in (None, "", [], {}):
            lines.append(f"{key}: {value if isinstance(value, str) else json.dumps(value)}")
    links = alert.get("links") or ()
    lines += [f"{link.get('text', 'link')}: {link.get('href')}" for link in links]
    return "\n".join(lines)


def read_alerts(path: Path) -> Iterator[dict[str, Any]]:
    """Alerts of the local file, oldest first; what is not a whole document is passed over."""
    if not path.is_file():
        return
    for line in path.read_text(errors="replace").splitlines():
        try:
            document = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(document, dict):
            yield document
