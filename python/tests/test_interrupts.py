"""Tests of signal handlers that raise in the middle of a call, as Ctrl-C does."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

import kvferry
from stub_agent import TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from stub_agent import StubAgent


class Interrupt:
    """Raises KeyboardInterrupt in this thread after so many function returns, where signal handlers can run."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.came = False

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        if event in ("return", "c_return") and not self.came:
            self.left -= 1
            if self.left < 0:
                self.came = True
                raise KeyboardInterrupt

    def within(self, act: Callable[[], Any]) -> BaseException | None:
        """Run an action, and return the interrupt."""
        sys.setprofile(self)
        try:
            act()
        except KeyboardInterrupt as error:
            return error
        finally:
            sys.setprofile(None)
        return None


def run_in_time(act: Callable[[], Any]) -> None:
    """Run an action on another thread, and check that it ends."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    assert not thread.is_alive(), "it waits for ever"


def test_an_interrupt_anywhere_leaves_the_client_whole(stub: StubAgent) -> None:
    kept = []  # The exception refers to every frame.
    client = kvferry.connect(stub.path, reply_margin=TIMEOUT)
    for after in itertools.count():
        interrupt = Interrupt(after)
        kept.append(interrupt.within(client.stats))
        run_in_time(client.stats)
        if not interrupt.came:
            break
    run_in_time(client.close)
    assert len(kept) > 10


def test_an_interrupt_anywhere_leaves_nothing_held(stub: StubAgent) -> None:
    def take_and_give_back() -> None:
        with client.reserve(1):
            pass

    client = kvferry.connect(stub.path, reply_margin=TIMEOUT)
    for after in itertools.count():
        interrupt = Interrupt(after)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # A handle may be dropped by that.
            interrupt.within(take_and_give_back)
            gc.collect(0)
        stub.wait_for(lambda agent: not agent.held_pages)
        if not interrupt.came:
            break
    run_in_time(client.close)
    assert after > 10
