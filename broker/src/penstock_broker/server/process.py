"""A broker as a process: its descriptors, its signals, its beginning and its end."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from penstock_broker.api.context import Services
from penstock_broker.api.registry import Api
from penstock_broker.config import BrokerConfig
from penstock_broker.server.broker import Broker
from penstock_broker.server.dispatch import Dispatcher
from penstock_broker.server.observation import StopWantedError
from penstock_broker.server.systemd import keep_alive, notify

_logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
OPEN_FILES_TRIED = (245_760, 65_536, 10_240)

Ready = Callable[[Broker, str, int], None]


async def serve(
    config: BrokerConfig,
    data_dir: Path,
    host: str,
    port: int,
    *,
    on_ready: Ready,
    make_dispatcher: Callable[[Services, dict[int, Api]], Dispatcher] = Dispatcher,
) -> None:
    """Run a broker until SIGTERM or SIGINT, which also end one that is still loading its logs.

    ``on_ready`` is called with the broker and its address. StartError.
    """
    allow_open_files()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    stopping = asyncio.Event()
    for number in SIGNALS:
        loop.add_signal_handler(number, stopping.set)
    broker = Broker(config, data_dir, make_dispatcher=make_dispatcher)
    starting = loop.create_task(broker.start(host, port))
    waiting = loop.create_task(stopping.wait())
    await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
    if stopping.is_set():
        broker.observation.want_stop()
    try:
        bound = await starting
    except StopWantedError:
        return
    finally:
        if not starting.done() or starting.exception() is not None:
            waiting.cancel()
    # Everything made so far stays: collections need not look at it again.
    gc.collect()
    gc.freeze()
    on_ready(broker, *bound)
    _logger.info(
        "accepts requests on %(host)s:%(port)d, with %(partitions)d partitions, %(seconds).2f s "
        "after its start",
        {
            "event": "started",
            "host": bound[0],
            "port": bound[1],
            "partitions": sum(1 for _ in broker.replicas.partitions()),
            "seconds": loop.time() - begun,
        },
    )
    notify(f"READY=1\nSTATUS=accepts requests on {bound[0]}:{bound[1]}")
    alive = loop.create_task(keep_alive())
    await waiting
    _logger.info("stopping after a signal")
    notify("STOPPING=1")
    alive.cancel()
    begun = loop.time()
    await broker.stop()
    # All is written: a second signal must not make a clean end look like another. A
    # signal goes to any thread that does not block it, so the others end first.
    await loop.shutdown_default_executor()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    _logger.info("stopped in %(seconds).2f s", {"event": "stopped", "seconds": loop.time() - begun})


def allow_open_files() -> None:
    """Use all descriptors that are allowed: two for a connection, three for a segment."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    # macOS names "unlimited" as the bound and then does not allow it.
    for wanted in (hard, *OPEN_FILES_TRIED):
        if soft != resource.RLIM_INFINITY and soft >= wanted != resource.RLIM_INFINITY:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            continue
        return
    _logger.info(
        "open files stay limited to %(limit)d",
        {"event": "open_files_limited", "limit": soft},
    )
