"""Fixtures for the tests of the log."""

from __future__ import annotations

import os
import random

import pytest
from log_bench import Bench
from manager_directory import Directory
from storage_broker import Broker

from penstock_broker.testing import MemFiles


@pytest.fixture
def directory() -> Directory:
    return Directory()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def broker() -> Broker:
    return Broker(MemFiles())


@pytest.fixture
def seed() -> int:
    """A fresh seed for a randomised test, shown when it fails; PENSTOCK_SEED replays one."""
    value = int(os.environ.get("PENSTOCK_SEED", random.SystemRandom().randrange(2**32)))
    print(f"replay with PENSTOCK_SEED={value}")  # noqa: T201
    return value
