"""On a cold machine sessions race for the catalog: the probe asks again, in one session."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from pyspark.sql.connect.proto import base_pb2

from penstock_platform.settings import Settings, SparkSettings
from penstock_services.probes import Broken, NotReady, probe_spark


class RefusingConnect(grpc.GenericRpcHandler):
    """Answers every plan with the error of a session that lost the race; notes the sessions."""

    def __init__(self) -> None:
        self.sessions: list[str] = []

    def service(self, _call: Any) -> Any:
        return grpc.unary_stream_rpc_method_handler(self.execute)

    def execute(self, request: bytes, context: Any) -> Iterator[bytes]:
        self.sessions.append(base_pb2.ExecutePlanRequest.FromString(request).session_id)
        context.abort(grpc.StatusCode.INTERNAL, "Cannot check and eventually update SQL schema")
        yield b""


def test_a_lost_race_for_the_catalog_is_not_the_last_word(tmp_path: Path) -> None:
    handler = RefusingConnect()
    server = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        settings = Settings(home=tmp_path, spark=SparkSettings(remote=f"sc://127.0.0.1:{port}"))
        for _ in range(2):
            with pytest.raises(NotReady, match="update SQL schema") as refused:
                probe_spark(settings)
            assert not isinstance(refused.value, Broken)
    finally:
        server.stop(None)
    assert len(handler.sessions) == 2
    assert len(set(handler.sessions)) == 1
