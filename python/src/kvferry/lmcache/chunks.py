"""Chunks of LMCache's memory, in and out of an agent's pages. What is here waits: it runs on threads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from kvferry.codes import Code
from kvferry.errors import Error, ErrorDetails, invalid_error, make_error
from kvferry.handles import release_without_wait
from kvferry.npu import DeviceBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from kvferry.client import Client
    from kvferry.handle_base import Page
    from kvferry.lmcache.failure_log import FailureLog

    Bytes = npt.NDArray[np.uint8]
    # Takes a chunk by its place; gives false where it has no room. What it took may not count, and come again.
    TakeChunk = Callable[[int, Any], bool]

# Pages that are held at once for one batch: others need some too.
BATCH = 16
# What a get is called that is for no request that the agent knows: it consumes what came for no named one.
NO_REQUEST = "lmcache"
# What a call is given whose time is over, in seconds.
_MIN_TIMEOUT = 0.001


class AgentChunks:
    """Chunks by their names, in the order of a prompt."""

    def __init__(self, client: Client, failures: FailureLog) -> None:
        """Use an agent."""
        self._client = client
        self._failures = failures

    def store_chunks(self, names: Sequence[str], views: Sequence[Any], deadline: float) -> None:
        """Give the agent's cache those that it has not. It raises where one is not stored."""
        check_in_time("store", deadline)
        for begin in range(self._client.contains(names), len(names), BATCH):
            batch = range(begin, min(begin + BATCH, len(names)))
            with release_without_wait(self._client.reserve(len(batch), timeout=remaining_time(deadline))) as pages:
                for page, at in zip(pages, batch, strict=True):
                    fill_page(page, views[at])
                self._client.store(names[batch.start : batch.stop], pages)

    def count_available(self, names: Sequence[str], deadline: float, *, shared: bool = True) -> int:
        """Count those from the first one on that are here or offered, and of the others those that one peer has."""
        count = self._client.contains(names)
        if not shared or count == len(names) or time.monotonic() >= deadline:
            return count
        try:
            return count + self._client.lookup(names[count:]).remote
        except Error as error:  # A directory that is down hides what peers have, and not what is here.
            if error.code != Code.UNSUPPORTED:  # Then the agent has no directory, as it was told.
                self._failures.log_failure("look up", "what peers have is not found", error)
            return count

    def load_chunks(self, names: Sequence[str], take: TakeChunk, deadline: float, *, shared: bool = True) -> int:
        """Have chunks taken, from the first one on; count them. Claims that name no request end on what is taken.

        Those that are not here are read from peers if they are shared, and else from the senders that offered them.
        """
        done = 0
        while done < len(names) and time.monotonic() < deadline:
            size = min(BATCH, len(names) - done)
            loaded = self._load_batch(names[done:], size, done, take, deadline, shared=shared)
            done += loaded
            if loaded < size:
                break
        return done

    def consume_chunk(self, name: str, deadline: float) -> bool:
        """End one claim on a chunk that is here, or have it read if it was offered; say whether it is so.

        Its sender has its memory back.
        """
        with self._client.get([name], request=NO_REQUEST) as pages:
            if len(pages):
                return True
        return self._load_offered([name], lambda *_: True, 0, deadline)[0] == 1

    def _load_batch(
        self, names: Sequence[str], size: int, at: int, take: TakeChunk, deadline: float, *, shared: bool
    ) -> int:
        """Have the first of them taken, and those behind them that are offered: it is one fetch, of all of them."""
        done = 0
        try:
            with release_without_wait(
                self._client.get(names[:size], request=NO_REQUEST)
            ) as pages:  # For it no directory is needed.
                done, shortfall = _take_pages(pages, take, at, pages.shortfall)
                local = len(pages)
            if done == local < size:
                if shared:
                    rest = self._client.shared_get(
                        names[done:size], request=NO_REQUEST, timeout=remaining_time(deadline)
                    )
                    with release_without_wait(rest) as pages:
                        more, shortfall = _take_pages(pages, take, at + done, pages.shortfall)
                else:
                    more, shortfall = self._load_offered(names[done:], take, at + done, deadline)
                done += more
        except Error as error:
            shortfall = error
        if shortfall is None:
            self._failures.clear_failures("load")
        elif shortfall.code not in (Code.NOT_FOUND, Code.UNSUPPORTED):
            self._failures.log_failure("load", "the rest is computed", shortfall)
        return done

    def _load_offered(
        self, names: Sequence[str], take: TakeChunk, at: int, deadline: float
    ) -> tuple[int, Error | None]:
        """Have those taken, from the first one on, that are at their senders (pd_delay_pull). Say why it is not more.

        A fetch waits for what is not there, as where another one was faster: so it asks for what is, and ends if that
        is not there any more.
        """
        while available := self._client.contains(names):
            consumer = _FetchConsumer(take, at)

            def still_wanted(there: int = available, taking: _FetchConsumer = consumer) -> bool:
                return taking.taken > 0 or self._client.contains(names[:there]) == there

            prefix = self._client.fetch(
                names[:available],
                consumer.scatter,
                request=NO_REQUEST,
                timeout=remaining_time(deadline),
                still_wanted=still_wanted,
            )
            shortfall = consumer.shortfall or prefix.shortfall
            if shortfall is None or shortfall.code != Code.CANCELLED or consumer.taken or time.monotonic() >= deadline:
                # What was shown while the agent ended may have been others' bytes: what it has heard of counts.
                return min(consumer.taken, prefix.count), shortfall
        return 0, make_error("fetch", Code.NOT_FOUND)


