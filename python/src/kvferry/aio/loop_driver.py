"""Runs the core of a client on an event loop."""

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
    """Wait for a future for at most so many seconds (None: without limit), and report whether it is done."""
    done, _ = await asyncio.wait((future,), timeout=timeout)
    return bool(done)


class LoopDriver:
    """See the module. All methods run on the event loop in which it was created, except stop_forgotten."""

    def __init__(self, path: str, options: Options) -> None:
        """Create the driver; run_once starts to attach."""
        self._loop = asyncio.get_running_loop()
        self.core = Core(path, options, self._wake)
        self.changed = asyncio.Event()
        self.closed_event = asyncio.Event()
        self._registered_fd: int | None = None
        self._has_writer = False
        self._timer: asyncio.TimerHandle | None = None

    def run_once(self) -> None:
        """Do everything that is possible, and schedule the next call."""
        core = self.core
        if core.closed or core.forked:
            return
        try:
            # A descriptor must be unregistered before it is closed, because its number may be reused.
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
        with contextlib.suppress(RuntimeError):  # The loop is closed: nothing is released any more.
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
        """Close a client that was dropped without close. It may be called at any point."""
        if self.core.closing or self.core.forked:
            return
        try:
            self._loop.call_soon_threadsafe(self.begin_close)
        except RuntimeError:  # The loop is closed, so nothing else is running: send the detach message from here.
            now = time.monotonic()
            with contextlib.suppress(RuntimeError):  # A caller waited on the loop for a call.
                self.core.begin_close(now)
            with contextlib.suppress(RuntimeError):
                self.core.run_once(now)
            with contextlib.suppress(RuntimeError):
                self.close()
        warn_unclosed_client("a kvferry.aio client")

    def pin_pool(self) -> PinResult:
        """Register the pool with CUDA."""
        return self.core.pin_pool()

    def pool_memory(self) -> PoolMemory:
        """Return the pool's memory, kept mapped."""
        return self.core.pool_memory()

    def begin_call(self, call: Call, waiter: CallWaiter[Any]) -> None:
        """Make a call."""
        self.core.check_call(call)
        self.core.begin_call(call, waiter)
        self.run_once()

    def run_on_core(self, op: str, action: Callable[..., None], *arguments: Any) -> None:
        """Run an action of the core."""
        self.core.check_usable(op)
        action(self.core, *arguments)
        self.run_once()

    def forget_call(self, call: Call) -> None:
        """Handle a caller that stopped waiting for a call."""
        if not self.core.forked:
            self.core.forget_call(call)
            self.run_once()
