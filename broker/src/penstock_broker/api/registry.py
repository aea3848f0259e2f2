"""The table of APIs: key, name, versions and handler of each; ApiVersions is built from it.

A module registers its API with the :func:`api` decorator; its docstring is the card that
docs/PROTOCOL.md prints. Nothing else in the broker lists APIs or versions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock_broker.api.context import Exchange, Reply, Services, Steps
from penstock_broker.errors import KafkaError
from penstock_broker.wire.fields import Struct

Request = TypeVar("Request", bound=Struct)
Handler = Callable[[Services, Exchange, Any], Reply | Steps]
Refusal = Callable[[Any, KafkaError, int], Struct]
"""(request, error, version) -> the answer that carries the error in every place it belongs."""
FastDecoder = Callable[[memoryview, int, int], Any]
"""(frame, position of the body, version) -> instead of the decoded request; None: ask the codec."""


@dataclass(frozen=True, slots=True)
class Api:
    """One row: ``versions`` are served, ``advertised`` is what ApiVersions says."""

    key: int
    name: str
    versions: range
    advertised: range
    request: type[Struct]
    handle: Handler
    refuse: Refusal
    fast_decoder: FastDecoder | None
    card: str


_TABLE: dict[int, Api] = {}


def api(
    key: int,
    request: type[Request],
    *,
    refuse: Callable[[Request, KafkaError, int], Struct],
    versions: range | None = None,
    advertised: range | None = None,
    fast_decoder: FastDecoder | None = None,
) -> Callable[
    [Callable[[Services, Exchange, Request], Reply | Steps]],
    Callable[[Services, Exchange, Request], Reply | Steps],
]:
    """Register the handler of an API. ``versions`` defaults to all that the codec knows.

    ``fast_decoder`` knows the shape that most of the requests have, and is asked before the codec.
    """

    def register(
        handle: Callable[[Services, Exchange, Request], Reply | Steps],
    ) -> Callable[[Services, Exchange, Request], Reply | Steps]:
        served = request.versions if versions is None else versions
        module = inspect.getmodule(handle)
        card = inspect.getdoc(module) if module is not None else None
        if key in _TABLE:
            raise ValueError(f"API {key} is registered twice")
        _TABLE[key] = Api(
            key=key,
            name=request.__name__.removesuffix("Request"),
            versions=served,
            advertised=served if advertised is None else advertised,
            request=request,
            handle=handle,
            refuse=refuse,
            fast_decoder=fast_decoder,
            card=card or "",
        )
        return handle

    return register


def api_table() -> dict[int, Api]:
    """All registered APIs by key. Import ``penstock_broker.api`` first: that registers them."""
    return dict(sorted(_TABLE.items()))
