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

from kvferry.attachment import warn_unclosed_client
from kvferry.core import Core

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvferry.call import Call
    from kvferry.call_waiter import CallWaiter
    from kvferry.values import Options, PinResult, PoolMemory

log = logging.getLogger("kvferry")


class CompletionEvent:
    """What comes to pass once. Any thread may wait for it.

    A wait may end at any point by what the handler of a signal raises, and must leave no lock held, as one for a Future
    does: the thread of the client would wait for that lock for ever. So who waits has a lock alone.
    """

    def __init__(self) -> None:
        """Begin before it has come to pass."""
        self._is_set = False
        self._locks: deque[threading.Lock] = deque()

    def done(self) -> bool:
        """Say whether it has come to pass."""
        return self._is_set

    def set_result(self, _: None) -> None:
        """Have it come to pass. It never waits."""
        self._is_set = True
        while self._locks:
            self._locks.popleft().release()

    def wait(self, timeout: float | None) -> bool:
        """Wait so many seconds; False where the time was over first. None: for as long as it takes."""
        lock = threading.Lock()
        lock.acquire()
        self._locks.append(lock)
        if self._is_set or lock.acquire(timeout=-1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)):
            return True
        with contextlib.suppress(ValueError):  # It comes to pass just now.
            self._locks.remove(lock)
        return self._is_set


class _Waker:
    """Wakes the thread of a client, from anywhere: without a lock, and without waiting."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self.reader.setblocking(False)
        self._writer.setblocking(False)

    def __call__(self) -> None:
        with contextlib.suppress(OSError):  # It is full, or closed: then nobody has to be woken.
            self._writer.send(b"\0")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.reader.recv(4096)  # What is left is polled again.

    def close(self) -> None:
        self.reader.close()
        self._writer.close()


class ThreadDriver:
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
        self._poll.register(self.waker.reader, select.POLLIN)
        self._registered: tuple[int, int] | None = None  # The connection, and for what.
        self._readable = False  # There may be something to read from it.

    def run(self) -> None:
        """Serve the connection until the client is closed."""
        try:
            while self._run_once():
                pass
        except Exception:
            log.exception("BUG: the thread of a kvferry client failed; its calls are lost")
        finally:
            with self.lock:
                self.core.close()
                self.changed.notify_all()
            self.core.run_actions()
            self.waker.close()

    def _run_once(self) -> bool:
        with self.lock:
            if self.stopping:
                self.core.begin_close(time.monotonic())
            before = (self.core.session.is_attached, self.core.refusal)
            pause = self.core.run_once(time.monotonic(), readable=self._readable)
            if before != (self.core.session.is_attached, self.core.refusal):
                self.changed.notify_all()
            if self.core.closed:
                return False
            self._poll_connection()
        # A thousandth more, that what is due then is due when it comes back.
        ready = self._poll.poll(None if pause is None else int(pause * 1000) + 1)
        waker_fd = self.waker.reader.fileno()
        self._readable = any(fd != waker_fd for fd, _ in ready)
        if any(fd == waker_fd for fd, _ in ready):
            self.waker.drain()
        return True

    def _poll_connection(self) -> None:
        """Have the connection polled that there is now. Its number may be that of the one before."""
        link, wanted = self.core.link, None
        if link is not None:
            wanted = (link.fileno(), select.POLLIN | (select.POLLOUT if self.core.has_pending_bytes() else 0))
        if wanted == self._registered:
            return
        if self._registered is not None and (wanted is None or wanted[0] != self._registered[0]):
            self._poll.unregister(self._registered[0])
        if wanted is not None:
            self._poll.register(*wanted)
        self._registered = wanted

    def stop(self) -> None:
        """Have the thread end. It takes no lock, for it may be called by a collection."""
        self.stopping = True
        self.waker()

    def stop_forgotten(self) -> None:
        """Have the thread end for a client that was forgotten."""
        if not self.stopping and not self.core.forked:
            self.stop()
            warn_unclosed_client("a kvferry client")

    # What follows is called by threads of the caller's, where a signal's handler may raise at any point. So none of it
    # touches the core, or takes a lock: the client's own thread does what it is asked for.

    def begin_call(self, call: Call, waiter: CallWaiter[Any]) -> None:
        """Make a call."""
        self.core.check_call(call)
        self._queue_action(lambda: self.core.begin_call(call, waiter))

    def run_on_core(self, op: str, action: Callable[..., None], *arguments: Any) -> None:
        """Have the core told something of a call."""
        self.core.check_usable(op)
        self._queue_action(lambda: action(self.core, *arguments))

    def forget_call(self, call: Call) -> None:
        """Know that nobody waits for a call any more."""
        if not self.core.forked:
            self._queue_action(lambda: self.core.forget_call(call))

    def _queue_action(self, action: Callable[[], None]) -> None:
        self.core.queue_action(action)
        if self.core.closed:  # The thread may have acted for the last time.
            self.core.run_actions()

    def pin_pool(self) -> PinResult:
        """Have the core pin its pool."""
        with self.lock:
            return self.core.pin_pool()

    def pool_memory(self) -> PoolMemory:
        """Have the core keep its pool."""
        with self.lock:
            return self.core.pool_memory()
