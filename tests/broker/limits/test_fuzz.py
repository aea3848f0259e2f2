"""A short run of the fuzzer, the same each time; ``make fuzz`` runs it for long."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from fuzzing import Fuzzer

TOP = Path(__file__).parents[3]


@pytest.mark.parametrize("seed", [1, 2])
def test_every_frame_is_answered_or_ends_its_connection(seed: int) -> None:
    """Never a crash, never another exception, never stored. Frames of every API and version
    first, then some that are a little wrong."""
    result = Fuzzer(seed).run(frames=6_000, batches=0.0, guided=False)
    assert result.failures == []
    assert result.answered > 1_000
    assert result.closed > 1_000


def test_batches_that_are_a_little_wrong_are_not_stored() -> None:
    """With right checksums and lengths, so that only their records can tell."""
    result = Fuzzer(3).run(frames=4_000, batches=1.0, guided=False)
    assert result.failures == []


def test_coverage_finds_frames_worth_keeping() -> None:
    result = Fuzzer(4).run(frames=800)
    assert result.lines > 1_000
    assert result.corpus > len(result.failures)
    assert result.failures == []


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_fuzz_runs() -> None:
    """As a person starts it: without pytest's import paths."""
    command = ["make", "--old-file=.venv/.installed", "fuzz", "FUZZ_SECONDS=1"]
    done = subprocess.run(
        command, cwd=TOP, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
