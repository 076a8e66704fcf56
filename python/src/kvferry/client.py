"""The client for programs with threads. Its methods may be called by any of them, also at once."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from kvferry import operations
from kvferry.asking import unanswered
from kvferry.attachment import SOCKET_VARIABLE, Attachment, socket_path
from kvferry.call import Call
from kvferry.codes import Code
from kvferry.core import Core
from kvferry.errors import Error, LostError
from kvferry.handles import Pages, Pending, Prefill, PutResult, RecallResult, Shared
from kvferry.progress import Found, Progress
from kvferry.thread import Driver, Once
from kvferry.values import Lookup, Options, Prefix, Received, Written
from kvferry.waiting import Waiting

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt

    from kvferry.asking import Ask
    from kvferry.values import Blocks, Peer, ProducerPeer, SharingPeer
    from kvferry.waiting import Chunks

    # Takes the place of the first chunk among the keys, and the chunks.
    Scatter = Callable[[int, list[npt.NDArray[np.uint8]]], None]

__all__ = ["SOCKET_VARIABLE", "Client", "Pages", "Pending", "Prefill", "PutResult", "RecallResult", "Shared", "connect"]

T = TypeVar("T")

# How often it is asked whether a fetch is still wanted that brings nothing, in seconds.
_LOOK = 0.5
# What comes of a fetch when it is time to ask that.
_NOTHING: tuple[int, list[Any]] = (-1, [])


class Client(Attachment):
    """A process's attachment to the agent of its host; see connect.

    A call raises an Error that says why it did not end as wanted. Calls that come to a prefix of what was asked for
    give that prefix, with the reason as its attribute short. A patience is in seconds; None is what is configured at
    the agent.
    """

    _driver: Driver

    def __init__(self, path: str, options: Options) -> None:
        """Attach; use connect."""
        driver = Driver(path, options)
        super().__init__(driver, options)
        self._thread = threading.Thread(target=driver.run, name="kvferry", daemon=True)
        self._thread.start()
        self._guard = weakref.finalize(self, driver.forgotten)
        self._guard.atexit = False
        try:
            with driver.lock:
                core = driver.core
                driver.changed.wait_for(lambda: core.session.joined or core.refusal or core.closed, options.timeout)
                self._look_attached()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Detach. The agent takes back all that this client holds; its handles are void.

        That the agent has done so is waited for, but not for long.
        """
        self._guard.detach()
        if self._driver.core.forked:
            return
        self._driver.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Client:
        """Close it at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Close it."""
        self.close()

    def stats(self) -> dict[str, Any]:
        """Get what the agent counts, for people and for metrics."""
        return self._run(operations.stats())

    # ---- sender ----

    def reserve(self, count: int, *, patience: float | None = None) -> Pages:
        """Take so many pages of the pool, all or none. Their content is not defined."""
        return Pages(self, self._run(operations.reserve(count, patience)), writable=True)

    def put(
        self,
        *,
        peer: Peer,
        keys: Sequence[str],
        pages: Pages,
        request: str = "",
        first: int = 0,
        tokens: int = 0,
        last: bool = False,
        patience: float | None = None,
    ) -> PutResult:
        """Push one batch of a request's chunks, or in pull mode offer it: chunk i has keys[i] and lies in page first+i.

        It returns when the peer has what it will have of the batch. Tokens are those of the last chunk, 0 a full one.
        With last no batch of the request follows, and the proxy is told when all have ended. The pages may still be
        read then, also after an error, whose result is the PutResult: see PutResult.held.
        """
        return self._put(operations.put(peer, keys, pages, request, first, tokens, last, patience))

    def recall(
        self,
        *,
        peer: Peer,
        keys: Sequence[str],
        pages: Pages,
        request: str = "",
        first: int = 0,
        patience: float | None = None,
    ) -> RecallResult:
        """Read back the longest prefix of chunks that a receiver still has, into pages from first on.

        Where nothing came because nothing is there, that is no error: hits is 0, and short None.
        """
        ask = operations.recall(peer, keys, pages, request, first, patience)
        waiting = self._wait(ask)
        ask.read(waiting.reply())
        return RecallResult(self, waiting)

    def begin_prefill(
        self,
        *,
        keys: Sequence[str],
        request: str,
        peer: Peer | None = None,
        skip: int = 0,
        layer_time: float = 0.0,
    ) -> Prefill:
        """Begin with a request whose chunks go layer by layer; without a peer they go nowhere.

        Skip is how many of its first tokens are there already. Layer_time is what a layer takes to compute, in seconds;
        0: not known.
        """
        return Prefill(self, self._run(operations.begin_prefill(keys, request, peer, skip, layer_time)), request)

    def end(
        self, *, request: str, peer: Peer, code: int = Code.OK, reason: str = "", patience: float | None = None
    ) -> Pending[None]:
        """Have a receiver told how a request ended of which nothing more is put, and return at once.

        Without a code all of it was sent. What waits there for more of it ends: as SENDER_FAILED with this code and
        reason, or as NOT_SENT where all was sent, and what is waited for is not among it. The result is NOT_SENT if
        the receiver says so. The request is an id that no other attempt has.
        """
        return self._follow(operations.end(request, peer, code, reason, patience))

    # ---- receiver ----

    def get(
        self,
        keys: Sequence[str],
        *,
        request: str = "",
        layered: bool = False,
        patience: float = 0.0,
        bound: float | None = None,
    ) -> Pages:
        """Wait until all keys are ready here, and give the usable prefix: as many pages, in order, as chunks.

        With a request the get consumes what it gives; without one it is a look. Where a chunk is missing, short says
        which and why. Layered chunks have a page for every layer. The bound is how much longer than the patience the
        agent may take to answer, in seconds; None: as the client was connected with.
        """
        return Pages(self, self._run(operations.get(keys, request, layered, patience), bound))

    def contains(self, keys: Sequence[str]) -> int:
        """Count the chunks, from the first key on, that could be had now. It promises nothing for later.

        Layered chunks are not counted: a get without a request looks for those.
        """
        count = 0
        for part in self._parts("contains", keys):
            found = self._run(operations.contains(part))
            count += found
            if found < len(part):
                break
        return count

    def fetch(
        self,
        keys: Sequence[str],
        scatter: Scatter,
        *,
        request: str = "",
        patience: float | None = None,
        wanted: Callable[[], bool] | None = None,
        bound: float | None = None,
    ) -> Prefix:
        """Hand chunks to scatter batch by batch, those that are at their senders included.

        It is called as scatter(first, chunks) on this thread: chunk i is that of key first+i, only to be read, and only
        until the call returns. What it raises ends the fetch, and is raised here. Wanted is asked twice a second while
        nothing comes: once it is false the fetch is aborted. One that had not begun to read leaves all as it was. The
        bound is that of get.
        """
        parts = self._parts("fetch", keys)
        if len(parts) == 1:
            return self._fetch(operations.fetch(parts[0], request, patience), scatter, wanted, bound)
        progress = Progress(scatter, patience)
        for part in parts:
            ask = operations.fetch(part, request, progress.left())
            try:
                progress.add(self._fetch(ask, progress.scatter, wanted, bound), len(part))
            except Error as error:
                progress.fail(error)
            if progress.over:
                break
        return progress.prefix()

    def abandon(self, request: str, reason: str = "") -> None:
        """Give up what is kept for a request that will not come for it. Its sender hears the reason, if there is one,
        with the next word of its how a request ended."""
        self._run(operations.abandon(request, reason))

    # ---- sharing ----

    def store(self, keys: Sequence[str], pages: Pages, first: int = 0) -> None:
        """Make pages the cache's: chunk i has keys[i] and fills page first+i, which the handle has no more."""
        parts = self._parts("store", keys)
        pages.use("store", first, sum(len(part) for part in parts))
        for part in parts:
            self._run(operations.store(part, pages, first))
            first += len(part)

    def share(self, keys: Sequence[str], pages: Pages, first: int = 0) -> Shared:
        """Let peers read pages that the engine goes on reading itself, until they are withdrawn."""
        return Shared(self, self._run(operations.share(keys, pages, first)), pages)

    def lookup(self, keys: Sequence[str]) -> Lookup:
        """Say how many chunks, from the first key on, are here, and how many one other node has: a hint.

        Of more keys than the agent takes at once another node may have each part of them.
        """
        found = Found()
        for part in self._parts("lookup", keys):
            if not found.add(self._run(operations.lookup(part)), len(part)):
                break
        return found.lookup()

    def shared_get(
        self, keys: Sequence[str], *, request: str, source: SharingPeer | None = None, patience: float | None = None
    ) -> Pages:
        """Give the longest prefix that is here or that peers have, which is read from them first.

        Without a source directories are asked who has them.
        """
        return Pages(self, self._run(operations.shared_get(keys, request, source, patience)))

    def keep(
        self, keys: Sequence[str], *, request: str, source: SharingPeer | None = None, patience: float | None = None
    ) -> Prefix:
        """Have peers lend what they have, and leave it with them until it is fetched; count it."""
        return self._run(operations.keep(keys, request, source, patience))

    def shared_fetch(
        self,
        keys: Sequence[str],
        scatter: Scatter,
        *,
        request: str,
        source: SharingPeer | None = None,
        patience: float | None = None,
    ) -> Prefix:
        """Hand the longest prefix that is here, or that peers have, to scatter batch by batch, as fetch does."""
        return self._fetch(operations.shared_fetch(keys, request, source, patience), scatter)

    # ---- an engine's own blocks ----

    def register(
        self,
        *,
        request: str,
        producers: Sequence[ProducerPeer],
        blocks: Sequence[Blocks],
        ranks: int = 1,
        stages: int = 1,
        transfer: str = "",
        engine: str = "",
        patience: float | None = None,
        epoch: int | None = None,
    ) -> Pending[Received]:
        """Name blocks that producers are to write into, and return at once.

        The blocks are the agent's until they are returned. Where it does not end well their content means nothing.
        With an epoch it is made in that session alone: block numbers of one mean others in the next.
        """
        ask = operations.register(request, producers, blocks, ranks, stages, transfer, engine, patience, epoch)
        return self._follow(ask)

    def expect(
        self, *, request: str, producers: Sequence[ProducerPeer], transfer: str = "", patience: float | None = None
    ) -> Pending[None]:
        """Keep what producers lend of a request until it is registered for, and return at once."""
        return self._follow(operations.expect(request, producers, transfer, patience))

    def not_needed(
        self, *, request: str, producers: Sequence[ProducerPeer], transfer: str = "", patience: float | None = None
    ) -> None:
        """Tell producers that nobody will register for a request, and wait until each has heard."""
        self._run(operations.not_needed(request, producers, transfer, patience))

    def finished(
        self,
        *,
        request: str,
        blocks: Sequence[Blocks],
        transfer: str = "",
        lease: float | None = None,
        epoch: int | None = None,
    ) -> Pending[Written]:
        """Lend blocks of a request that is computed to whoever registers for them, and return at once.

        They must not change until they are returned. An epoch is that of a registration.
        """
        return self._follow(operations.finished(request, blocks, transfer, lease, epoch))

    def aborted(self, *, request: str, transfer: str = "") -> None:
        """Say that a request will not come, or that what is lent for it is not to be written any more."""
        self._run(operations.aborted(request, transfer))

    # ---- within ----

    def _wait(self, ask: Ask[Any], bound: float | None = None) -> Waiting[Once]:
        """Make a call, and wait for its end."""
        call, waiting, seconds = Call(ask.op, ask.entries), Waiting[Once](Once), self._seconds(ask, bound)
        try:
            self._driver.begin(call, waiting)
            ended = waiting.ended.wait(seconds)
        except BaseException:  # An interrupt: nobody will have what comes.
            self._driver.forget(call)
            raise
        if not ended:
            self._driver.forget(call)
            raise unanswered(ask.op, seconds)
        return waiting

    def _run(self, ask: Ask[T], bound: float | None = None) -> T:
        """Make a call, and read how it ended."""
        try:
            return ask.read(self._wait(ask, bound).reply())
        except LostError as error:
            return ask.lost(error)

    def _run_if(self, ask: Ask[None] | None) -> None:
        """Make a call, if there is one to make."""
        if ask is not None:
            self._run(ask)

    def _put(self, ask: Ask[None]) -> PutResult:
        """Make a call that has a result, also where it failed."""
        result = PutResult(self, self._wait(ask))
        result._read(ask)
        return result

    def _follow(self, ask: Ask[T]) -> Pending[T]:
        """Make a call, and wait for nothing."""
        call, waiting = Call(ask.op, ask.entries, only=ask.only), Waiting[Once](Once)
        try:
            self._driver.begin(call, waiting)
        except BaseException:
            self._driver.forget(call)
            raise
        return Pending(self, ask, call, waiting)

    def _fetch(
        self,
        ask: Ask[Prefix],
        scatter: Scatter,
        wanted: Callable[[], bool] | None = None,
        bound: float | None = None,
    ) -> Prefix:
        """Make a call whose chunks are shown batch by batch."""
        inbox: queue.SimpleQueue[Chunks | None] = queue.SimpleQueue()
        waiting = Waiting[Once](Once, inbox.put, lambda _: inbox.put(None))
        failed: Exception | None = None
        code = Code.OK
        call, seconds = Call(ask.op, ask.entries), self._seconds(ask, bound)
        until = time.monotonic() + seconds
        try:
            self._driver.begin(call, waiting)
            while (shown := _next(inbox, until, seconds if wanted is None else _LOOK)) is not None:
                if shown is _NOTHING:
                    if wanted is not None and code == Code.OK and not wanted():
                        code = Code.CANCELLED
                        self._driver.tell(ask.op, Core.abort, call)
                        until = min(until, time.monotonic() + self._options.bound)
                    continue
                first, chunks = shown
                if code == Code.OK:
                    try:
                        scatter(first, chunks)
                    except Exception as error:
                        failed, code = error, Code.FAULTED
                self._driver.tell(ask.op, Core.shown, call, first, code)
        except queue.Empty:
            self._driver.forget(call)
            raise unanswered(ask.op, seconds) from None
        except BaseException:
            self._driver.forget(call)
            raise
        reply = waiting.reply()
        if failed is not None:
            raise failed
        return ask.read(reply)


def _next(inbox: queue.SimpleQueue[Chunks | None], until: float, pause: float) -> Chunks | None:
    """Wait for what is shown next, or for the end, no longer than a pause. When the time is over it raises Empty."""
    left = until - time.monotonic()
    try:
        return inbox.get(timeout=max(0.0, min(left, pause)))
    except queue.Empty:
        if left <= pause:
            raise
        return _NOTHING


def connect(path: str | os.PathLike[str] | None = None, **options: Any) -> Client:
    """Attach to the agent whose socket is at a path, by default what KVFERRY_SOCKET says.

    Options are the fields of Options. It waits for an agent that is not there yet, for timeout seconds.
    """
    return Client(socket_path(path), Options(**options))
