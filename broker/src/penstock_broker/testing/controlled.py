"""``python -m penstock_broker.testing.controlled``: a broker that takes orders on standard input.

What ``BrokerProcess`` starts. One JSON object a line, as ``faults.Faults`` sends them, and one
line in answer; when standard input ends, its parent is gone, and it stops in order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from penstock_broker.config import ConfigError, load_config
from penstock_broker.server.broker import Broker, StartError
from penstock_broker.server.log_output import configure_logging
from penstock_broker.server.process import serve
from penstock_broker.testing.faults import FaultRules, FaultyDispatcher, api_names, carry_out

LINE_BYTES_MAX = 1 << 20


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="penstock_broker.testing.controlled")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--set", action="append", default=[])
    return parser.parse_args()


async def _take_orders(rules: FaultRules) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        try:
            answer = {"result": carry_out(rules, json.loads(line))}
        except (ValueError, KeyError, TypeError) as error:
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGTERM)


async def _run(arguments: argparse.Namespace) -> None:
    config, _ = load_config(None, arguments.set)
    configure_logging(config.penstock_log_level, config.penstock_log_format)
    rules = FaultRules(api_names())
    orders: list[asyncio.Task[None]] = []

    def ready(broker: Broker, host: str, port: int) -> None:
        orders.append(asyncio.get_running_loop().create_task(_take_orders(rules)))
        sys.stdout.write(f"penstock-broker ready on {host}:{port}\n")
        sys.stdout.flush()

    await serve(
        config,
        arguments.data_dir,
        arguments.host,
        arguments.port,
        on_ready=ready,
        make_dispatcher=lambda services, table: FaultyDispatcher(services, table, rules),
    )
    for task in orders:
        task.cancel()


def main() -> int:
    """Run it; its exit status."""
    try:
        asyncio.run(_run(_arguments()))
    except (StartError, ConfigError) as error:
        sys.stderr.write(f"penstock-broker: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
