"""The thread that runs the core of a client."""

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
    """A one-shot event that any thread may wait for.

    A signal handler may raise during a wait, which must not leave a lock held, as a wait for a Future would: the
    client's thread would block on that lock. So each waiter has its own lock.
    """

    def __init__(self) -> None:
        """Create the event, not set."""
        self._is_set = False
        self._locks: deque[threading.Lock] = deque()

    def done(self) -> bool:
        """Report whether the event is set."""
        return self._is_set

    def set_result(self, _: None) -> None:
        """Set the event. It never blocks."""
        self._is_set = True
        while self._locks:
            self._locks.popleft().release()

    def wait(self, timeout: float | None) -> bool:
        """Wait for at most so many seconds (None: without limit), and report whether the event is set."""
        lock = threading.Lock()
        lock.acquire()
        self._locks.append(lock)
        if self._is_set or lock.acquire(timeout=-1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)):
            return True
        with contextlib.suppress(ValueError):  # The event is being set now.
            self._locks.remove(lock)
        return self._is_set


class _Waker:
    """Wakes the client's thread from anywhere, without a lock and without blocking."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self.reader.setblocking(False)
        self._writer.setblocking(False)

    def __call__(self) -> None:
        with contextlib.suppress(OSError):  # The buffer is full or closed; in both cases no wake-up is needed.
            self._writer.send(b"\0")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.reader.recv(4096)  # The rest is polled again.

    def close(self) -> None:
        self.reader.close()
        self._writer.close()


class ThreadDriver:
    """The state that the thread and the client share. The thread does not refer to the client, so that a dropped
    client can be collected.
    """

    def __init__(self, path: str, options: Options) -> None:
        """Create the driver; run attaches."""
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
        self._registered: tuple[int, int] | None = None  # the polled connection and its events
        self._readable = False  # whether the connection may have bytes to read

    def run(self) -> None:
        """Run the core until the client is closed."""
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
        # One millisecond more, so that a timer that is due then has expired when poll returns.
        ready = self._poll.poll(None if pause is None else int(pause * 1000) + 1)
        waker_fd = self.waker.reader.fileno()
        self._readable = any(fd != waker_fd for fd, _ in ready)
        if any(fd == waker_fd for fd, _ in ready):
            self.waker.drain()
        return True

    def _poll_connection(self) -> None:
        """Poll the current connection. Its descriptor may have the number of the previous connection's."""
        link, registration = self.core.link, None
        if link is not None:
            registration = (link.fileno(), select.POLLIN | (select.POLLOUT if self.core.has_pending_bytes() else 0))
        if registration == self._registered:
            return
        if self._registered is not None and (registration is None or registration[0] != self._registered[0]):
            self._poll.unregister(self._registered[0])
        if registration is not None:
            self._poll.register(*registration)
        self._registered = registration

    def stop(self) -> None:
        """Stop the thread. It takes no lock, because the garbage collector may call it."""
        self.stopping = True
        self.waker()

    def stop_forgotten(self) -> None:
        """Stop the thread of a client that was dropped without close."""
        if not self.stopping and not self.core.forked:
            self.stop()
            warn_unclosed_client("a kvferry client")

    # The following methods run in threads of the caller, where a signal handler may raise at any point. So they neither
    # touch the core nor take a lock: they queue actions for the client's own thread.

    def begin_call(self, call: Call, waiter: CallWaiter[Any]) -> None:
        """Make a call."""
        self.core.check_call(call)
        self._queue_action(lambda: self.core.begin_call(call, waiter))

    def run_on_core(self, op: str, action: Callable[..., None], *arguments: Any) -> None:
        """Run an action of the core."""
        self.core.check_usable(op)
        self._queue_action(lambda: action(self.core, *arguments))

    def forget_call(self, call: Call) -> None:
        """Handle a caller that stopped waiting for a call."""
        if not self.core.forked:
            self._queue_action(lambda: self.core.forget_call(call))

    def _queue_action(self, action: Callable[[], None]) -> None:
        self.core.queue_action(action)
        if self.core.closed:  # The thread may have run its last actions.
            self.core.run_actions()

    def pin_pool(self) -> PinResult:
        """Register the pool with CUDA."""
        with self.lock:
            return self.core.pin_pool()

    def pool_memory(self) -> PoolMemory:
        """Return the pool's memory, kept mapped."""
        with self.lock:
            return self.core.pool_memory()
