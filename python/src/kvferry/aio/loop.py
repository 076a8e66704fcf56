"""Serves the core of a client on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

from kvferry.attachment import warn_client
from kvferry.core import Core

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvferry.call import Call
    from kvferry.values import Options, OwnMemory, Pinned
    from kvferry.waiting import Waiting

log = logging.getLogger("kvferry")


async def wait(for_it: asyncio.Future[None], timeout: float | None) -> bool:
    """Wait for something so many seconds; False where the time was over first. None: for as long as it takes."""
    done, _ = await asyncio.wait((for_it,), timeout=timeout)
    return bool(done)


class Driver:
    """See the module. All of it runs on the loop that it was made in, but for forgotten."""

    def __init__(self, path: str, options: Options) -> None:
        """Begin to serve; turn begins to attach."""
        self._loop = asyncio.get_running_loop()
        self.core = Core(path, options, self._wake)
        self.changed = asyncio.Event()
        self.over = asyncio.Event()
        self._polled: int | None = None
        self._writes = False
        self._timer: asyncio.TimerHandle | None = None

    def turn(self) -> None:
        """Do what can be done, and see to it that this is called when there is more."""
        core = self.core
        if core.closed or core.forked:
            return
        try:
            # What is polled must be forgotten before its descriptor is closed, and perhaps given to another.
            before, pause = core.link, core.turn(self._loop.time())
            if core.link is not before:
                self._unpoll()
        except Exception:
            log.exception("BUG: a kvferry client failed; its calls are lost")
            self.close()
            return
        if core.closed:
            self.close()
            return
        self._poll()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if pause is None else self._loop.call_later(pause, self.turn)
        if core.session.joined or core.refusal is not None:
            self.changed.set()

    def _poll(self) -> None:
        link = self.core.link
        if link is None:
            self._unpoll()
            return
        if self._polled is None:
            self._polled = link.fileno()
            self._loop.add_reader(self._polled, self.turn)
        wants = self.core.wants_to_send()
        if wants and not self._writes:
            self._loop.add_writer(self._polled, self.turn)
        elif not wants and self._writes:
            self._loop.remove_writer(self._polled)
        self._writes = wants

    def _unpoll(self) -> None:
        if self._polled is not None:
            self._loop.remove_reader(self._polled)
            self._loop.remove_writer(self._polled)
        self._polled, self._writes = None, False

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: nothing is given back any more.
            self._loop.call_soon_threadsafe(self.turn)

    def begin_close(self) -> None:
        """Detach."""
        self.core.begin_close(self._loop.time())
        self.turn()

    def close(self) -> None:
        """End everything."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._loop.is_closed():
            self._unpoll()
        self.core.close()
        self.changed.set()
        self.over.set()

    def forgotten(self) -> None:
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
                self.core.turn(now)
            with contextlib.suppress(RuntimeError):
                self.close()
        warn_client("a kvferry.aio client")

    def pin(self) -> Pinned:
        """Have the core pin its pool."""
        return self.core.pin()

    def own_memory(self) -> OwnMemory:
        """Have the core keep its pool."""
        return self.core.own_memory()

    def begin(self, call: Call, waiting: Waiting[Any]) -> None:
        """Make a call."""
        self.core.look(call)
        self.core.begin(call, waiting)
        self.turn()

    def tell(self, op: str, tell: Callable[..., None], *what: Any) -> None:
        """Have the core told something of a call."""
        self.core.usable(op)
        tell(self.core, *what)
        self.turn()

    def forget(self, call: Call) -> None:
        """Know that nobody waits for a call any more."""
        if not self.core.forked:
            self.core.forget(call)
            self.turn()