class _FetchConsumer:
    """Takes what a fetch shows, until something cannot be taken. The fetch goes on then: nobody else comes for it."""

    def __init__(self, take: TakeChunk, at: int) -> None:
        self._take, self._at = take, at
        self.taken = 0
        self.shortfall: Error | None = None

    def scatter(self, first: int, chunks: list[Bytes]) -> None:
        """Take some more."""
        for place, chunk in enumerate(chunks, first):
            try:
                if place == self.taken and self._take(self._at + place, chunk):
                    self.taken += 1
            except Error as error:
                self.shortfall = error


def _take_pages(pages: Any, take: TakeChunk, at: int, shortfall: Error | None) -> tuple[int, Error | None]:
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
        shortfall = error
    if not taken:
        return 0, shortfall
    try:
        pages.check_valid("get")
    except Error as error:
        return 0, error
    return taken, shortfall


def fill_page(page: Page, view: Any) -> None:
    """Copy a whole chunk to a page."""
    check_same_size(page.nbytes, len(view))
    page.write(view)


def copy_chunk(chunk: Bytes | DeviceBytes, view: Any) -> None:
    """Copy a chunk to where it belongs."""
    check_same_size(chunk.nbytes, len(view))
    np.frombuffer(view, np.uint8)[:] = chunk.read() if isinstance(chunk, DeviceBytes) else chunk


def check_same_size(page_bytes: int, size: int) -> None:
    """Refuse chunks of other sizes than the agent's."""
    if page_bytes != size:
        remedy = "mend layout and chunk_size of the agent's file: a page is what LMCache has of a chunk at a rank"
        raise invalid_error("copy", "size of a chunk", f"{size} bytes", f"the agent's {page_bytes}", remedy)


def check_in_time(work: str, deadline: float) -> None:
    """Refuse work whose time was over before it began: one call after the other to an agent that is stopped takes long.

    Memory of LMCache's waits for it meanwhile.
    """
    if time.monotonic() >= deadline:
        remedy = "look whether the agent is stopped or overloaded; more loads or saves at a time may help"
        details = ErrorDetails(stage="command", field="the batch", theirs="late before it began", remedy=remedy)
        raise make_error(work, Code.EXPIRED, details)


def remaining_time(deadline: float) -> float:
    """Give the time that is left; what is too late is asked for all the same, and ends at once."""
    return max(_MIN_TIMEOUT, deadline - time.monotonic())
