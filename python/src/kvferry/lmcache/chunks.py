"""Chunks of LMCache's memory, in and out of an agent's pages. What is here waits: it runs on threads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from kvferry.codes import Code
from kvferry.errors import Error, Why, error_of, wrong
from kvferry.handles import briefly
from kvferry.npu import DeviceBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from kvferry.client import Client
    from kvferry.holding import Page
    from kvferry.lmcache.complaints import Complaints

    Bytes = npt.NDArray[np.uint8]
    # Takes a chunk by its place; gives false where it has no room. What it took may not count, and come again.
    Take = Callable[[int, Any], bool]

# Pages that are held at once for one batch: others need some too.
BATCH = 16
# What a get is called that is for no request that the agent knows: it consumes what came for no named one.
ANYBODY = "lmcache"
# What a call is given whose time is over, in seconds.
_SOON = 0.001


class Chunks:
    """Chunks by their names, in the order of a prompt."""

    def __init__(self, client: Client, complaints: Complaints) -> None:
        """Use an agent."""
        self._client = client
        self._complaints = complaints

    def store(self, names: Sequence[str], views: Sequence[Any], until: float) -> None:
        """Give the agent's cache those that it has not. It raises where one is not stored."""
        in_time("store", until)
        for begin in range(self._client.contains(names), len(names), BATCH):
            some = range(begin, min(begin + BATCH, len(names)))
            with briefly(self._client.reserve(len(some), patience=left(until))) as pages:
                for page, at in zip(pages, some, strict=True):
                    fill(page, views[at])
                self._client.store(names[some.start : some.stop], pages)

    def find(self, names: Sequence[str], until: float, *, shared: bool = True) -> int:
        """Count those from the first one on that are here or offered, and of the others those that one peer has."""
        count = self._client.contains(names)
        if not shared or count == len(names) or time.monotonic() >= until:
            return count
        try:
            return count + self._client.lookup(names[count:]).elsewhere
        except Error as error:  # A directory that is down hides what peers have, and not what is here.
            if error.code != Code.UNSUPPORTED:  # Then the agent has no directory, as it was told.
                self._complaints.say("look up", "what peers have is not found", error)
            return count

    def load(self, names: Sequence[str], take: Take, until: float, *, shared: bool = True) -> int:
        """Have chunks taken, from the first one on; count them. Claims that name no request end on what is taken.

        Those that are not here are read from peers if they are shared, and else from the senders that offered them.
        """
        done = 0
        while done < len(names) and time.monotonic() < until:
            some = min(BATCH, len(names) - done)
            came = self._come(names[done:], some, done, take, until, shared=shared)
            done += came
            if came < some:
                break
        return done

    def consume(self, name: str, until: float) -> bool:
        """End one claim on a chunk that is here, or have it read if it was offered; say whether it is so.

        Its sender has its memory back.
        """
        with self._client.get([name], request=ANYBODY) as pages:
            if len(pages):
                return True
        return self._offered([name], lambda *_: True, 0, until)[0] == 1

    def _come(self, names: Sequence[str], some: int, at: int, take: Take, until: float, *, shared: bool) -> int:
        """Have the first of them taken, and those behind them that are offered: it is one fetch, of all of them."""
        done = 0
        try:
            with briefly(self._client.get(names[:some], request=ANYBODY)) as pages:  # For it no directory is needed.
                done, short = _taken(pages, take, at, pages.short)
                here = len(pages)
            if done == here < some:
                if shared:
                    rest = self._client.shared_get(names[done:some], request=ANYBODY, patience=left(until))
                    with briefly(rest) as pages:
                        more, short = _taken(pages, take, at + done, pages.short)
                else:
                    more, short = self._offered(names[done:], take, at + done, until)
                done += more
        except Error as error:
            short = error
        if short is None:
            self._complaints.well("load")
        elif short.code not in (Code.NOT_FOUND, Code.UNSUPPORTED):
            self._complaints.say("load", "the rest is computed", short)
        return done

    def _offered(self, names: Sequence[str], take: Take, at: int, until: float) -> tuple[int, Error | None]:
        """Have those taken, from the first one on, that are at their senders (pd_delay_pull). Say why it is not more.

        A fetch waits for what is not there, as where another one was faster: so it asks for what is, and ends if that
        is not there any more.
        """
        while there := self._client.contains(names):
            taking = _Taking(take, at)

            def wanted(there: int = there, taking: _Taking = taking) -> bool:
                return taking.taken > 0 or self._client.contains(names[:there]) == there

            prefix = self._client.fetch(
                names[:there], taking.scatter, request=ANYBODY, patience=left(until), wanted=wanted
            )
            short = taking.short or prefix.short
            if short is None or short.code != Code.CANCELLED or taking.taken or time.monotonic() >= until:
                # What was shown while the agent ended may have been others' bytes: what it has heard of counts.
                return min(taking.taken, prefix.count), short
        return 0, error_of("fetch", Code.NOT_FOUND)


class _Taking:
    """Takes what a fetch shows, until something cannot be taken. The fetch goes on then: nobody else comes for it."""

    def __init__(self, take: Take, at: int) -> None:
        self._take, self._at = take, at
        self.taken = 0
        self.short: Error | None = None

    def scatter(self, first: int, chunks: list[Bytes]) -> None:
        """Take some more."""
        for place, chunk in enumerate(chunks, first):
            try:
                if place == self.taken and self._take(self._at + place, chunk):
                    self.taken += 1
            except Error as error:
                self.short = error


def _taken(pages: Any, take: Take, at: int, short: Error | None) -> tuple[int, Error | None]:
    """Count what is taken, also before a chunk that cannot be: who took it has it. Say why it is not more.

    What was void before all was copied may have been others' bytes: nothing counts then.
    """
    taken = 0
    try:
        for place, page in enumerate(pages):
            if not take(at + place, page.memory()):
                break
            taken += 1
    except Error as error:
        short = error
    if not taken:
        return 0, short
    try:
        pages.look("get")
    except Error as error:
        return 0, error
    return taken, short


def fill(page: Page, view: Any) -> None:
    """Copy a whole chunk to a page."""
    same_size(page.nbytes, len(view))
    page.write(view)


def drain(chunk: Bytes | DeviceBytes, view: Any) -> None:
    """Copy a chunk to where it belongs."""
    same_size(chunk.nbytes, len(view))
    np.frombuffer(view, np.uint8)[:] = chunk.read() if isinstance(chunk, DeviceBytes) else chunk


def same_size(given: int, size: int) -> None:
    """Refuse chunks of other sizes than the agent's."""
    if given != size:
        remedy = "mend layout and chunk_size of the agent's file: a page is what LMCache has of a chunk at a rank"
        raise wrong("copy", "size of a chunk", f"{size} bytes", f"the agent's {given}", remedy)


def in_time(work: str, until: float) -> None:
    """Refuse work whose time was over before it began: one call after the other to an agent that is stopped takes long.

    Memory of LMCache's waits for it meanwhile.
    """
    if time.monotonic() >= until:
        remedy = "look whether the agent is stopped or overloaded; more loads or saves at a time may help"
        why = Why(stage="command", field="the batch", theirs="late before it began", remedy=remedy)
        raise error_of(work, Code.EXPIRED, why)


def left(until: float) -> float:
    """Give the time that is left; what is too late is asked for all the same, and ends at once."""
    return max(_SOON, until - time.monotonic())
