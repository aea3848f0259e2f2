"""What `make mutants` tries: modules and tests that are there, and reasons for those alone."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module("run")


def test_modules_and_their_tests_are_there(run: ModuleType) -> None:
    named = {path for subject, tests in run.SUBJECTS.items() for path in (subject, *tests)}
    absent = {path for path in named if not (ROOT / path.partition("::")[0]).exists()}
    assert not absent


def test_reasons_are_given_for_modules_that_are_tried(run: ModuleType) -> None:
    """A module that moved takes its section along, or its equivalents count as survivors."""
    assert set(run.excused()) <= set(run.SUBJECTS)
