"""The mutants that `make mutants` tries are slips that a person makes, each of them alone."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


def load(patch: pytest.MonkeyPatch, name: str) -> ModuleType:
    """The file ``name`` of this folder as a module, imported for as long as ``patch`` lasts."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def mutations() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        return load(patch, "mutations")


def test_every_module_to_try_and_its_tests_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    load(monkeypatch, "mutations")
    monkeypatch.syspath_prepend(HERE)
    run = load(monkeypatch, "run")
    named = {path for subject, tests in run.SUBJECTS.items() for path in (subject, *tests)}
    assert {path for path in named if not (run.ROOT / path).is_file()} == set()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a < b", {"(a <= b)", "(a >= b)"}),
        ("a is None", {"(a is not None)"}),
        ("a and b", {"(a or b)", "(a)", "(b)"}),
        ("not a", {"(a)"}),
        ("a + 1", {"(a - 1)", "a + (2)", "a + (0)"}),
        ("[x for x in a if x]", {"[x for x in a]"}),
        ("a if b else c", {"(c if b else a)", "(a)", "(c)"}),
        ("f('name')", {"f(('nameX'))"}),
        ("f('a message')", set()),
        ("True", {"(False)"}),
    ],
)
def test_an_expression_changes_in_one_place(
    mutations: ModuleType, line: str, expected: set[str]
) -> None:
    found = {m.source.removeprefix("z = ") for m in mutations.mutants(f"z = {line}")}
    assert found == expected


def test_statements_go_and_docstrings_stay(mutations: ModuleType) -> None:
    source = 'def f(self):\n    """Word."""\n    self.a = b\n    g()\n    return c\n'
    found = {(m.scope, m.before, m.after) for m in mutations.mutants(source)}
    assert found == {
        ("f", "self.a = b", "pass"),
        ("f", "g()", "pass"),
        ("f", "return c", "return"),
    }


def test_a_mutant_keeps_its_name_when_lines_move(mutations: ModuleType) -> None:
    (before,) = mutations.mutants("class A:\n    x = True\n")
    (after,) = mutations.mutants("import b\n\n\nclass A:\n    x = True\n")
    assert before.name == after.name == "`A`: `x = True` → `x = (False)`"


def test_every_mutant_compiles_and_differs(mutations: ModuleType) -> None:
    own = (HERE / "mutations.py").read_text()
    found = list(mutations.mutants(own))
    assert len(found) > 50
    for mutant in found:
        ast.parse(mutant.source)
        assert mutant.source != own
    assert len({m.source for m in found}) == len(found)


def test_two_mutants_of_one_name_get_names_of_their_own(mutations: ModuleType) -> None:
    found = list(mutations.mutants("def f():\n    g()\n    g()\n"))
    assert mutations.names_of(found) == ["`f`: `g()` → `pass`", "`f`: `g()` → `pass` (2)"]


def test_a_mutant_has_the_lines_of_its_statement_without_those_in_it(mutations: ModuleType) -> None:
    source = "if (a and\n        b):\n    c = (1,\n         d)\n"
    lines = {m.after: m.lines for m in mutations.mutants(source) if m.line in {1, 3}}
    assert lines["c = ((2),"] == {3, 4}
    assert set(lines.values()) == {frozenset({1, 2}), frozenset({3, 4})}
