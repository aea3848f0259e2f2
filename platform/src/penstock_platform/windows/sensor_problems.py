"""What sensors could not do, topic by topic: written by them, read by the alert sensor.

One small file a sensor under ``<home>/alerts/sensors/``, replaced as a whole and only when it
changes. A sensor that is killed while it writes leaves the file before; a file that cannot be read
counts as empty and is written again by its sensor's next tick.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock_platform.settings import Settings

TEXT_CHARACTERS_MAX = 500


class Problems:
    """The sensors' problems of one home."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.home / "alerts" / "sensors"

    def report(self, sensor: str, looked_at: Iterable[str], found: Mapping[str, str]) -> None:
        """What ``sensor`` found at these topics; what it reported of others stays.

        Never raises OSError: a sensor must not end because its report cannot be written.
        """
        known = self._read(self._path(sensor))
        gone = set(looked_at) - set(found)
        now = {topic: text for topic, text in known.items() if topic not in gone}
        now |= {topic: text[:TEXT_CHARACTERS_MAX] for topic, text in found.items()}
        if now != known:
            self._write(self._path(sensor), now)

    def all(self) -> dict[str, dict[str, str]]:
        """{sensor: {topic: what went wrong}}, without sensors that report nothing."""
        found = {path.stem: self._read(path) for path in sorted(self._folder.glob("*.json"))}
        return {sensor: topics for sensor, topics in found.items() if topics}

    def _path(self, sensor: str) -> Path:
        return self._folder / f"{sensor}.json"

    def _read(self, path: Path) -> dict[str, str]:
        try:
            raw = json.loads(path.read_bytes())
        except (OSError, ValueError):
            return {}
        return {str(k): str(v) for k, v in raw.items()} if isinstance(raw, dict) else {}

    def _write(self, path: Path, problems: Mapping[str, str]) -> None:
        private = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            private.write_text(json.dumps(dict(problems), sort_keys=True))
            private.replace(path)
        except OSError:
            private.unlink(missing_ok=True)
