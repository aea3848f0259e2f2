"""What happens to producers when their process forks or ends.

**Fork.** A librdkafka handle does not survive a fork: its threads exist in the parent only. So a
child drops the parent's session, and the first use of the producer there starts a new one: new
handle, new incarnation, sequences from 0. Records that the parent had queued remain the parent's.
The old handle is never freed in the child: freeing would wait for threads that are not there.

**Exit.** Sessions still open when the interpreter ends are closed: data flushed for a bounded time,
last event sent. A child of multiprocessing ends without the interpreter's own exit handlers, so
there it is multiprocessing's that closes. A process that dies of a signal sends no last event, and
the audit sees that; SIGTERM is such a signal, unless ``exit_on_sigterm`` or a handler of the
application's own turns it into an exit.
"""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import multiprocessing.util
import os
import signal
import weakref
from types import FrameType
from typing import NoReturn, Protocol

from penstock_client.session import Session

EXIT_FLUSH_SECONDS = 10.0


class ForkAware(Protocol):
    """A producer: drops its session in a forked child."""

    def drop_session(self) -> None: ...


_producers: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_sessions: dict[int, Session] = {}


def register(producer: ForkAware, session: Session) -> None:
    """Care for a session until it is closed, and for its producer after a fork."""
    _producers.add(producer)
    if not _sessions and multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, close_all, exitpriority=10)
    _sessions[id(session)] = session


def unregister(session: Session) -> None:
    _sessions.pop(id(session), None)


def close_all() -> None:
    """Close every session of this process, in the time a process may take to end."""
    for session in list(_sessions.values()):
        unregister(session)
        session.close(EXIT_FLUSH_SECONDS)


def exit_on_sigterm() -> None:
    """Let SIGTERM end the program as ``sys.exit`` does: ``finally`` and ``with`` run, so producers
    close and send their last event. To be called in the main thread; replaces the handler there.
    """
    signal.signal(signal.SIGTERM, _exit)


def _exit(signum: int, _frame: FrameType | None) -> NoReturn:
    # Not sys.exit(): its exception reaches a delivery callback's caller, in C, without an instance,
    # and confluent-kafka 2.16.1 then raises SystemError in its place.
    raise SystemExit(128 + signum)


def _after_fork_in_child() -> None:
    for session in _sessions.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(session.handle))
    _sessions.clear()
    for producer in list(_producers):
        producer.drop_session()


atexit.register(close_all)
os.register_at_fork(after_in_child=_after_fork_in_child)
