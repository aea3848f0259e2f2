"""What the broker writes on standard error: lines for people, or one JSON object per event.

``log_events`` has the names of events and fields. They stay; the wording of lines may change. A
call may also name its event itself, in a mapping that is its only argument ::

    _logger.error("%(job)s: %(reason)s", {"event": "job_failed", "job": name, "reason": error})
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO

from penstock_broker.server.log_events import EVENTS

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
OTHER_EVENT = "message"
"""The event of a record that has no name: of another library, for example."""
_OWN = frozenset({"time", "level", "logger", "event", "message", "exception"})


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """The event's fields by name, its own name among them."""
    arguments = record.args
    if isinstance(arguments, dict):
        return dict(arguments)
    module = record.name.removeprefix("penstock_broker.")
    event, names = EVENTS.get((module, str(record.msg)), (OTHER_EVENT, ()))
    return {"event": event, **dict(zip(names, arguments or (), strict=False))}


class JsonFormatter(logging.Formatter):
    """One object a line: time (UTC), level, logger, event, message, then the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = fields_of(record)
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "event": fields.pop("event", OTHER_EVENT),
            "message": record.getMessage(),
        }
        line.update((name, _plain(value)) for name, value in fields.items() if name not in _OWN)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True)


def _plain(value: object) -> object:
    """Numbers stay numbers; everything else is its text (an enum member's, not its value)."""
    return value if type(value) in (int, float, bool, type(None)) else str(value)


def configure_logging(level: str, form: str, stream: IO[str] | None = None) -> None:
    """Let everything that is logged go to ``stream`` (standard error): ``text`` or ``json``."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(TEXT_FORMAT))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
