"""Every pitfall of docs/PITFALLS.md that concerns one broker is named by a test that guards it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENTRY = re.compile(r"^(\d+)\. (\*cluster\*)?", re.MULTILINE)
NAMED = re.compile(r"[Pp]itfalls? ((?:\d+(?:, | and |-)?)+)")


def entries() -> dict[int, bool]:
    """Number -> whether one broker can fall into it."""
    found = ENTRY.findall((ROOT / "docs" / "PITFALLS.md").read_text())
    return {int(number): not cluster for number, cluster in found}


def guarded() -> set[int]:
    """The numbers in the docstrings of tests."""
    numbers: set[int] = set()
    for path in (ROOT / "tests" / "broker").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                for listed in NAMED.findall(ast.get_docstring(node) or ""):
                    numbers.update(int(n) for n in re.findall(r"\d+", listed))
    return numbers


def test_the_page_has_fifty() -> None:
    assert sorted(entries()) == list(range(1, 51))


def test_each_one_has_a_test() -> None:
    named = guarded()
    missing = [n for n, concerns in entries().items() if concerns and n not in named]
    assert not missing, f"no test names pitfalls {missing} in its docstring"
