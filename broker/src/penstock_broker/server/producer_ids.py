"""Producer ids, taken from the metadata in blocks, the next one before it is needed.

As in Kafka's ``RPCProducerIdManager``, no request waits for the block that a thread is saving. A
request that comes when no id is left, because the disk takes longer than the last half of a block,
is to be retried (COORDINATOR_LOAD_IN_PROGRESS). A block that a kill leaves unused stays unused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from penstock_broker.cluster.metadata_store import PRODUCER_ID_BLOCK, Change, MetadataStore
from penstock_broker.errors import ErrorCode, KafkaError
from penstock_broker.steps import resume, run, work_of

_log = logging.getLogger(__name__)


class ProducerIds:
    """The ids of the current block. Owned by the event loop."""

    def __init__(self, metadata: MetadataStore, loop: asyncio.AbstractEventLoop) -> None:
        self._metadata = metadata
        self._loop = loop
        self._ids: deque[int] = deque()
        self._is_fetching = False

    def begin(self) -> None:
        """Take the first block, waiting for the disk. OSError."""
        self._ids.extend(run(self._metadata.allocating_producer_ids()))

    def next(self) -> int:
        """An id that is allocated once. COORDINATOR_LOAD_IN_PROGRESS: there is none now."""
        if len(self._ids) <= PRODUCER_ID_BLOCK // 2 and not self._is_fetching:
            self._fetch()
        if not self._ids:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The next producer ids are being saved."
            )
        return self._ids.popleft()

    def _fetch(self) -> None:
        self._is_fetching = True
        steps = self._metadata.allocating_producer_ids()
        saving = self._loop.run_in_executor(None, work_of(next(steps)))
        saving.add_done_callback(lambda done: self._fetched(steps, done))

    def _fetched(self, steps: Change[range], done: asyncio.Future[object]) -> None:
        self._is_fetching = False
        if done.cancelled():
            return
        try:
            resume(steps, done.exception())
        except StopIteration as end:
            self._ids.extend(end.value)
        except OSError as error:
            _log.error("no producer ids can be allocated: %s", error)
