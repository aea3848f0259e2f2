"""What `make mutants` says of a module: which of its mutants no test notices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
MODULE = """
LIMIT = 3
UNUSED = 5


class Gate:
    wide: bool = True

    def passes(self, size: int) -> bool:
        return self.wide and size < LIMIT

    def label(self) -> str:
        return "gate"


def large(size: int) -> bool:
    return not Gate().passes(size)


def count(left: int) -> int:
    number = 0
    while left > 0:
        number += 1
        left -= 1
    return number
"""
TESTS = """
import pytest
from hypothesis import given, settings, strategies as st
from test_subject import Gate, count, large


@given(st.integers(0, 10))
@settings(max_examples=200)
def test_large(size):
    assert large(size) == (size >= 3)


@pytest.fixture(scope="module")
def narrow():
    gate = Gate()
    gate.wide = False
    return gate.passes(0)


def test_narrow(narrow):
    assert not narrow


def test_count():
    assert count(4) == 4
"""
TRY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from mutations import mutants, names_of
from subjects import Subject
from trying import survivors_of
folder = Path(sys.argv[2])
sys.path.insert(0, str(folder / "src"))
subject = Subject(str(folder / "src/test_subject.py"), (str(folder / "test_it.py"),))
found = list(mutants(subject.source))
for mutant in survivors_of(subject, found, 2):
    print(mutant.name)
"""


def tried(folder: Path, module: str) -> subprocess.CompletedProcess[str]:
    (folder / "src").mkdir()
    (folder / "src/test_subject.py").write_text(module)
    (folder / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-c", TRY, str(HERE), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_the_survivors_are_those_that_no_test_notices(tmp_path: Path) -> None:
    """Mutants of a function, of what runs at import, of a loop without an end, of no test."""
    done = tried(tmp_path, MODULE)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) == {
        "`module`: `UNUSED = 5` → `UNUSED = (6)`",
        "`module`: `UNUSED = 5` → `UNUSED = (4)`",
        '`Gate.label`: `return "gate"` → `return`',
        "`Gate.label`: `return \"gate\"` → `return ('gateX')`",
    }


def test_tests_that_fail_without_a_mutant_end_the_run(tmp_path: Path) -> None:
    done = tried(tmp_path, MODULE.replace("LIMIT = 3", "LIMIT = 4"))
    assert done.returncode == 1
    assert "test_subject.py fail as it is" in done.stderr
    assert "test_large" in done.stderr
