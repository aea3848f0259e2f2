"""What the demo reports of the windows when it does not get to its end."""

from __future__ import annotations

from typing import Any

from penstock_pipelines.demo.observer import Observer


def test_windows_that_are_not_decided_are_named(ready: Any) -> None:
    observer = Observer(ready.penstock, ["shop.orders"])
    observer.begin()
    assert observer.open_windows() == []
    waiting = ready.frozen(5)
    newest = ready.frozen(7)
    assert observer.open_windows() == [
        f"shop.orders {waiting.window}: FROZEN",
        f"shop.orders {newest.window}: FROZEN",
    ]
    for window in (waiting, newest):
        assert ready.land(window).success
    states = {f"shop.orders {newest.window}: {observer.windows('shop.orders')[-1].state}"}
    assert set(observer.open_windows()) >= states
    assert not any("FROZEN" in line for line in observer.open_windows())
