"""A module under test, imported from changed source, and the functions that a change is in."""

from __future__ import annotations

import importlib.abc
import importlib.util
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[2]
IN_A_BODY = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


@dataclass(frozen=True, slots=True)
class Subject:
    """A module under test, by its path, and the tests that should notice."""

    path: str
    tests: tuple[str, ...]

    @property
    def module(self) -> str:
        return ".".join(Path(self.path.split("/src/")[1]).with_suffix("").parts)

    @property
    def file(self) -> str:
        return str(ROOT / self.path)

    @property
    def source(self) -> str:
        return (ROOT / self.path).read_text()


class Substitute(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from the given source instead of its file, and keeps its code."""

    def __init__(self, subject: Subject, source: str) -> None:
        self._subject = subject
        self.code = compile(source, subject.file, "exec", dont_inherit=True)

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._subject.module:
            return None
        return importlib.util.spec_from_loader(name, self)

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = self._subject.file
        exec(self.code, module.__dict__)


def changed_functions(before: CodeType, after: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """The functions of a module that differ; None if what runs at its import differs as well.

    Lines may have moved: they do not count.
    """
    if _own(before) != _own(after):
        return None
    changed = []
    for old, new in zip(_codes(before), _codes(after), strict=True):
        if old.co_flags & inspect.CO_OPTIMIZED:
            if _same(old, new):
                continue
            if old.co_name in IN_A_BODY or old.co_freevars != new.co_freevars:
                return None
            changed.append((old, new))
        else:  # the body of a class
            inner = changed_functions(old, new)
            if inner is None:
                return None
            changed += inner
    return changed


def _codes(code: CodeType) -> list[CodeType]:
    return [c for c in code.co_consts if isinstance(c, CodeType)]


def _own(code: CodeType) -> tuple[object, ...]:
    constants = ["code" if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return (
        code.co_code,
        code.co_exceptiontable,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        constants,
    )


def _same(old: CodeType, new: CodeType) -> bool:
    return _own(old) == _own(new) and all(map(_same, _codes(old), _codes(new)))
