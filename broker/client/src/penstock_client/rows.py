"""Rows of a file to produce: CSV or JSON lines in, record values out; bad lines named.

* **JSON lines**: each line is sent unchanged, once it is known to be JSON.
* **CSV**: the first line names the fields; each further row becomes a JSON object. A field that is
  written as JSON writes numbers or booleans becomes one (``00123`` and ``1,5`` stay text), an empty
  one becomes null; ``as_text`` leaves all of them text.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock_client.errors import InputError

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")
_WORDS = {"true": True, "false": False, "": None}
FORMATS = ("csv", "jsonl")


@dataclass(frozen=True, slots=True)
class Row:
    """One record to send: the line it came from (from 1), its value, its key if one was asked."""

    line: int
    value: bytes
    key: bytes | None


def read_rows(
    lines: Iterable[str], file: str, form: str, key: str | None, *, as_text: bool = False
) -> Iterator[Row | InputError]:
    """The rows of a file, lazily. A bad line comes as its error, so the caller decides whether to
    continue; an error that leaves nothing to continue with (a bad CSV head) is raised.

    ``key``: the field whose value is the record's key (text unchanged, anything else as JSON).
    """
    if form == "csv":
        return _csv_rows(lines, file, key, as_text=as_text)
    return _jsonl_rows(lines, file, key)


def _jsonl_rows(lines: Iterable[str], file: str, key: str | None) -> Iterator[Row | InputError]:
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield InputError(
                file,
                number,
                f"not JSON ({error}): {_excerpt(text)}",
                "Each line must be one whole JSON value; a CSV file needs --format csv",
            )
            continue
        found = _key_of(value, key, file, number)
        yield found if isinstance(found, InputError) else _row(file, number, text, found)


def _csv_rows(
    lines: Iterable[str], file: str, key: str | None, *, as_text: bool
) -> Iterator[Row | InputError]:
    reader = csv.reader(lines, strict=True)
    names = _head(reader, file, key)
    while True:
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield InputError(
                file, reader.line_num, str(error), 'Close the quotes; write a quote inside as ""'
            )
            continue
        if not fields:
            continue
        if len(fields) != len(names):
            yield InputError(
                file,
                reader.line_num,
                f"{len(fields)} fields where the head has {len(names)}",
                "Quote fields that contain a comma, or fill in what is missing",
            )
            continue
        value = {
            name: text if as_text else _typed(text)
            for name, text in zip(names, fields, strict=True)
        }
        found = _key_of(value, key, file, reader.line_num)
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        line = reader.line_num
        yield found if isinstance(found, InputError) else _row(file, line, body, found)


def _head(reader: Iterator[list[str]], file: str, key: str | None) -> list[str]:
    try:
        names = next(reader)
    except StopIteration:
        raise InputError(file, 1, "empty", "The first line must name the fields") from None
    except csv.Error as error:
        raise InputError(file, 1, str(error), "The first line must name the fields") from error
    names[0] = names[0].removeprefix("\ufeff")
    if len(set(names)) != len(names) or "" in names:
        raise InputError(
            file, 1, f"names {', '.join(names)!r}", "Every field needs a name of its own"
        )
    if key is not None and key not in names:
        raise InputError(file, 1, f"no field {key!r} for the key", f"There are: {', '.join(names)}")
    return names


def _typed(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    return json.loads(text) if _NUMBER.match(text) else text


def _key_of(value: Any, key: str | None, file: str, line: int) -> bytes | InputError | None:
    if key is None:
        return None
    if not isinstance(value, dict) or key not in value:
        return InputError(
            file, line, f"no field {key!r} for the key", "Add the field, or leave --key out"
        )
    found = value[key]
    if found is None:
        return None
    text = found if isinstance(found, str) else json.dumps(found, separators=(",", ":"))
    return text.encode(errors="surrogateescape")


def _row(file: str, line: int, body: str, key: bytes | None) -> Row | InputError:
    try:
        return Row(line, body.encode(), key)
    except UnicodeEncodeError:
        return InputError(
            file, line, "not UTF-8", "Convert the file: iconv -f ISO-8859-1 -t UTF-8 (for instance)"
        )


def _excerpt(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
