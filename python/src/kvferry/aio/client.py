"""The client for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from kvferry import operations
from kvferry.aio.handles import Pages, PendingCall, Prefill, PutResult, RecallResult, SharedPages
from kvferry.aio.loop_driver import LoopDriver, wait_for
from kvferry.attachment import Attachment, socket_path
from kvferry.call import Call
from kvferry.call_spec import no_answer_error
from kvferry.call_waiter import CallWaiter
from kvferry.codes import Code
from kvferry.core import Core
from kvferry.errors import Error, LostError
from kvferry.progress import FetchProgress, LookupProgress
from kvferry.values import LendResult, Lookup, Options, Prefix, RegisterResult

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt

    from kvferry.call_spec import CallSpec
    from kvferry.call_waiter import Chunks
    from kvferry.values import Blocks, Peer, ProducerPeer, SharingPeer

    # Called with the index of the first chunk among the keys, and the chunks. It may be a coroutine function.
    Scatter = Callable[[int, list[npt.NDArray[np.uint8]]], Awaitable[None] | None]

Future = asyncio.Future[None]

T = TypeVar("T")


class Client(Attachment):
    """The attachment of a process to the agent of its host; see connect. kvferry.Client documents each method.

    A cancelled task aborts its call, and the result of the call is released.
    """

    _driver: LoopDriver

    def __init__(self, path: str, options: Options) -> None:
        """Start to attach; use connect instead."""
        driver = LoopDriver(path, options)
        super().__init__(driver, options)
        self._finalizer = weakref.finalize(self, driver.stop_forgotten)
        self._finalizer.atexit = False
        driver.run_once()

    async def _attach(self) -> None:
        try:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._driver.changed.wait(), self._options.timeout)
            self._check_attached()
        except BaseException:
            self._finalizer.detach()
            self._driver.close()
            raise

    async def close(self) -> None:
        """Detach from the agent, as kvferry.Client.close."""
        self._finalizer.detach()
        if not self._driver.core.forked:
            self._driver.begin_close()
            await self._driver.closed_event.wait()

    async def __aenter__(self) -> Client:
        """Return the client; it is closed at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    async def stats(self) -> dict[str, Any]:
        """Return the counters of the agent, for people and for metrics."""
        return await self._run(operations.stats())

    # ---- sender ----

    async def reserve(self, count: int, *, key: str = "", timeout: float | None = None) -> Pages:
        """Reserve pages of the pool, all of them or none, for chunks of the tenant of a key."""
        call = operations.reserve(count, timeout, key if self.info.tenants else "")
        return Pages(self, await self._run(call), writable=True)

    async def put(
        self,
        *,
        peer: Peer,
        keys: Sequence[str],
        pages: Pages,
        request: str = "",
        first_page: int = 0,
        last_chunk_tokens: int = 0,
        last_batch: bool = False,
        timeout: float | None = None,
        trace: bytes = b"",
    ) -> PutResult:
        """Push a batch of a request's chunks to a peer, or offer it to the peer in pull mode."""
        return await self._run_put(
            operations.put(peer, keys, pages, request, first_page, last_chunk_tokens, last_batch, timeout, trace)
        )

    async def recall(
        self,
        *,
        peer: Peer,
        keys: Sequence[str],
        pages: Pages,
        request: str = "",
        first_page: int = 0,
        timeout: float | None = None,
    ) -> RecallResult:
        """Read back the longest prefix of chunks that a receiver still has, into the pages from first_page on."""
        spec = operations.recall(peer, keys, pages, request, first_page, timeout)
        waiter = await self._make_call(spec)
        spec.read(waiter.reply())
        return RecallResult(self, waiter)

    async def begin_prefill(
        self,
        *,
        keys: Sequence[str],
        request: str,
        peer: Peer | None = None,
        skip_tokens: int = 0,
        layer_seconds: float = 0.0,
        trace: bytes = b"",
    ) -> Prefill:
        """Start a request whose chunks are pushed layer by layer while they are computed."""
        spec = operations.begin_prefill(keys, request, peer, skip_tokens, layer_seconds, trace)
        return Prefill(self, await self._run(spec), request)

    def end_request(
        self,
        *,
        request: str,
        peer: Peer,
        code: int = Code.OK,
        reason: str = "",
        timeout: float | None = None,
        tenant: str = "",
    ) -> PendingCall[None]:
        """Notify a receiver that no more chunks of a request follow, and return at once."""
        return self._start_call(operations.end_request(request, peer, code, reason, timeout, tenant))

    # ---- receiver ----

    async def get(
        self,
        keys: Sequence[str],
        *,
        request: str = "",
        layered: bool = False,
        timeout: float = 0.0,
        trace: bytes = b"",
        domain: str = "",
    ) -> Pages:
        """Wait until all keys are ready in the pool, and return the pages of the usable prefix, in order."""
        return Pages(self, await self._run(operations.get(keys, request, layered, timeout, trace, domain)))

    async def contains(self, keys: Sequence[str], *, domain: str = "") -> int:
        """Count the chunks, from the first key on, that a get would return now, without chunks that arrive layer by
        layer.
        """
        count = 0
        for part in self._split_keys("contains", keys):
            found = await self._run(operations.contains(part, domain))
            count += found
            if found < len(part):
                break
        return count

    async def fetch(
        self,
        keys: Sequence[str],
        scatter: Scatter,
        *,
        request: str = "",
        timeout: float | None = None,
        trace: bytes = b"",
        domain: str = "",
    ) -> Prefix:
        """Read chunks and pass them to a callback batch by batch, in this task. A slow callback blocks the event
        loop.
        """
        parts = self._split_keys("fetch", keys)
        if len(parts) == 1:
            return await self._run_fetch(operations.fetch(parts[0], request, timeout, trace, domain), scatter)
        progress = FetchProgress(scatter, timeout)
        for part in parts:
            spec = operations.fetch(part, request, progress.remaining_timeout(), trace, domain)
            try:
                progress.add(await self._run_fetch(spec, progress.scatter), len(part))
            except Error as error:
                progress.handle_error(error)
            if progress.is_finished:
                break
        return progress.result()

    async def abandon(self, request: str, reason: str = "", tenant: str = "") -> None:
        """Drop the chunks that the agent keeps for a request that nothing will read."""
        await self._run(operations.abandon(request, reason, tenant))

    # ---- sharing ----

    async def store(self, keys: Sequence[str], pages: Pages, first_page: int = 0) -> None:
        """Give pages to the cache; the handle no longer owns them."""
        parts = self._split_keys("store", keys)
        pages.check_range("store", first_page, sum(len(part) for part in parts))
        for part in parts:
            await self._run(operations.store(part, pages, first_page))
            first_page += len(part)

    async def share(self, keys: Sequence[str], pages: Pages, first_page: int = 0) -> SharedPages:
        """Let peers read pages that the engine also keeps reading, until SharedPages.stop_sharing."""
        return SharedPages(self, await self._run(operations.share(keys, pages, first_page)), pages)

    async def lookup(self, keys: Sequence[str]) -> Lookup:
        """Return how many chunks this agent has, and how many of them one other node has. It is a hint."""
        progress = LookupProgress()
        for part in self._split_keys("lookup", keys):
            if not progress.add(await self._run(operations.lookup(part)), len(part)):
                break
        return progress.result()

    async def shared_get(
        self, keys: Sequence[str], *, request: str, source: SharingPeer | None = None, timeout: float | None = None
    ) -> Pages:
        """Return the longest prefix that this agent or its peers have."""
        return Pages(self, await self._run(operations.shared_get(keys, request, source, timeout)))

    async def lease(
        self, keys: Sequence[str], *, request: str, source: SharingPeer | None = None, timeout: float | None = None
    ) -> Prefix:
        """Acquire read leases at the peers that have the chunks, without reading them yet, and count the chunks."""
        return await self._run(operations.lease(keys, request, source, timeout))

    async def shared_fetch(
        self,
        keys: Sequence[str],
        scatter: Scatter,
        *,
        request: str,
        source: SharingPeer | None = None,
        timeout: float | None = None,
    ) -> Prefix:
        """Pass the longest prefix that this agent or its peers have to a callback batch by batch."""
        return await self._run_fetch(operations.shared_fetch(keys, request, source, timeout), scatter)

    # ---- blocks of the engine ----

    def register_blocks(
        self,
        *,
        request: str,
        producers: Sequence[ProducerPeer],
        blocks: Sequence[Blocks],
        producer_ranks: int = 1,
        producer_stages: int = 1,
        transfer: str = "",
        engine: str = "",
        timeout: float | None = None,
        epoch: int | None = None,
    ) -> PendingCall[RegisterResult]:
        """Register blocks of the engine that producers will write into, and return at once."""
        spec = operations.register_blocks(
            request, producers, blocks, producer_ranks, producer_stages, transfer, engine, timeout, epoch
        )
        return self._start_call(spec)

    def expect_request(
        self, *, request: str, producers: Sequence[ProducerPeer], transfer: str = "", timeout: float | None = None
    ) -> PendingCall[None]:
        """Keep the blocks that producers lend for a request until register_blocks is called, and return at once."""
        return self._start_call(operations.expect_request(request, producers, transfer, timeout))

    async def decline_request(
        self, *, request: str, producers: Sequence[ProducerPeer], transfer: str = "", timeout: float | None = None
    ) -> None:
        """Tell producers that nothing will be registered for a request, and wait until each of them has confirmed
        it.
        """
        await self._run(operations.decline_request(request, producers, transfer, timeout))

    def lend_blocks(
        self,
        *,
        request: str,
        blocks: Sequence[Blocks],
        transfer: str = "",
        lease: float | None = None,
        epoch: int | None = None,
    ) -> PendingCall[LendResult]:
        """Lend the blocks of a computed request to the consumers that register for them, and return at once."""
        return self._start_call(operations.lend_blocks(request, blocks, transfer, lease, epoch))

    async def abort_request(self, *, request: str, transfer: str = "") -> None:
        """Tell the agent that a request will not be computed, or that its lent blocks must not be sent any more."""
        await self._run(operations.abort_request(request, transfer))

    # ---- internal ----

    async def _make_call(self, spec: CallSpec[Any]) -> CallWaiter[Future]:
        """Make a call and wait for its reply."""
        call, waiter, seconds = Call(spec.op, spec.entries), CallWaiter[Future](_make_future), self._reply_timeout(spec)
        self._driver.begin_call(call, waiter)
        try:
            answered = await wait_for(waiter.end_event, seconds)
        except BaseException:  # The task was cancelled: nothing will take the result.
            self._driver.forget_call(call)
            raise
        if not answered:
            self._driver.forget_call(call)
            raise no_answer_error(spec.op, seconds)
        return waiter

    async def _run(self, spec: CallSpec[T]) -> T:
        """Make a call and read its result."""
        try:
            return spec.read((await self._make_call(spec)).reply())
        except LostError as error:
            return spec.on_lost(error)

    async def _run_optional(self, spec: CallSpec[None] | None) -> None:
        """Make a call, unless it is None."""
        if spec is not None:
            await self._run(spec)

    async def _run_put(self, spec: CallSpec[None]) -> PutResult:
        """Make a call that has a PutResult, even if it fails."""
        result = PutResult(self, await self._make_call(spec))
        result._raise_error(spec)
        return result

    def _start_call(self, spec: CallSpec[T]) -> PendingCall[T]:
        """Make a call without waiting for its reply."""
        call, waiter = Call(spec.op, spec.entries, required_epoch=spec.required_epoch), CallWaiter[Future](_make_future)
        self._driver.begin_call(call, waiter)
        return PendingCall(self, spec, call, waiter)

    async def _run_fetch(self, spec: CallSpec[Prefix], scatter: Scatter) -> Prefix:
        """Make a call whose chunks are shown batch by batch."""
        inbox: asyncio.Queue[Chunks | None] = asyncio.Queue()
        waiter = CallWaiter[Future](_make_future, inbox.put_nowait, lambda _: inbox.put_nowait(None))
        scatter_error: Exception | None = None
        call = Call(spec.op, spec.entries)
        self._driver.begin_call(call, waiter)
        loop, seconds = asyncio.get_running_loop(), self._reply_timeout(spec)
        deadline = loop.time() + seconds
        try:
            while (shown := await asyncio.wait_for(inbox.get(), max(0.0, deadline - loop.time()))) is not None:
                first, chunks = shown
                try:
                    result = scatter(first, chunks)
                    if inspect.isawaitable(result):
                        await result
                except Exception as error:
                    scatter_error = error
                self._driver.run_on_core(
                    spec.op, Core.acknowledge_shown, call, first, Code.FAULTED if scatter_error else Code.OK
                )
        except asyncio.TimeoutError:
            self._driver.forget_call(call)
            raise no_answer_error(spec.op, seconds) from None
        except BaseException:
            self._driver.forget_call(call)
            raise
        reply = waiter.reply()
        if scatter_error is not None:
            raise scatter_error
        return spec.read(reply)


def _make_future() -> Future:
    return asyncio.get_running_loop().create_future()


async def connect(path: str | os.PathLike[str] | None = None, **options: Any) -> Client:
    """Attach to the agent whose socket is at a path; see kvferry.connect."""
    client = Client(socket_path(path), Options(**options))
    await client._attach()
    return client
