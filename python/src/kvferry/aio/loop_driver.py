"""Serves the core of a client on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

from kvferry.attachment import warn_unclosed_client
from kvferry.core import Core

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvferry.call import Call
    from kvferry.call_waiter import CallWaiter
    from kvferry.values import Options, PinResult, PoolMemory

log = logging.getLogger("kvferry")


async def wait_for(future: asyncio.Future[None], timeout: float | None) -> bool:
    """Wait for something so many seconds; False where the time was over first. None: for as long as it takes."""
    done, _ = await asyncio.wait((future,), timeout=timeout)
    return bool(done)


class LoopDriver:
    """See the module. All of it runs on the loop that it was made in, but for forgotten."""

    def __init__(self, path: str, options: Options) -> None:
        """Begin to serve; turn begins to attach."""
        self._loop = asyncio.get_running_loop()
        self.core = Core(path, options, self._wake)
        self.changed = asyncio.Event()
        self.closed_event = asyncio.Event()
        self._registered_fd: int | None = None
        self._has_writer = False
        self._timer: asyncio.TimerHandle | None = None

    def run_once(self) -> None:
        """Do what can be done, and see to it that this is called when there is more."""
        core = self.core
        if core.closed or core.forked:
            return
        try:
            # What is polled must be forgotten before its descriptor is closed, and perhaps given to another.
            before, pause = core.link, core.run_once(self._loop.time())
            if core.link is not before:
                self._unregister()
        except Exception:
            log.exception("BUG: a kvferry client failed; its calls are lost")
            self.close()
            return
        if core.closed:
            self.close()
            return
        self._register()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if pause is None else self._loop.call_later(pause, self.run_once)
        if core.session.is_attached or core.refusal is not None:
            self.changed.set()

    def _register(self) -> None:
        link = self.core.link
        if link is None:
            self._unregister()
            return
        if self._registered_fd is None:
            self._registered_fd = link.fileno()
            self._loop.add_reader(self._registered_fd, self.run_once)
        wants = self.core.has_pending_bytes()
        if wants and not self._has_writer:
            self._loop.add_writer(self._registered_fd, self.run_once)
        elif not wants and self._has_writer:
            self._loop.remove_writer(self._registered_fd)
        self._has_writer = wants

    def _unregister(self) -> None:
        if self._registered_fd is not None:
            self._loop.remove_reader(self._registered_fd)
            self._loop.remove_writer(self._registered_fd)
        self._registered_fd, self._has_writer = None, False

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: nothing is given back any more.
            self._loop.call_soon_threadsafe(self.run_once)

    def begin_close(self) -> None:
        """Detach."""
        self.core.begin_close(self._loop.time())
        self.run_once()

    def close(self) -> None:
        """End everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._loop.is_closed():
            self._unregister()
        self.core.close()
        self.changed.set()
        self.closed_event.set()

    def stop_forgotten(self) -> None:
        """Close for a client that was forgotten. It may be called in the middle of anything."""
        if self.core.closing or self.core.forked:
            return
        try:
            self._loop.call_soon_threadsafe(self.begin_close)
        except RuntimeError:  # The loop is closed, so nothing else is under way: what goes at once is said here.
            now = time.monotonic()
            with contextlib.suppress(RuntimeError):  # Somebody waited on the loop for a call.
                self.core.begin_close(now)
            with contextlib.suppress(RuntimeError):
                self.core.run_once(now)
            with contextlib.suppress(RuntimeError):
                self.close()
        warn_unclosed_client("a kvferry.aio client")

    def pin_pool(self) -> PinResult:
        """Have the core pin its pool."""
        return self.core.pin_pool()

    def pool_memory(self) -> PoolMemory:
        """Have the core keep its pool."""
        return self.core.pool_memory()

    def begin_call(self, call: Call, waiter: CallWaiter[Any]) -> None:
        """Make a call."""
        self.core.check_call(call)
        self.core.begin_call(call, waiter)
        self.run_once()

    def run_on_core(self, op: str, action: Callable[..., None], *arguments: Any) -> None:
        """Have the core told something of a call."""
        self.core.check_usable(op)
        action(self.core, *arguments)
        self.run_once()

    def forget_call(self, call: Call) -> None:
        """Know that nobody waits for a call any more."""
        if not self.core.forked:
            self.core.forget_call(call)
            self.run_once()
