"""What the alert sensor knows, in one file that is written whole: ``<home>/alerts/state.json``."""

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock_platform.alerts.events import Position
from penstock_platform.alerts.model.incident_states import Incidents
from penstock_platform.alerts.outbox import write_whole

LOGGER = logging.getLogger("penstock.alerts")
STATE_VERSION = 1


@dataclass(slots=True)
class AlertState:
    """``marker`` names the Dagster database that ``position`` is about. ``at``: the last tick;
    ``looked_at``: the last look at the chains' health, ``problems`` what it found, ``suspected``
    {source: first seen}, ``away`` the services that did not answer."""

    marker: str = ""
    position: Position = field(default_factory=Position)
    incidents: Incidents = field(default_factory=Incidents)
    suspected: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    away: list[str] = field(default_factory=list)
    looked_at: str = ""
    at: str = ""

    def restart(self, marker: str) -> None:
        """Begin to read another database; the incidents stay open until they are proven good."""
        self.marker, self.position = marker, Position()


def state_file(directory: Path) -> Path:
    return directory / "state.json"


def load_state(directory: Path) -> AlertState:
    """The kept state, or a new one. A file that cannot be read is renamed, with an error in the
    log: its incidents are alerted again when they are seen again."""
    path = state_file(directory)
    try:
        raw = json.loads(path.read_bytes())
        if raw.pop("v") != STATE_VERSION:
            raise ValueError(f"version is not {STATE_VERSION}")
        position = Position.from_document(raw.pop("position"))
        incidents = Incidents.from_document(raw.pop("incidents"))
        return AlertState(position=position, incidents=incidents, **raw)
    except FileNotFoundError:
        return AlertState()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        aside = path.with_suffix(".unreadable")
        path.replace(aside)
        LOGGER.error("%s cannot be read (%s); kept as %s", path, error, aside)
        return AlertState()


def save_state(directory: Path, state: AlertState) -> None:
    """Raises OSError."""
    raw: dict[str, Any] = {
        "v": STATE_VERSION,
        "marker": state.marker,
        "position": state.position.document(),
        "incidents": state.incidents.document(),
        "suspected": state.suspected,
        "problems": state.problems,
        "away": state.away,
        "looked_at": state.looked_at,
        "at": state.at,
    }
    write_whole(state_file(directory), json.dumps(raw).encode())
