"""The client for event loops."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from kvferry import operations
from kvferry.aio.handles import Pages, Pending, Prefill, PutResult, RecallResult, Shared
from kvferry.aio.loop import Driver, wait
from kvferry.asking import unanswered
from kvferry.attachment import Attachment, socket_path
from kvferry.call import Call
from kvferry.codes import Code
from kvferry.core import Core
from kvferry.errors import Error, LostError
from kvferry.progress import Found, Progress
from kvferry.values import Lookup, Options, Prefix, Received, Written
from kvferry.waiting import Waiting

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt

    from kvferry.asking import Ask
    from kvferry.values import Blocks, Peer, ProducerPeer, SharingPeer
    from kvferry.waiting import Chunks

    # Takes the place of the first chunk among the keys, and the chunks. It may be a coroutine function.
    Scatter = Callable[[int, list[npt.NDArray[np.uint8]]], Awaitable[None] | None]

Future = asyncio.Future[None]

T = TypeVar("T")


class Client(Attachment):
    """A process's attachment to the agent of its host; see connect, and kvferry.Client for what each method means.

    A task that is cancelled takes its call back; what that brings all the same is given back by itself.
    """

    _driver: Driver

    def __init__(self, path: str, options: Options) -> None:
        """Begin to attach; use connect."""
        driver = Driver(path, options)
        super().__init__(driver, options)
        self._guard = weakref.finalize(self, driver.forgotten)
        self._guard.atexit = False
        driver.turn()

    async def _attach(self) -> None:
        try:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._driver.changed.wait(), self._options.timeout)
            self._look_attached()
        except BaseException:
            self._guard.detach()
            self._driver.close()
            raise

    async def close(self) -> None:
        """Detach, as kvferry.Client.close."""
        self._guard.detach()
        if not self._driver.core.forked:
            self._driver.begin_close()
            await self._driver.over.wait()

    async def __aenter__(self) -> Client:
        """Close it at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    async def stats(self) -> dict[str, Any]:
        """Get what the agent counts, for people and for metrics."""
        return await self._run(operations.stats())

    # ---- sender ----

    async def reserve(self, count: int, *, patience: float | None = None) -> Pages:
        """Take so many pages of the pool, all or none. Their content is not defined."""
        return Pages(self, await self._run(operations.reserve(count, patience)), writable=True)

    async def put(
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
        """Push one batch of a request's chunks, or in pull mode offer it."""
        return await self._put(operations.put(peer, keys, pages, request, first, tokens, last, patience))

    async def recall(
        self,
        *,
        peer: Peer,
        keys: Sequence[str],
        pages: Pages,
        request: str = "",
        first: int = 0,
        patience: float | None = None,
    ) -> RecallResult:
        """Read back the longest prefix of chunks that a receiver still has, into pages from first on."""
        ask = operations.recall(peer, keys, pages, request, first, patience)
        waiting = await self._wait(ask)
        ask.read(waiting.reply())
        return RecallResult(self, waiting)

    async def begin_prefill(
        self,
        *,
        keys: Sequence[str],
        request: str,
        peer: Peer | None = None,
        skip: int = 0,
        layer_time: float = 0.0,
    ) -> Prefill:
        """Begin with a request whose chunks go layer by layer; without a peer they go nowhere."""
        return Prefill(self, await self._run(operations.begin_prefill(keys, request, peer, skip, layer_time)), request)

    def end(
        self, *, request: str, peer: Peer, code: int = Code.OK, reason: str = "", patience: float | None = None
    ) -> Pending[None]:
        """Have a receiver told how a request ended of which nothing more is put, and return at once."""
        return self._follow(operations.end(request, peer, code, reason, patience))

    # ---- receiver ----

    async def get(
        self, keys: Sequence[str], *, request: str = "", layered: bool = False, patience: float = 0.0
    ) -> Pages:
        """Wait until all keys are ready here, and give the usable prefix."""
        return Pages(self, await self._run(operations.get(keys, request, layered, patience)))

    async def contains(self, keys: Sequence[str]) -> int:
        """Count the chunks, from the first key on, that could be had now: none that are layered."""
        count = 0
        for part in self._parts("contains", keys):
            found = await self._run(operations.contains(part))
            count += found
            if found < len(part):
                break
        return count

    async def fetch(
        self, keys: Sequence[str], scatter: Scatter, *, request: str = "", patience: float | None = None
    ) -> Prefix:
        """Hand chunks to scatter batch by batch, in this task. What takes long in it holds up the loop."""
        parts = self._parts("fetch", keys)
        if len(parts) == 1:
            return await self._fetch(operations.fetch(parts[0], request, patience), scatter)
        progress = Progress(scatter, patience)
        for part in parts:
            ask = operations.fetch(part, request, progress.left())
            try:
                progress.add(await self._fetch(ask, progress.scatter), len(part))
            except Error as error:
                progress.fail(error)
            if progress.over:
                break
        return progress.prefix()

    async def abandon(self, request: str, reason: str = "") -> None:
        """Give up what is kept for a request that will not come for it."""
        await self._run(operations.abandon(request, reason))

    # ---- sharing ----

    async def store(self, keys: Sequence[str], pages: Pages, first: int = 0) -> None:
        """Make pages the cache's: the handle has them no more."""
        parts = self._parts("store", keys)
        pages.use("store", first, sum(len(part) for part in parts))
        for part in parts:
            await self._run(operations.store(part, pages, first))
            first += len(part)

    async def share(self, keys: Sequence[str], pages: Pages, first: int = 0) -> Shared:
        """Let peers read pages that the engine goes on reading itself, until they are withdrawn."""
        return Shared(self, await self._run(operations.share(keys, pages, first)), pages)

    async def lookup(self, keys: Sequence[str]) -> Lookup:
        """Say how many chunks, from the first key on, are here, and how many one other node has: a hint."""
        found = Found()
        for part in self._parts("lookup", keys):
            if not found.add(await self._run(operations.lookup(part)), len(part)):
                break
        return found.lookup()

    async def shared_get(
        self, keys: Sequence[str], *, request: str, source: SharingPeer | None = None, patience: float | None = None
    ) -> Pages:
        """Give the longest prefix that is here or that peers have, which is read from them first."""
        return Pages(self, await self._run(operations.shared_get(keys, request, source, patience)))

    async def keep(
        self, keys: Sequence[str], *, request: str, source: SharingPeer | None = None, patience: float | None = None
    ) -> Prefix:
        """Have peers lend what they have, and leave it with them until it is fetched; count it."""
        return await self._run(operations.keep(keys, request, source, patience))

    async def shared_fetch(
        self,
        keys: Sequence[str],
        scatter: Scatter,
        *,
        request: str,
        source: SharingPeer | None = None,
        patience: float | None = None,
    ) -> Prefix:
        """Hand the longest prefix that is here, or that peers have, to scatter batch by batch, as fetch does."""
        return await self._fetch(operations.shared_fetch(keys, request, source, patience), scatter)

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
        """Name blocks that producers are to write into, and return at once."""
        ask = operations.register(request, producers, blocks, ranks, stages, transfer, engine, patience, epoch)
        return self._follow(ask)

    def expect(
        self, *, request: str, producers: Sequence[ProducerPeer], transfer: str = "", patience: float | None = None
    ) -> Pending[None]:
        """Keep what producers lend of a request until it is registered for, and return at once."""
        return self._follow(operations.expect(request, producers, transfer, patience))

    async def not_needed(
        self, *, request: str, producers: Sequence[ProducerPeer], transfer: str = "", patience: float | None = None
    ) -> None:
        """Tell producers that nobody will register for a request, and wait until each has heard."""
        await self._run(operations.not_needed(request, producers, transfer, patience))

    def finished(
        self,
        *,
        request: str,
        blocks: Sequence[Blocks],
        transfer: str = "",
        lease: float | None = None,
        epoch: int | None = None,
    ) -> Pending[Written]:
        """Lend blocks of a request that is computed to whoever registers for them, and return at once."""
        return self._follow(operations.finished(request, blocks, transfer, lease, epoch))

    async def aborted(self, *, request: str, transfer: str = "") -> None:
        """Say that a request will not come, or that what is lent for it is not to be written any more."""
        await self._run(operations.aborted(request, transfer))

    # ---- within ----

    async def _wait(self, ask: Ask[Any]) -> Waiting[Future]:
        """Make a call, and wait for its end."""
        call, waiting, seconds = Call(ask.op, ask.entries), Waiting[Future](_future), self._seconds(ask)
        self._driver.begin(call, waiting)
        try:
            ended = await wait(waiting.ended, seconds)
        except BaseException:  # The task was cancelled: nobody will have what comes.
            self._driver.forget(call)
            raise
        if not ended:
            self._driver.forget(call)
            raise unanswered(ask.op, seconds)
        return waiting

    async def _run(self, ask: Ask[T]) -> T:
        """Make a call, and read how it ended."""
        try:
            return ask.read((await self._wait(ask)).reply())
        except LostError as error:
            return ask.lost(error)

    async def _run_if(self, ask: Ask[None] | None) -> None:
        """Make a call, if there is one to make."""
        if ask is not None:
            await self._run(ask)

    async def _put(self, ask: Ask[None]) -> PutResult:
        """Make a call that has a result, also where it failed."""
        result = PutResult(self, await self._wait(ask))
        result._read(ask)
        return result

    def _follow(self, ask: Ask[T]) -> Pending[T]:
        """Make a call, and wait for nothing."""
        call, waiting = Call(ask.op, ask.entries, only=ask.only), Waiting[Future](_future)
        self._driver.begin(call, waiting)
        return Pending(self, ask, call, waiting)

    async def _fetch(self, ask: Ask[Prefix], scatter: Scatter) -> Prefix:
        """Make a call whose chunks are shown batch by batch."""
        inbox: asyncio.Queue[Chunks | None] = asyncio.Queue()
        waiting = Waiting[Future](_future, inbox.put_nowait, lambda _: inbox.put_nowait(None))
        failed: Exception | None = None
        call = Call(ask.op, ask.entries)
        self._driver.begin(call, waiting)
        loop, seconds = asyncio.get_running_loop(), self._seconds(ask)
        until = loop.time() + seconds
        try:
            while (shown := await asyncio.wait_for(inbox.get(), max(0.0, until - loop.time()))) is not None:
                first, chunks = shown
                try:
                    ended = scatter(first, chunks)
                    if inspect.isawaitable(ended):
                        await ended
                except Exception as error:
                    failed = error
                self._driver.tell(ask.op, Core.shown, call, first, Code.FAULTED if failed else Code.OK)
        except asyncio.TimeoutError:
            self._driver.forget(call)
            raise unanswered(ask.op, seconds) from None
        except BaseException:
            self._driver.forget(call)
            raise
        reply = waiting.reply()
        if failed is not None:
            raise failed
        return ask.read(reply)


def _future() -> Future:
    return asyncio.get_running_loop().create_future()


async def connect(path: str | os.PathLike[str] | None = None, **options: Any) -> Client:
    """Attach to the agent whose socket is at a path, by default what KVFERRY_SOCKET says; see kvferry.connect."""
    client = Client(socket_path(path), Options(**options))
    await client._attach()
    return client
