"""The client for programs with an event loop. It has the methods of kvferry.Client, to be awaited; it starts no thread.

Everything of a client belongs to the loop that it was made in.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kvferry import operations as calls
from kvferry.client import chunks_of, socket_path
from kvferry.codes import Code
from kvferry.core import Core
from kvferry.errors import Error, ExpiredError, LostError, Why, error_of, lost
from kvferry.handles import PagesBase, PrefillBase, SharedBase, warn_client
from kvferry.values import Lookup, Options, Prefix, Received, Written

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt

    from kvferry.call import Call
    from kvferry.core import Place
    from kvferry.messages import Answer, Attached, Show
    from kvferry.operations import Ask
    from kvferry.pool import Pool
    from kvferry.values import Blocks, Peer, Pinned, ProducerPeer, SharingPeer

    # Takes the place of the first chunk among the keys, and the chunks. It may be a coroutine function.
    Scatter = Callable[[int, list[npt.NDArray[np.uint8]]], Awaitable[None] | None]

log = logging.getLogger("kvferry")

T = TypeVar("T")


class _Waiter:
    """Who waits for a call that is answered once."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[tuple[Answer, Place]] = asyncio.get_running_loop().create_future()
        self.back: asyncio.Future[None] | None = None

    def answered(self, answer: Answer, at: Place) -> None:
        if answer.held:
            self.back = asyncio.get_running_loop().create_future()
        if not self.answer.done():  # Else who waits was cancelled, and is about to forget the call.
            self.answer.set_result((answer, at))

    def came_back(self) -> None:
        if self.back is not None and not self.back.done():
            self.back.set_result(None)

    def showing(self, show: Show, pool: Pool) -> None:
        raise AssertionError("BUG: chunks are shown to nobody")

    def lost(self, error: Error, *, adrift: bool = False) -> None:
        if adrift:
            self.back = asyncio.get_running_loop().create_future()
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # Nobody has to look at it.
        elif self.back is not None and not self.back.done():
            self.back.set_result(None)  # Its views are void: there is nothing to wait for.


