"""Sentences for what pydantic found wrong: file, line, key, what was found, what would do.

For YAML declarations and for `penstock.toml` alike. Values under keys that name a secret are not
shown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

KeyPath = tuple[str | int, ...]
_SECRET = re.compile(
    r"secret|password|passwd|token|access_key|credential|private|webhook|urls?$"
    r"|properties|routing_key",
    re.IGNORECASE,
)


def problems_of(
    error: ValidationError,
    model: type[BaseModel],
    file: str = "",
    lines: Mapping[KeyPath, int] | None = None,
    origins: Mapping[KeyPath, str] | None = None,
    *,
    known: Collection[KeyPath] = (),
) -> list[str]:
    """One sentence a problem, all of them, in the file's order.

    ``lines`` maps key paths to 1-based lines; a key without one is named by the nearest above it.
    ``origins`` maps key paths that do not come from the file to where they do (a variable's name).
    Keys in ``known``, and those above and under them, are not reported.
    """
    found = []
    for problem in error.errors():
        path = _path(problem["loc"])
        if path and any(path[: len(key)] == key[: len(path)] for key in known):
            continue
        line = line_of(lines or {}, path)
        where = _nearest(origins or {}, path) or place(file, line)
        found.append((line or 0, _sentence(dict(problem), model, where)))
    return [sentence for _, sentence in sorted(found, key=lambda pair: pair[0])]


def _nearest(origins: Mapping[KeyPath, str], path: KeyPath) -> str | None:
    return next((origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in origins), None)


def place(file: str, line: int | None = None) -> str:
    """`file:line`, or what is known of it."""
    return (file or "declaration") + (f":{line}" if line else "")


def line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int | None:
    """The line of a key, or of the nearest one above it."""
    return next((lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in lines), None)


def is_secret(path: Iterable[str | int]) -> bool:
    """Whether a key's value must not be shown: it, or one above it, names a secret."""
    return any(_SECRET.search(str(part)) for part in path)


def meant(word: str, known: Iterable[str], *, shown_max: int = 20) -> str:
    """``; did you mean x?``, else what is known, else nothing."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known are {', '.join(names)}" if 0 < len(names) <= shown_max else ""


def _path(loc: Iterable[str | int]) -> KeyPath:
    return tuple(p for p in loc if not str(p).startswith("function-"))


def _sentence(problem: dict[str, Any], model: type[BaseModel], where: str) -> str:
    path = _path(problem["loc"])
    key = ".".join(map(str, path)) or "the declaration"
    if problem["type"] == "missing":
        return f"{where}: {key} is missing; add it"
    if problem["type"] == "extra_forbidden":
        return f"{where}: {key} is not a key here{meant(str(path[-1]), _keys(model, path[:-1]))}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not path:
        return f"{where}: {message}"
    found = "" if is_secret(path) else f" (found {problem['input']!r})"
    return f"{where}: {key}: {message}{found}"


def _keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    """The keys that a model knows under ``path``; empty where that is no model."""
    current: Any = model
    for part in path:
        if isinstance(part, int):
            continue
        fields = current.model_fields.items()
        kind = next((f.annotation for n, f in fields if part in (n, f.alias)), None)
        candidates = (kind, *getattr(kind, "__args__", ()))
        current = next(
            (c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None
        )
        if current is None:
            return []
    return [field.alias or name for name, field in current.model_fields.items()]
