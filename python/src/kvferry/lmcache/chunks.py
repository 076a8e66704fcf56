"""Copies chunks between LMCache's memory and an agent's pages. The functions block and run on threads."""

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
    # Called with the index of a chunk and its content; returns False if there is no room. A chunk may come again.
    TakeChunk = Callable[[int, Any], bool]

# Pages that are reserved at once for one batch, because other batches need pages, too.
BATCH = 16
# The request id of gets that belong to no request that the agent knows: they consume chunks that were sent without a
# request id.
NO_REQUEST = "lmcache"
# The timeout of a call that starts after the deadline, in seconds.
_MIN_TIMEOUT = 0.001


class AgentChunks:
    """Chunks of an agent by name, in the order of a prompt."""

    def __init__(self, client: Client, failures: FailureLog) -> None:
        """Use an agent."""
        self._client = client
        self._failures = failures

    def store_chunks(self, names: Sequence[str], views: Sequence[Any], deadline: float) -> None:
        """Store the chunks that the agent's cache does not have. It raises if one cannot be stored."""
        check_in_time("store", deadline)
        for begin in range(self._client.contains(names), len(names), BATCH):
            batch = range(begin, min(begin + BATCH, len(names)))
            with release_without_wait(
                self._client.reserve(len(batch), key=names[0], timeout=remaining_time(deadline))
            ) as pages:
                for page, at in zip(pages, batch, strict=True):
                    fill_page(page, views[at])
                self._client.store(names[batch.start : batch.stop], pages)

    def count_available(self, names: Sequence[str], deadline: float, *, shared: bool = True) -> int:
        """Count the chunks, from the first one on, that are here or offered, and after them those that one peer has."""
        count = self._client.contains(names)
        if not shared or count == len(names) or time.monotonic() >= deadline:
            return count
        try:
            return count + self._client.lookup(names[count:]).remote
        except Error as error:  # An unreachable directory hides the chunks of peers, but not those of this agent.
            if error.code != Code.UNSUPPORTED:  # UNSUPPORTED means that the agent is configured without a directory.
                self._failures.log_failure("look up", "chunks of peers are not found", error)
            return count

    def load_chunks(self, names: Sequence[str], take: TakeChunk, deadline: float, *, shared: bool = True) -> int:
        """Pass chunks to a callback, from the first one on, and count them. Claims without a request id on these chunks
        end.

        Chunks that are not here are read from peers if they are shared, and otherwise from the senders that offered
        them.
        """
        count = 0
        while count < len(names) and time.monotonic() < deadline:
            size = min(BATCH, len(names) - count)
            loaded = self._load_batch(names[count:], size, count, take, deadline, shared=shared)
            count += loaded
            if loaded < size:
                break
        return count

    def consume_chunk(self, name: str, deadline: float) -> bool:
        """End one claim on a chunk that is here, or read it if it was offered; report whether there was one.

        The sender then gets its memory back.
        """
        with self._client.get([name], request=NO_REQUEST) as pages:
            if len(pages):
                return True
        return self._load_offered([name], lambda *_: True, 0, deadline)[0] == 1

    def _load_batch(
        self, names: Sequence[str], size: int, at: int, take: TakeChunk, deadline: float, *, shared: bool
    ) -> int:
        """Load the first chunks, and all offered chunks that follow them, because they are read by one fetch."""
        count = 0
        try:
            with release_without_wait(
                self._client.get(names[:size], request=NO_REQUEST)
            ) as pages:  # A get needs no directory.
                count, shortfall = _take_pages(pages, take, at, pages.shortfall)
                local = len(pages)
            if count == local < size:
                if shared:
                    rest = self._client.shared_get(
                        names[count:size], request=NO_REQUEST, timeout=remaining_time(deadline)
                    )
                    with release_without_wait(rest) as pages:
                        extra, shortfall = _take_pages(pages, take, at + count, pages.shortfall)
                else:
                    extra, shortfall = self._load_offered(names[count:], take, at + count, deadline)
                count += extra
        except Error as error:
            shortfall = error
        if shortfall is None:
            self._failures.clear_failures("load")
        elif shortfall.code not in (Code.NOT_FOUND, Code.UNSUPPORTED):
            self._failures.log_failure("load", "the rest is computed", shortfall)
        return count

    def _load_offered(
        self, names: Sequence[str], take: TakeChunk, at: int, deadline: float
    ) -> tuple[int, Error | None]:
        """Load the chunks, from the first one on, that are at their senders (pd_delay_pull). Return why no more came.

        A fetch waits for chunks that are missing, for example because another engine was faster. So only available
        chunks are requested, and the fetch is aborted if they disappear.
        """
        while available := self._client.contains(names):
            consumer = _FetchConsumer(take, at)

            def still_wanted(there: int = available, taking: _FetchConsumer = consumer) -> bool:
                return taking.count > 0 or self._client.contains(names[:there]) == there

            prefix = self._client.fetch(
                names[:available],
                consumer.scatter,
                request=NO_REQUEST,
                timeout=remaining_time(deadline),
                still_wanted=still_wanted,
            )
            shortfall = consumer.shortfall or prefix.shortfall
            if shortfall is None or shortfall.code != Code.CANCELLED or consumer.count or time.monotonic() >= deadline:
                # Chunks that were shown while the agent stopped may have had other content: only acknowledged chunks
                # count.
                return min(consumer.count, prefix.count), shortfall
        return 0, make_error("fetch", Code.NOT_FOUND)