class _FetchWaiter(_Waiter):
    """Who waits for a fetch: on one queue for all that comes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox: asyncio.Queue[tuple[Show, Pool] | None] = asyncio.Queue()

    def answered(self, answer: Answer, at: Place) -> None:
        super().answered(answer, at)
        self.inbox.put_nowait(None)

    def showing(self, show: Show, pool: Pool) -> None:
        self.inbox.put_nowait((show, pool))

    def lost(self, error: Error, *, adrift: bool = False) -> None:
        super().lost(error, adrift=adrift)
        self.inbox.put_nowait(None)


class _Driver:
    """Serves a core on the loop."""

    def __init__(self, path: str, options: Options) -> None:
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
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.begin_close)
        warn_client("a kvferry.aio client")


class Pages(PagesBase):
    """Pages of the pool, until they are released. It is an asynchronous context manager."""

    def __init__(
        self,
        client: Client,
        call: Call,
        answer: Answer,
        place: Place,
        *,
        short: Error | None = None,
        writable: bool = False,
    ) -> None:
        """Hold what a call brought."""
        super().__init__(client._driver.core, call.number, place, answer, short=short, writable=writable)
        self._client = client

    async def release(self, patience: float | None = None) -> None:
        """Give the pages back, as kvferry.Pages.release."""
        ask = calls.release(self._number, patience)  # It may raise, and then nothing has happened.
        if not self._release_begins():
            return
        if patience == 0:
            self._core.leak("release", self._number, self._epoch)
            return
        self._ended(await self._client._error_of(ask))

    async def await_return(self, patience: float | None = None) -> None:
        """Wait until nothing reads the pages that was put or saved of them so far: then they may be written again."""
        self.look("await_return")
        await self._client._well(calls.subject("await_return", self._number, patience))

    async def __aenter__(self) -> Pages:
        """Release them at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Release them, if that was not done."""
        if self.released:
            return
        try:
            await self.release()
        except ExpiredError as failed:
            log.warning("%s", failed)  # They go back by themselves.
        except Error as failed:
            if error is None:
                raise
            log.warning("%s", failed)  # The block's own error says more.


class Shared(SharedBase):
    """Pages that peers may read, until they are withdrawn. It is an asynchronous context manager."""

    def __init__(
        self, client: Client, call: Call, place: Place, pages: Pages, answer: Answer, short: Error | None
    ) -> None:
        """Hold what is shared."""
        super().__init__(client._driver.core, call.number, place.epoch, pages, answer.hits, short)
        self._client = client

    async def withdraw(self, patience: float | None = None) -> None:
        """Take the pages back, as kvferry.Shared.withdraw."""
        if self.void:
            self._withdrawn()
            return
        self.look("withdraw")
        _, _, answer, _ = await self._client._call(calls.subject("withdraw", self._number, patience))
        calls.well("withdraw", answer, Code.NOT_FOUND)  # One that had no answer in time may have been heard.
        self._withdrawn()

    async def __aenter__(self) -> Shared:
        """Withdraw them at the end of the block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Withdraw them, if that was not done."""
        if not self.released:
            await self.withdraw()


class Pending(Generic[T]):
    """A call that is under way. What it came to is for whoever asks; nobody has to."""

    def __init__(self, client: Client, call: Call, waiter: _Waiter, made: Callable[[Answer], T]) -> None:
        """Follow a call."""
        self._client, self._call, self._waiter, self._made = client, call, waiter, made

    def done(self) -> bool:
        """Say whether it has ended."""
        return self._waiter.answer.done()

    async def result(self, timeout: float | None) -> T:
        """Wait for its end, so many seconds; None: for as long as it takes. It raises how it ended, or TimeoutError."""
        done, _ = await asyncio.wait((self._waiter.answer,), timeout=timeout)
        if not done:
            raise calls.unanswered(self._call.op, timeout or 0.0)
        answer, _ = self._waiter.answer.result()
        return self._made(calls.well(self._call.op, answer))

    def cancel(self) -> None:
        """Take it back. It still has a result, mostly CANCELLED."""
        driver = self._client._driver
        driver.core.usable("abort")
        driver.core.session.calls.abort(self._call)
        driver.turn()

    async def wait_returned(self, timeout: float | None) -> bool:
        """Wait until nothing touches its memory any more, whatever it came to; False where the time was over first."""
        return await _wait_back(self._waiter, timeout)


class PutResult:
    """What a put did; see kvferry.PutResult."""

    def __init__(self, client: Client, call: Call, waiter: _Waiter, answer: Answer) -> None:
        """Take an answer."""
        self._client, self._call, self._waiter = client, call, waiter
        self.sent = answer.sent
        self.skipped = answer.skipped
        self.held = answer.held

    async def wait_returned(self, timeout: float | None) -> bool:
        """Wait until nothing reads the pages of this put any more; False where the time was over first."""
        return await _wait_back(self._waiter, timeout)

    async def take_back(self) -> None:
        """End the offer of a put whose pages are still lent: nobody begins to read them any more."""
        if self._call.epoch != self._client._driver.core.epoch:
            return
        error = await self._client._error_of(calls.subject("take_back", self._call.number))
        if error is not None and error.code != Code.NOT_FOUND:
            raise error


class RecallResult(PutResult):
    """What a recall came to; see kvferry.RecallResult."""

    def __init__(self, client: Client, call: Call, waiter: _Waiter, answer: Answer, short: Error | None) -> None:
        """Take an answer."""
        super().__init__(client, call, waiter, answer)
        self.hits = answer.hits
        self.lengths = answer.lengths[: answer.hits]
        self.short = short


async def _wait_back(waiter: _Waiter, timeout: float | None) -> bool:
    """Wait for the memory of a call. One that was lost with its session has none any more: its views are void."""
    loop = asyncio.get_running_loop()
    until = None if timeout is None else loop.time() + timeout
    done, _ = await asyncio.wait((waiter.answer,), timeout=timeout)
    if not done:
        return False
    if waiter.back is None:
        return True
    back, _ = await asyncio.wait((waiter.back,), timeout=None if until is None else max(0.0, until - loop.time()))
    return bool(back)


class Prefill(PrefillBase):
    """A request whose chunks go layer by layer while they are computed; see kvferry.Prefill."""

    def __init__(self, client: Client, call: Call, place: Place, request: str) -> None:
        """Hold a prefill that has begun."""
        super().__init__(client._driver.core, call.number, place.epoch, request)
        self._client = client

    async def save_layer(self, layer: int, tokens: int, pages: Pages | None = None) -> None:
        """Say that one layer of the first so many tokens is computed, as kvferry.Prefill.save_layer."""
        self._usable("save_layer")
        await self._client._well(calls.save_layer(self._number, layer, tokens, pages))

    async def preempt(self) -> None:
        """Say that what was computed of it is lost, and is computed again: its saves begin anew."""
        self.look("preempt_prefill")
        await self._client._well(calls.subject("preempt_prefill", self._number))

    async def finish(self, patience: float | None = None) -> PutResult:
        """Say that every layer was saved of all tokens, as kvferry.Prefill.finish."""
        self._usable("finish_prefill")
        call, waiter, answer, _ = await self._client._call(calls.subject("finish_prefill", self._number, patience))
        self._finished(answer)
        return self._client._put_result(call, waiter, answer)

    async def drop(self) -> None:
        """End it; nothing more of it goes, and the proxy is not told."""
        if self._disarm("drop_prefill"):
            self._ended(await self._client._error_of(calls.subject("drop_prefill", self._number)))

    async def __aenter__(self) -> Prefill:
        """Drop it at the end of the block, unless it was finished."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Drop it, if it is not over."""
        if not self.released:
            await self.drop()


