"""The line of every key of a TOML document, which ``tomllib`` does not give.

Reads what it needs: section headers, keys at the beginning of a line, quoted and dotted ones, and
where a string or an array goes over several lines. A key that it cannot see (inside an inline
table) has the line of the nearest above it.
"""

from __future__ import annotations

import re

from penstock_platform.problems import KeyPath

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_HEADER = re.compile(rf"\s*\[\[?\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=\s*(.*)$")
_PARTS = re.compile(_PART)


def toml_lines(text: str) -> dict[KeyPath, int]:
    """1-based lines by key path; ``()`` is line 1."""
    lines: dict[KeyPath, int] = {(): 1}
    section: KeyPath = ()
    end = ""  # what ends the string or array that the line is in
    for number, line in enumerate(text.splitlines(), start=1):
        if end:
            end = "" if end in line else end
            continue
        if header := _HEADER.match(line):
            section = _path(header[1])
            _put(lines, section, number)
        elif key := _KEY.match(line):
            _put(lines, (*section, *_path(key[1])), number)
            end = _end_of(key[2])
    return lines


def _path(text: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in _PARTS.findall(text))


def _put(lines: dict[KeyPath, int], path: KeyPath, number: int) -> None:
    for length in range(1, len(path) + 1):
        lines.setdefault(path[:length], number)


def _end_of(value: str) -> str:
    """What ends a value that this line does not end; empty for one that it does."""
    for quote in ('"""', "'''"):
        if value.startswith(quote):
            return "" if quote in value[3:] else quote
    return "]" if value.startswith("[") and "]" not in value else ""
