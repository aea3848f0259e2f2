"""Delivery of alerts: a local file, the log, a webhook, and any service that Apprise knows.

An alert is one JSON document in the shape of PagerDuty's Events API v2 (``event_action``,
``dedup_key``, ``payload``, ``links``), which every receiver can map from. Channels are independent:
one that fails is named and neither stops nor repeats the others, so the caller can try that one
again. Delivery is at least once; the file recognises what it already holds, and receivers have
``dedup_key`` for the same purpose.
"""

from __future__ import annotations

import json
import logging
import os
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from penstock_platform.settings import AlertSettings, Settings

LOGGER = logging.getLogger("penstock.alerts")
WEBHOOK_TIMEOUT_SECONDS = 10
SUMMARY_MARKS = {"trigger": "ALERT", "resolve": "RESOLVED", "acknowledge": "ACKNOWLEDGED"}

Alert = Mapping[str, Any]


class AlertError(RuntimeError):
    """A channel did not take an alert: says which and why."""


class Channel(Protocol):
    """One way out. ``name`` is stable: undelivered alerts are remembered by it."""

    name: str

    def deliver(self, alert: Alert) -> None:
        """Hand the alert over; raises AlertError when it did not arrive."""


def headline(alert: Alert) -> str:
    """One line for people: what happened, and what to type."""
    payload = alert.get("payload") or {}
    action = str(alert.get("event_action", "trigger"))
    details = payload.get("custom_details") or {}
    command = details.get("rerun") if action == "trigger" else None
    summary = payload.get("summary") or alert.get("dedup_key")
    text = f"{SUMMARY_MARKS.get(action, action)}: {summary}"
    return f"{text}. Run: {command}" if command else text


class FileChannel:
    """Appends one JSON document a line. Survives a kill: a torn last line is no alert."""

    name = "file"

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

    def deliver(self, alert: Alert) -> None:
        level = logging.WARNING if alert.get("event_action") == "trigger" else logging.INFO
        LOGGER.log(level, "%s", headline(alert))


class WebhookChannel:
    """Posts the document as JSON; anything but a 2xx answer counts as not delivered."""

    def __init__(self, url: str) -> None:
        self.name = f"webhook {url}"
        self._url = url

    def deliver(self, alert: Alert) -> None:
        request = urllib.request.Request(
            self._url,
            data=json.dumps(alert).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=WEBHOOK_TIMEOUT_SECONDS):
                return
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise AlertError(f"{self._url}: {error}") from error


class AppriseChannel:
    """Any of Apprise's services by one address. Its secrets stay out of names and errors."""

    def __init__(self, url: str) -> None:
        self.name = f"apprise {url.split('://', 1)[0]}:// #{abs(hash_text(url)) % 10_000:04d}"
        self._url = url

    def deliver(self, alert: Alert) -> None:
        import apprise  # noqa: PLC0415 - half a second, needed only where an address is set

        service = apprise.Apprise()
        if not service.add(self._url):
            raise AlertError(f"{self.name}: Apprise does not know this kind of address")
        kind = "failure" if alert.get("event_action") == "trigger" else "success"
        if not service.notify(title=headline(alert), body=describe(alert), notify_type=kind):
            raise AlertError(f"{self.name}: the service did not take the message")


class Alerts:
    """All configured channels. ``deliver`` tells which of them failed, and why."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        self._channels = {channel.name: channel for channel in channels}

    @classmethod
    def from_settings(cls, settings: Settings) -> Alerts:
        return cls([LogChannel(), FileChannel(settings.alert_file), *_remote(settings.alerts)])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._channels)

    def deliver(self, alert: Alert, only: Sequence[str] | None = None) -> dict[str, str]:
        """Send to every channel (or ``only`` those named); returns {channel: why it failed}.

        A name in ``only`` that is no longer configured is left out: that alert has no way to go.
        """
        failures: dict[str, str] = {}
        for name in self._channels if only is None else only:
            channel = self._channels.get(name)
            if channel is None:
                continue
            try:
                channel.deliver(alert)
            except AlertError as error:
                failures[name] = str(error)
                LOGGER.warning("alert %s not delivered by %s", alert.get("dedup_key"), error)
        return failures


def _remote(settings: AlertSettings) -> Iterator[Channel]:
    if settings.webhook:
        yield WebhookChannel(settings.webhook)
    for url in settings.urls:
        yield AppriseChannel(url)


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


def hash_text(text: str) -> int:
    """A number that names a text without telling it, the same in every process."""
    return zlib.crc32(text.encode())
