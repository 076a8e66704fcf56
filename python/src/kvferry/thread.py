"""The thread that serves the core of a client."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

from kvferry.attachment import warn_client
from kvferry.core import Core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvferry.asking import Ask
    from kvferry.call import Call
    from kvferry.values import Options
    from kvferry.waiting import Waiting

log = logging.getLogger("kvferry")


def wait(for_it: Future[None], timeout: float | None) -> bool:
    """Wait for something so many seconds; False where the time was over first. None: for as long as it takes."""
    try:
        for_it.result(timeout)
    except FutureTimeoutError:
        return False
    return True


class _Waker:
    """Wakes the thread of a client, from anywhere: without a lock, and without waiting."""

    def __init__(self) -> None:
        self.reads, self._writes = socket.socketpair()
        self.reads.setblocking(False)
        self._writes.setblocking(False)

    def __call__(self) -> None:
        with contextlib.suppress(OSError):  # It is full, or closed: then nobody has to be woken.
            self._writes.send(b"\0")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.reads.recv(4096):
                pass

    def close(self) -> None:
        self.reads.close()
        self._writes.close()


class Driver:
    """What the thread and the client have in common. The thread has no client: so a client can be collected."""

    def __init__(self, path: str, options: Options) -> None:
        """Begin to serve; run attaches."""
        self.waker = _Waker()
        try:
            self.core = Core(path, options, self.waker)
        except BaseException:
            self.waker.close()
            raise
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.stopping = False

    def run(self) -> None:
        """Serve the connection until the client is closed."""
        try:
            while self._turn():
                pass
        except Exception:
            log.exception("BUG: the thread of a kvferry client failed; its calls are lost")
        finally:
            with self.lock:
                self.core.close()
                self.changed.notify_all()
            self.waker.close()

    def _turn(self) -> bool:
        with self.lock:
            if self.stopping:
                self.core.begin_close(time.monotonic())
            before = (self.core.session.joined, self.core.refusal)
            pause = self.core.turn(time.monotonic())
            if before != (self.core.session.joined, self.core.refusal):
                self.changed.notify_all()
            if self.core.closed:
                return False
            poll = select.poll()
            poll.register(self.waker.reads, select.POLLIN)
            if self.core.link is not None:
                wants = select.POLLOUT if self.core.wants_to_send() else 0
                poll.register(self.core.link, select.POLLIN | wants)
        # A thousandth more, that what is due then is due when it comes back.
        poll.poll(None if pause is None else int(pause * 1000) + 1)
        self.waker.drain()
        return True

    def stop(self) -> None:
        """Have the thread end. It takes no lock, for it may be called by a collection."""
        self.stopping = True
        self.waker()

    def forgotten(self) -> None:
        """Have the thread end for a client that was forgotten."""
        if not self.stopping and not self.core.forked:
            self.stop()
            warn_client("a kvferry client")

    @contextlib.contextmanager
    def locked(self, op: str) -> Iterator[Core]:
        """Give the core, which nobody else uses meanwhile. It raises where the client serves nobody any more."""
        self.core.usable(op)  # Before the lock: in a child it may be held for ever.
        with self.lock:
            yield self.core

    def begin(self, ask: Ask[Any], waiting: Waiting[Any]) -> Call:
        """Make a call."""
        with self.locked(ask.op) as core:
            call = core.begin(ask.op, ask.entries, waiting)
            all_went = core.flush(time.monotonic())
        if not all_went:
            self.waker()
        return call

    def tell(self, op: str, tell: Callable[..., None], *what: Any) -> None:
        """Have one of the session's calls told something."""
        with self.locked(op) as core:
            tell(core.session.calls, *what)
            all_went = core.flush(time.monotonic())
        if not all_went:
            self.waker()

    def forget(self, call: Call) -> None:
        """Know that nobody waits for a call any more."""
        if self.core.forked:
            return
        with self.lock:
            self.core.forget(call)
        self.waker()