class Client:
    """A process's attachment to the agent of its host; see connect, and kvferry.Client for what each method means.

    A task that is cancelled takes its call back; what that brings all the same is given back by itself.
    """

    def __init__(self, path: str, options: Options) -> None:
        """Begin to attach; use connect."""
        self._options = options
        driver = self._driver = _Driver(path, options)
        self._guard = weakref.finalize(self, driver.forgotten)
        self._guard.atexit = False
        driver.turn()

    async def _attach(self) -> None:
        driver, core = self._driver, self._driver.core
        try:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(driver.changed.wait(), self._options.timeout)
            if core.refusal is not None:
                raise core.refusal
            if not core.session.joined:
                why = Why(peer="agent", stage="attach", said=core.where(), remedy="start kvferry agent, or wait")
                raise error_of("connect", Code.UNREACHABLE, why)
        except BaseException:
            self._guard.detach()
            driver.close()
            raise

    # ---- the attachment ----

    @property
    def info(self) -> Attached:
        """What the agent said of itself and its pool when this process attached last."""
        info = self._driver.core.session.info
        if info is None:
            raise lost("info")
        return info

    @property
    def attached(self) -> bool:
        """Whether an agent is there now."""
        return self._driver.core.session.joined

    @property
    def epoch(self) -> int:
        """Counts sessions: handles of another one are void."""
        return self._driver.core.epoch

    def pool(self) -> npt.NDArray[np.uint8]:
        """View all of the pool, a row for each page. Whose bytes may be touched is the caller's to know."""
        core = self._driver.core
        core.usable("pool")
        if core.pool is None:
            raise lost("pool")
        return core.pool.bytes.reshape(core.pool.count, core.pool.page_bytes)

    def pin_memory(self) -> Pinned:
        """Have CUDA know the pool, as kvferry.Client.pin_memory. It may take a second for each few GB."""
        self._driver.core.usable("pin_memory")
        return self._driver.core.pin()

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
        return calls.stats_of((await self._well(calls.stats()))[2])

    # ---- sender ----

    async def reserve(self, count: int, *, patience: float | None = None) -> Pages:
        """Take so many pages of the pool, all or none. Their content is not defined."""
        call, _, answer, place = await self._well(calls.reserve(count, patience))
        return Pages(self, call, answer, place, writable=True)

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
        call, waiter, answer, _ = await self._call(calls.put(peer, keys, pages, request, first, tokens, last, patience))
        return self._put_result(call, waiter, answer)

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
        call, waiter, answer, _ = await self._call(calls.recall(peer, keys, pages, request, first, patience))
        return RecallResult(self, call, waiter, answer, calls.short_of("recall", answer, answer.hits))

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
        call, _, _, place = await self._well(calls.begin_prefill(keys, request, peer, skip, layer_time))
        return Prefill(self, call, place, request)

    # ---- receiver ----

    async def get(
        self, keys: Sequence[str], *, request: str = "", layered: bool = False, patience: float = 0.0
    ) -> Pages:
        """Wait until all keys are ready here, and give the usable prefix."""
        return await self._prefix_pages(calls.get(keys, request, layered, patience))

    async def contains(self, keys: Sequence[str]) -> int:
        """Count the chunks, from the first key on, that could be had now."""
        return calls.well("contains", (await self._call(calls.contains(keys)))[2], Code.NOT_FOUND).hits

    async def fetch(
        self, keys: Sequence[str], scatter: Scatter, *, request: str = "", patience: float | None = None
    ) -> Prefix:
        """Hand chunks to scatter batch by batch, in this task. What takes long in it holds up the loop."""
        return await self._fetch(calls.keyed("fetch", keys, request, patience), scatter)

    async def abandon(self, request: str) -> None:
        """Give up what is kept for a request that will not come for it."""
        calls.well("abandon", (await self._call(calls.ask("abandon", request=request)))[2], Code.NOT_FOUND)

    # ---- sharing ----

    async def store(self, keys: Sequence[str], pages: Pages, first: int = 0) -> None:
        """Make pages the cache's: the handle has them no more."""
        _, _, answer, _ = await self._call(calls.lend("store", keys, pages, first))
        calls.stored(answer, pages, first, len(keys))

    async def share(self, keys: Sequence[str], pages: Pages, first: int = 0) -> Shared:
        """Let peers read pages that the engine goes on reading itself, until they are withdrawn."""
        call, _, answer, place = await self._call(calls.lend("share", keys, pages, first))
        return Shared(self, call, place, pages, answer, calls.share_short(answer))

    async def lookup(self, keys: Sequence[str]) -> Lookup:
        """Say how many chunks, from the first key on, are here, and how many one other node has: a hint."""
        _, _, answer, _ = await self._well(calls.lookup(keys))
        return Lookup(answer.sent, answer.skipped)

    async def shared_get(
        self, keys: Sequence[str], *, request: str, source: SharingPeer | None = None, patience: float | None = None
    ) -> Pages:
        """Give the longest prefix that is here or that peers have, which is read from them first."""
        return await self._prefix_pages(calls.shared("shared_get", keys, request, source, patience))

    async def keep(
        self, keys: Sequence[str], *, request: str, source: SharingPeer | None = None, patience: float | None = None
    ) -> Prefix:
        """Have peers lend what they have, and leave it with them until it is fetched; count it."""
        return calls.prefix_of("keep", (await self._call(calls.shared("keep", keys, request, source, patience)))[2])

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
        return await self._fetch(calls.shared("shared_fetch", keys, request, source, patience), scatter)

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
    ) -> Pending[Received]:
        """Name blocks that producers are to write into, and return at once."""
        ask = calls.register(request, producers, blocks, ranks, stages, transfer, engine, patience)
        return self._follow(ask, calls.received)

    def expect(
        self, *, request: str, producers: Sequence[ProducerPeer], transfer: str = "", patience: float | None = None
    ) -> Pending[None]:
        """Keep what producers lend of a request until it is registered for, and return at once."""
        return self._follow(calls.errand("expect", request, producers, transfer, patience), calls.nothing)

    async def not_needed(
        self, *, request: str, producers: Sequence[ProducerPeer], transfer: str = "", patience: float | None = None
    ) -> None:
        """Tell producers that nobody will register for a request, and wait until each has heard."""
        await self._well(calls.errand("not_needed", request, producers, transfer, patience))

    def finished(
        self, *, request: str, blocks: Sequence[Blocks], transfer: str = "", lease: float | None = None
    ) -> Pending[Written]:
        """Lend blocks of a request that is computed to whoever registers for them, and return at once."""
        return self._follow(calls.finished(request, blocks, transfer, lease), calls.written)

    async def aborted(self, *, request: str, transfer: str = "") -> None:
        """Say that a request will not come, or that what is lent for it is not to be written any more."""
        await self._well(calls.ask("aborted", request=request, transfer=transfer))

    # ---- within ----

    def _begin(self, ask: Ask, waiter: _Waiter) -> Call:
        call = self._driver.core.begin(ask.op, ask.entries, waiter)
        self._driver.turn()
        return call

    def _forget(self, call: Call) -> None:
        if not self._driver.core.forked:
            self._driver.core.forget(call)
            self._driver.turn()

    def _time(self, ask: Ask) -> float:
        longest = self._options.longest if ask.seconds is None else ask.seconds
        return longest + self._options.bound

    async def _call(self, ask: Ask) -> tuple[Call, _Waiter, Answer, Place]:
        """Make a call, and wait for its answer."""
        waiter = _Waiter()
        call = self._begin(ask, waiter)
        seconds = self._time(ask)
        try:
            done, _ = await asyncio.wait((waiter.answer,), timeout=seconds)
        except BaseException:  # The task was cancelled: nobody will have what comes.
            self._forget(call)
            raise
        if not done:
            self._forget(call)
            raise calls.unanswered(ask.op, seconds)
        answer, place = waiter.answer.result()
        return call, waiter, answer, place

    async def _well(self, ask: Ask) -> tuple[Call, _Waiter, Answer, Place]:
        """Make a call that has to end well."""
        got = await self._call(ask)
        calls.well(ask.op, got[2])
        return got

    async def _error_of(self, ask: Ask) -> Error | None:
        """Make a call that gives something back. What is lost meanwhile is given back."""
        try:
            answer = (await self._call(ask))[2]
        except LostError:
            return None
        return None if answer.code == Code.OK else calls.failure(ask.op, answer)

    def _put_result(self, call: Call, waiter: _Waiter, answer: Answer) -> PutResult:
        result = PutResult(self, call, waiter, answer)
        if answer.code != Code.OK:
            error = calls.failure(call.op, answer)
            error.result = result
            raise error
        return result

    async def _prefix_pages(self, ask: Ask) -> Pages:
        call, _, answer, place = await self._call(ask)
        return Pages(self, call, answer, place, short=calls.short_of(ask.op, answer, len(answer.pages)))

    def _follow(self, ask: Ask, made: Callable[[Answer], T]) -> Pending[T]:
        waiter = _Waiter()
        return Pending(self, self._begin(ask, waiter), waiter, made)

    async def _fetch(self, ask: Ask, scatter: Scatter) -> Prefix:
        waiter = _FetchWaiter()
        failed: Exception | None = None
        call = self._begin(ask, waiter)
        loop, seconds = asyncio.get_running_loop(), self._time(ask)
        until = loop.time() + seconds
        try:
            while (item := await asyncio.wait_for(waiter.inbox.get(), max(0.0, until - loop.time()))) is not None:
                show, pool = item
                try:
                    ended = scatter(show.first, chunks_of(show, pool))
                    if inspect.isawaitable(ended):
                        await ended
                except Exception as error:
                    failed = error
                self._driver.core.session.calls.shown(call, show.first, Code.FAULTED if failed else Code.OK)
                self._driver.turn()
        except asyncio.TimeoutError:
            self._forget(call)
            raise calls.unanswered(ask.op, seconds) from None
        except BaseException:
            self._forget(call)
            raise
        answer, _ = waiter.answer.result()
        if failed is not None:
            raise failed
        return calls.prefix_of(ask.op, answer)


async def connect(path: str | os.PathLike[str] | None = None, **options: Any) -> Client:
    """Attach to the agent whose socket is at a path, by default what KVFERRY_SOCKET says; see kvferry.connect."""
    client = Client(socket_path(path), Options(**options))
    await client._attach()
    return client