class _FetchConsumer:
    """Takes the chunks of a fetch until one cannot be taken. The fetch continues, because no other call will read
    the rest.
    """

    def __init__(self, take: TakeChunk, at: int) -> None:
        self._take, self._at = take, at
        self.count = 0
        self.shortfall: Error | None = None

    def scatter(self, first: int, chunks: list[Bytes]) -> None:
        """Take more chunks."""
        for place, chunk in enumerate(chunks, first):
            try:
                if place == self.count and self._take(self._at + place, chunk):
                    self.count += 1
            except Error as error:
                self.shortfall = error


def _take_pages(pages: Any, take: TakeChunk, at: int, shortfall: Error | None) -> tuple[int, Error | None]:
    """Take pages and count them, including those before a page that cannot be taken. Return why no more were taken.

    If the handle became void before all was copied, the content may be wrong, and nothing counts.
    """
    count = 0
    try:
        for place, page in enumerate(pages):
            if not take(at + place, page.memory()):
                break
            count += 1
    except Error as error:
        shortfall = error
    if not count:
        return 0, shortfall
    try:
        pages.check_valid("get")
    except Error as error:
        return 0, error
    return count, shortfall


def fill_page(page: Page, view: Any) -> None:
    """Copy a whole chunk to a page."""
    check_same_size(page.nbytes, len(view))
    page.write(view)


def copy_chunk(chunk: Bytes | DeviceBytes, view: Any) -> None:
    """Copy a chunk to its destination."""
    check_same_size(chunk.nbytes, len(view))
    np.frombuffer(view, np.uint8)[:] = chunk.read() if isinstance(chunk, DeviceBytes) else chunk


def check_same_size(page_bytes: int, size: int) -> None:
    """Raise if a chunk does not have the size of the agent's pages."""
    if page_bytes != size:
        remedy = (
            "correct layout and chunk_size of the agent's file: a page must have the size of LMCache's chunk at a rank"
        )
        raise invalid_error("copy", "size of a chunk", f"{size} bytes", f"the agent's {page_bytes}", remedy)


def check_in_time(work: str, deadline: float) -> None:
    """Raise if the deadline of a batch has passed before it starts.

    Each call to a stopped agent takes long, and memory of LMCache's is blocked meanwhile.
    """
    if time.monotonic() >= deadline:
        remedy = (
            "check whether the agent is stopped or overloaded; a higher limit of concurrent loads or saves may help"
        )
        details = ErrorDetails(
            stage="command", field="the batch", theirs="its deadline passed before it started", remedy=remedy
        )
        raise make_error(work, Code.EXPIRED, details)


def remaining_time(deadline: float) -> float:
    """Return the time until a deadline. A call after the deadline gets a minimal timeout and ends at once."""
    return max(_MIN_TIMEOUT, deadline - time.monotonic())
