"""Numbered objects: places in order, and the search for the first free one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock_platform.archive.numbered import first_free


@given(st.integers(0, 3000), st.integers(0, 3000))
def test_thefirst_free_place_is_exact_and_cheap(taken, hint):
    asked = []

    def ask(n):
        asked.append(n)
        return n < taken

    assert first_free(ask, hint) == taken
    assert len(asked) <= 2 * max(1, taken).bit_length() + 4
