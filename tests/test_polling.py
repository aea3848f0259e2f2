"""The helper by which tests wait: what it returns, and what it says when it gives up."""

from __future__ import annotations

import pytest

from polling import until, until_async


async def test_the_first_true_answer_is_returned() -> None:
    answers = iter([0, "", "there"])
    assert until("an answer", lambda: next(answers)) == "there"
    numbers = iter([0, 7])
    assert await until_async("a number", lambda: next(numbers)) == 7


async def test_it_gives_up_with_what_was_awaited_and_the_last_answer() -> None:
    with pytest.raises(AssertionError, match=r"not within 0 s: the moon is full; last: \[\]"):
        until("the moon is full", list, seconds=0)
    with pytest.raises(AssertionError, match="the moon is full; last: None"):
        await until_async("the moon is full", lambda: None, seconds=0)


def test_exceptions_are_ignored_on_request_only() -> None:
    def fails() -> bool:
        raise ConnectionError("no route")

    with pytest.raises(ConnectionError):
        until("a connection", fails)
    with pytest.raises(AssertionError, match=r"a connection; last: ConnectionError\('no route'\)"):
        until("a connection", fails, seconds=0, ignoring=(ConnectionError,))
