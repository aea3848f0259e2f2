"""What the broker writes on standard error: lines for people, or one JSON object per event.

An event is a log call whose only argument is a mapping: ``event`` is its stable name, the rest are
its fields, and the message is made of them ::

    _logger.warning(
        "%(topic)s-%(partition)d is offline: %(reason)s",
        {"event": "partition_offline", "topic": topic, "partition": index, "reason": reason},
    )

Names of events and of their fields stay; the wording may change. docs/OPERATIONS.md lists them.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import IO

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
OTHER_EVENT = "message"
"""The event of a record that has no name: of another library, for example."""
_OWN = frozenset({"time", "level", "logger", "event", "message", "exception"})


class JsonFormatter(logging.Formatter):
    """One object a line: time (UTC), level, logger, event, message, then the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = dict(record.args) if isinstance(record.args, dict) else {}
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "event": fields.pop("event", OTHER_EVENT),
            "message": record.getMessage(),
        }
        line.update((name, value) for name, value in fields.items() if name not in _OWN)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def configure_logging(level: str, form: str, stream: IO[str] | None = None) -> None:
    """Let everything that is logged go to ``stream`` (standard error): ``text`` or ``json``."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(TEXT_FORMAT))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
