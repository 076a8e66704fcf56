"""The thread that serves the core of a client."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from kvferry.attachment import warn_client
from kvferry.core import Core

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvferry.call import Call
    from kvferry.values import Options, OwnMemory, Pinned
    from kvferry.waiting import Waiting

log = logging.getLogger("kvferry")


class Once:
    """What comes to pass once. Any thread may wait for it.

    A wait may end at any point by what the handler of a signal raises, and must leave no lock held, as one for a Future
    does: the thread of the client would wait for that lock for ever. So who waits has a lock alone.
    """

    def __init__(self) -> None:
        """Begin before it has come to pass."""
        self._passed = False
        self._locks: deque[threading.Lock] = deque()

    def done(self) -> bool:
        """Say whether it has come to pass."""
        return self._passed

    def set_result(self, _: None) -> None:
        """Have it come to pass. It never waits."""
        self._passed = True
        while self._locks:
            self._locks.popleft().release()

    def wait(self, timeout: float | None) -> bool:
        """Wait so many seconds; False where the time was over first. None: for as long as it takes."""
        lock = threading.Lock()
        lock.acquire()
        self._locks.append(lock)
        if self._passed or lock.acquire(timeout=-1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)):
            return True
        with contextlib.suppress(ValueError):  # It comes to pass just now.
            self._locks.remove(lock)
        return self._passed


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
            self.reads.recv(4096)  # What is left is polled again.

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
        self._poll = select.poll()
        self._poll.register(self.waker.reads, select.POLLIN)
        self._polled: tuple[int, int] | None = None  # The connection, and for what.
        self._readable = False  # There may be something to read from it.

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
            self.core.act()
            self.waker.close()

    def _turn(self) -> bool:
        with self.lock:
            if self.stopping:
                self.core.begin_close(time.monotonic())
            before = (self.core.session.joined, self.core.refusal)
            pause = self.core.turn(time.monotonic(), readable=self._readable)
            if before != (self.core.session.joined, self.core.refusal):
                self.changed.notify_all()
            if self.core.closed:
                return False
            self._register()
        # A thousandth more, that what is due then is due when it comes back.
        ready = self._poll.poll(None if pause is None else int(pause * 1000) + 1)
        woken = self.waker.reads.fileno()
        self._readable = any(fd != woken for fd, _ in ready)
        if any(fd == woken for fd, _ in ready):
            self.waker.drain()
        return True

    def _register(self) -> None:
        """Have the connection polled that there is now. Its number may be that of the one before."""
        link, polled = self.core.link, None
        if link is not None:
            polled = (link.fileno(), select.POLLIN | (select.POLLOUT if self.core.wants_to_send() else 0))
        if polled == self._polled:
            return
        if self._polled is not None and (polled is None or polled[0] != self._polled[0]):
            self._poll.unregister(self._polled[0])
        if polled is not None:
            self._poll.register(*polled)
        self._polled = polled

    def stop(self) -> None:
        """Have the thread end. It takes no lock, for it may be called by a collection."""
        self.stopping = True
        self.waker()

    def forgotten(self) -> None:
        """Have the thread end for a client that was forgotten."""
        if not self.stopping and not self.core.forked:
            self.stop()
            warn_client("a kvferry client")

    # What follows is called by threads of the caller's, where a signal's handler may raise at any point. So none of it
    # touches the core, or takes a lock: the client's own thread does what it is asked for.

    def begin(self, call: Call, waiting: Waiting[Any]) -> None:
        """Make a call."""
        self.core.look(call)
        self._ask(lambda: self.core.begin(call, waiting))

    def tell(self, op: str, tell: Callable[..., None], *what: Any) -> None:
        """Have the core told something of a call."""
        self.core.usable(op)
        self._ask(lambda: tell(self.core, *what))

    def forget(self, call: Call) -> None:
        """Know that nobody waits for a call any more."""
        if not self.core.forked:
            self._ask(lambda: self.core.forget(call))

    def _ask(self, act: Callable[[], None]) -> None:
        self.core.ask(act)
        if self.core.closed:  # The thread may have acted for the last time.
            self.core.act()

    def pin(self) -> Pinned:
        """Have the core pin its pool."""
        with self.lock:
            return self.core.pin()

    def own_memory(self) -> OwnMemory:
        """Have the core keep its pool."""
        with self.lock:
            return self.core.own_memory()
