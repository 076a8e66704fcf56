"""The client for programs with threads. Its methods may be called by any of them, also at once."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import socket
import threading
import time
import weakref
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kvferry import operations as calls
from kvferry.calls import Calls
from kvferry.codes import Code
from kvferry.core import Core
from kvferry.errors import Error, ExpiredError, LostError, Why, error_of, lost
from kvferry.handles import PagesBase, PrefillBase, SharedBase, warn_client
from kvferry.values import Lookup, Options, Prefix, Received, Written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt

    from kvferry.call import Call
    from kvferry.core import Place
    from kvferry.messages import Answer, Attached, Show
    from kvferry.operations import Ask
    from kvferry.pool import Pool
    from kvferry.values import Blocks, Peer, Pinned, ProducerPeer, SharingPeer

    # Takes the place of the first chunk among the keys, and the chunks.
    Scatter = Callable[[int, list[npt.NDArray[np.uint8]]], None]

log = logging.getLogger("kvferry")

T = TypeVar("T")

SOCKET_VARIABLE = "KVFERRY_SOCKET"


class _Waiter:
    """Who waits for a call that is answered once."""

    def __init__(self) -> None:
        self.answer: Future[tuple[Answer, Place]] = Future()
        self.back: Future[None] | None = None

    def answered(self, answer: Answer, at: Place) -> None:
        if answer.held:
            self.back = Future()
        self.answer.set_result((answer, at))

    def came_back(self) -> None:
        if self.back is not None:
            self.back.set_result(None)

    def showing(self, show: Show, pool: Pool) -> None:
        raise AssertionError("BUG: chunks are shown to nobody")

    def lost(self, error: Error, *, adrift: bool = False) -> None:
        if not self.answer.done():
            if adrift:
                self.back = Future()
            self.answer.set_exception(error)
        elif self.back is not None:
            self.back.set_exception(error)


class _FetchWaiter(_Waiter):
    """Who waits for a fetch: on one queue for all that comes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox: queue.SimpleQueue[tuple[Show, Pool] | None] = queue.SimpleQueue()

    def answered(self, answer: Answer, at: Place) -> None:
        super().answered(answer, at)
        self.inbox.put(None)

    def showing(self, show: Show, pool: Pool) -> None:
        self.inbox.put((show, pool))

    def lost(self, error: Error, *, adrift: bool = False) -> None:
        super().lost(error, adrift=adrift)
        self.inbox.put(None)


class _Waker:
    """Wakes the thread of a client, from anywhere: without a lock, and without waiting."""

    def __init__(self) -> None:
        self.reads, self._writes = socket.socketpair()
        self.reads.setblocking(False)
        self._writes.setblocking(False)

    def __call__(self) -> None:
        with contextlib.suppress(OSError):  # It is full, or closed: then nobody has to be woken.
            self._writes.send(b"\0")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.reads.recv(4096):
                pass

    def close(self) -> None:
        self.reads.close()
        self._writes.close()


class _Shared:
    """What the thread and the client have in common. The thread has no client: so a client can be collected."""

    def __init__(self, path: str, options: Options) -> None:
        self.waker = _Waker()
        try:
            self.core = Core(path, options, self.waker)
        except BaseException:
            self.waker.close()
            raise
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.stopping = False

    def run(self) -> None:
        """Serve the connection until the client is closed."""
        try:
            while self._turn():
                pass
        except Exception:
            log.exception("BUG: the thread of a kvferry client failed; its calls are lost")
        finally:
            with self.lock:
                self.core.close()
                self.changed.notify_all()
            self.waker.close()

    def _turn(self) -> bool:
        with self.lock:
            if self.stopping:
                self.core.begin_close(time.monotonic())
            before = (self.core.session.joined, self.core.refusal)
            pause = self.core.turn(time.monotonic())
            if before != (self.core.session.joined, self.core.refusal):
                self.changed.notify_all()
            if self.core.closed:
                return False
            poll = select.poll()
            poll.register(self.waker.reads, select.POLLIN)
            if self.core.link is not None:
                wants = select.POLLOUT if self.core.wants_to_send() else 0
                poll.register(self.core.link, select.POLLIN | wants)
        # A thousandth more, that what is due then is due when it comes back.
        poll.poll(None if pause is None else int(pause * 1000) + 1)
        self.waker.drain()
        return True

    def stop(self) -> None:
        """Have the thread end. It takes no lock, for it may be called by a collection."""
        self.stopping = True
        self.waker()


def _forgotten(shared: _Shared) -> None:
    if not shared.stopping and not shared.core.forked:
        shared.stop()
        warn_client("a kvferry client")


class Pages(PagesBase):
    """Pages of the pool, until they are released. It is a context manager."""

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
        super().__init__(client._shared.core, call.number, place, answer, short=short, writable=writable)
        self._client = client

    def release(self, patience: float | None = None) -> None:
        """Give the pages back. The agent first waits until nothing reads them any more that was put of them.

        That is waited for here, too, for so many seconds, or as the client's options have it; with 0 not at all. Where
        it takes longer this raises an ExpiredError, and the pages go back by themselves. A handle that is void has
        nothing to give back. A second release raises.
        """
        ask = calls.release(self._number, patience)  # It may raise, and then nothing has happened.
        if not self._release_begins():
            return
        if patience == 0:
            self._core.leak("release", self._number, self._epoch)
            return
        self._ended(self._client._error_of(ask))

    def await_return(self, patience: float | None = None) -> None:
        """Wait until nothing reads the pages that was put or saved of them so far: then they may be written again."""
        self.look("await_return")
        self._client._well(calls.subject("await_return", self._number, patience))

    def __enter__(self) -> Pages:
        """Release them at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Release them, if that was not done."""
        if self.released:
            return
        try:
            self.release()
        except ExpiredError as failed:
            log.warning("%s", failed)  # They go back by themselves.
        except Error as failed:
            if error is None:
                raise
            log.warning("%s", failed)  # The block's own error says more.


class Shared(SharedBase):
    """Pages that peers may read, until they are withdrawn. It is a context manager."""

    def __init__(
        self, client: Client, call: Call, place: Place, pages: Pages, answer: Answer, short: Error | None
    ) -> None:
        """Hold what is shared."""
        super().__init__(client._shared.core, call.number, place.epoch, pages, answer.hits, short)
        self._client = client

    def withdraw(self, patience: float | None = None) -> None:
        """Take the pages back: on return nobody reads or expects them any more.

        Where the patience is over before, it raises, and may be called again. TOO_MANY says that it is not done yet.
        """
        if self.void:
            self._withdrawn()
            return
        self.look("withdraw")
        _, _, answer, _ = self._client._call(calls.subject("withdraw", self._number, patience))
        calls.well("withdraw", answer, Code.NOT_FOUND)  # One that had no answer in time may have been heard.
        self._withdrawn()

    def __enter__(self) -> Shared:
        """Withdraw them at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Withdraw them, if that was not done."""
        if not self.released:
            self.withdraw()


class Pending(Generic[T]):
    """A call that is under way. What it came to is for whoever asks; nobody has to."""

    def __init__(self, client: Client, call: Call, waiter: _Waiter, made: Callable[[Answer], T]) -> None:
        """Follow a call."""
        self._client, self._call, self._waiter, self._made = client, call, waiter, made

    def done(self) -> bool:
        """Say whether it has ended."""
        return self._waiter.answer.done()

    def result(self, timeout: float | None) -> T:
        """Wait for its end, so many seconds; None: for as long as it takes. It raises how it ended, or TimeoutError."""
        try:
            answer, _ = self._waiter.answer.result(timeout)
        except Error:
            raise
        except FutureTimeoutError:
            raise calls.unanswered(self._call.op, timeout or 0.0) from None
        return self._made(calls.well(self._call.op, answer))

    def cancel(self) -> None:
        """Take it back. It still has a result, mostly CANCELLED."""
        self._client._tell("abort", Calls.abort, self._call)

    def wait_returned(self, timeout: float | None) -> bool:
        """Wait until nothing touches its memory any more, whatever it came to; False where the time was over first."""
        return _wait_back(self._waiter, timeout)


class PutResult:
    """What a put did."""

    def __init__(self, client: Client, call: Call, waiter: _Waiter, answer: Answer) -> None:
        """Take an answer."""
        self._client, self._call, self._waiter = client, call, waiter
        # Chunks that were brought to the peer, and those that it had already.
        self.sent = answer.sent
        self.skipped = answer.skipped
        # Whether the pages may still have been read when the put ended: until they are back nobody may write them.
        self.held = answer.held

    def wait_returned(self, timeout: float | None) -> bool:
        """Wait until nothing reads the pages of this put any more; False where the time was over first."""
        return _wait_back(self._waiter, timeout)

    def take_back(self) -> None:
        """End the offer of a put whose pages are still lent: nobody begins to read them any more."""
        if self._call.epoch != self._client._shared.core.epoch:
            return
        error = self._client._error_of(calls.subject("take_back", self._call.number))
        if error is not None and error.code != Code.NOT_FOUND:
            raise error


class RecallResult(PutResult):
    """What a recall came to."""

    def __init__(self, client: Client, call: Call, waiter: _Waiter, answer: Answer, short: Error | None) -> None:
        """Take an answer."""
        super().__init__(client, call, waiter, answer)
        # How many chunks came, from the first key on, and the bytes of each.
        self.hits = answer.hits
        self.lengths = answer.lengths[: answer.hits]
        # Why not more came, where that is an error; compute the others.
        self.short = short


def _wait_back(waiter: _Waiter, timeout: float | None) -> bool:
    """Wait for the memory of a call. One that was lost with its session has none any more: its views are void."""
    until = None if timeout is None else time.monotonic() + timeout
    try:
        waiter.answer.exception(timeout)
        if waiter.back is not None:
            waiter.back.result(None if until is None else max(0.0, until - time.monotonic()))
    except Error:
        return True
    except FutureTimeoutError:
        return False
    return True


class Prefill(PrefillBase):
    """A request whose chunks go layer by layer while they are computed. At the end of a with block it is dropped,
    unless it was finished."""

    def __init__(self, client: Client, call: Call, place: Place, request: str) -> None:
        """Hold a prefill that has begun."""
        super().__init__(client._shared.core, call.number, place.epoch, request)
        self._client = client

    def save_layer(self, layer: int, tokens: int, pages: Pages | None = None, *, wait: bool = True) -> None:
        """Say that one layer of the first so many tokens is computed, and lies in pages; what became whole goes now.

        Of the i-th chunk of pages, the layer is in page i*layers+layer. The bytes must not be written until the pages
        are back (Pages.await_return, or release). With wait=False it returns as soon as the call is on its way, and
        what was wrong with it is raised by a later call. TOO_MANY means that nothing has happened: save it again.
        """
        self._usable("save_layer")
        ask = calls.save_layer(self._number, layer, tokens, pages)
        if wait:
            self._client._well(ask)
            return
        waiter = _Waiter()
        waiter.answer.add_done_callback(self._saved)
        self._client._begin(ask, waiter)

    def _saved(self, answer: Future[tuple[Answer, Place]]) -> None:
        error = answer.exception()
        if error is None and (got := answer.result()[0]).code != Code.OK:
            error = calls.failure("save_layer", got)
        if isinstance(error, Error):
            self._failed = self._failed or error

    def preempt(self) -> None:
        """Say that what was computed of it is lost, and is computed again: its saves begin anew."""
        self.look("preempt_prefill")
        self._failed = None
        self._client._well(calls.subject("preempt_prefill", self._number))

    def finish(self, patience: float | None = None) -> PutResult:
        """Say that every layer was saved of all tokens, and wait until the peer has every chunk. Then it is over.

        Whatever it raises, it is over, but for an error that is INVALID or TOO_MANY: then it stands, and may be
        finished again, or dropped.
        """
        self._usable("finish_prefill")
        ask = calls.subject("finish_prefill", self._number, patience)
        call, waiter, answer, _ = self._client._call(ask)
        self._finished(answer)
        return self._client._put_result(call, waiter, answer)

    def drop(self) -> None:
        """End it; nothing more of it goes, and the proxy is not told. TOO_MANY says that it is not done yet."""
        if self._disarm("drop_prefill"):
            self._ended(self._client._error_of(calls.subject("drop_prefill", self._number)))

    def __enter__(self) -> Prefill:
        """Drop it at the end of the block, unless it was finished."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Drop it, if it is not over."""
        if not self.released:
            self.drop()


class Client:
    """A process's attachment to the agent of its host; see connect.

    A call raises an Error that says why it did not end as wanted. Calls that come to a prefix of what was asked for
    give that prefix, with the reason as its attribute short. A patience is in seconds; None is what is configured at
    the agent.
    """

    def __init__(self, path: str, options: Options) -> None:
        """Attach; use connect."""
        shared = self._shared = _Shared(path, options)
        self._options = options
        self._thread = threading.Thread(target=shared.run, name="kvferry", daemon=True)
        self._thread.start()
        self._guard = weakref.finalize(self, _forgotten, shared)
        self._guard.atexit = False
        try:
            with shared.lock:
                core = shared.core
                shared.changed.wait_for(lambda: core.session.joined or core.refusal or core.closed, options.timeout)
                if core.refusal is not None:
                    raise core.refusal
                if not core.session.joined:
                    why = Why(peer="agent", stage="attach", said=core.where(), remedy="start kvferry agent, or wait")
                    raise error_of("connect", Code.UNREACHABLE, why)
        except BaseException:
            self.close()
            raise

    # ---- the attachment ----

    @property
    def info(self) -> Attached:
        """What the agent said of itself and its pool when this process attached last."""
        info = self._shared.core.session.info
        if info is None:
            raise lost("info")
        return info

    @property
    def attached(self) -> bool:
        """Whether an agent is there now."""
        return self._shared.core.session.joined

    @property
    def epoch(self) -> int:
        """Counts sessions: handles of another one are void."""
        return self._shared.core.epoch

    def pool(self) -> npt.NDArray[np.uint8]:
        """View all of the pool, a row for each page. Whose bytes may be touched is the caller's to know."""
        with self._locked("pool") as core:
            if core.pool is None:
                raise lost("pool")
            return core.pool.bytes.reshape(core.pool.count, core.pool.page_bytes)

    def pin_memory(self) -> Pinned:
        """Have CUDA know the pool, so that copies to and from devices are direct; say what was done.

        A pool that is mapped later, of another life of the agent, is pinned by itself then.
        """
        with self._locked("pin_memory") as core:
            return core.pin()

    def close(self) -> None:
        """Detach. The agent takes back all that this client holds; its handles are void.

        That the agent has done so is waited for, but not for long.
        """
        self._guard.detach()
        if self._shared.core.forked:
            return
        self._shared.stop()
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
        return calls.stats_of(self._well(calls.stats())[2])

    # ---- sender ----

    def reserve(self, count: int, *, patience: float | None = None) -> Pages:
        """Take so many pages of the pool, all or none. Their content is not defined."""
        call, _, answer, place = self._well(calls.reserve(count, patience))
        return Pages(self, call, answer, place, writable=True)

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
        call, waiter, answer, _ = self._call(calls.put(peer, keys, pages, request, first, tokens, last, patience))
        return self._put_result(call, waiter, answer)

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
        call, waiter, answer, _ = self._call(calls.recall(peer, keys, pages, request, first, patience))
        return RecallResult(self, call, waiter, answer, calls.short_of("recall", answer, answer.hits))

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
        call, _, _, place = self._well(calls.begin_prefill(keys, request, peer, skip, layer_time))
        return Prefill(self, call, place, request)

    # ---- receiver ----

    def get(self, keys: Sequence[str], *, request: str = "", layered: bool = False, patience: float = 0.0) -> Pages:
        """Wait until all keys are ready here, and give the usable prefix: as many pages, in order, as chunks.

        With a request the get consumes what it gives; without one it is a look. Where a chunk is missing, short says
        which and why. Layered chunks have a page for every layer.
        """
        return self._prefix_pages(calls.get(keys, request, layered, patience))

    def contains(self, keys: Sequence[str]) -> int:
        """Count the chunks, from the first key on, that could be had now. It promises nothing for later."""
        return calls.well("contains", self._call(calls.contains(keys))[2], Code.NOT_FOUND).hits

    def fetch(
        self, keys: Sequence[str], scatter: Scatter, *, request: str = "", patience: float | None = None
    ) -> Prefix:
        """Hand chunks to scatter batch by batch, those that are at their senders included.

        It is called as scatter(first, chunks) on this thread: chunk i is that of key first+i, only to be read, and only
        until the call returns. What it raises ends the fetch, and is raised here.
        """
        return self._fetch(calls.keyed("fetch", keys, request, patience), scatter)

    def abandon(self, request: str) -> None:
        """Give up what is kept for a request that will not come for it."""
        calls.well("abandon", self._call(calls.ask("abandon", request=request))[2], Code.NOT_FOUND)

    # ---- sharing ----

    def store(self, keys: Sequence[str], pages: Pages, first: int = 0) -> None:
        """Make pages the cache's: chunk i has keys[i] and fills page first+i, which the handle has no more."""
        _, _, answer, _ = self._call(calls.lend("store", keys, pages, first))
        calls.stored(answer, pages, first, len(keys))

    def share(self, keys: Sequence[str], pages: Pages, first: int = 0) -> Shared:
        """Let peers read pages that the engine goes on reading itself, until they are withdrawn."""
        call, _, answer, place = self._call(calls.lend("share", keys, pages, first))
        return Shared(self, call, place, pages, answer, calls.share_short(answer))

    def lookup(self, keys: Sequence[str]) -> Lookup:
        """Say how many chunks, from the first key on, are here, and how many one other node has: a hint."""
        _, _, answer, _ = self._well(calls.lookup(keys))
        return Lookup(answer.sent, answer.skipped)

    def shared_get(
        self, keys: Sequence[str], *, request: str, source: SharingPeer | None = None, patience: float | None = None
    ) -> Pages:
        """Give the longest prefix that is here or that peers have, which is read from them first.

        Without a source directories are asked who has them.
        """
        return self._prefix_pages(calls.shared("shared_get", keys, request, source, patience))

    def keep(
        self, keys: Sequence[str], *, request: str, source: SharingPeer | None = None, patience: float | None = None
    ) -> Prefix:
        """Have peers lend what they have, and leave it with them until it is fetched; count it."""
        return calls.prefix_of("keep", self._call(calls.shared("keep", keys, request, source, patience))[2])

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
        return self._fetch(calls.shared("shared_fetch", keys, request, source, patience), scatter)

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
        """Name blocks that producers are to write into, and return at once.

        The blocks are the agent's until they are returned. Where it does not end well their content means nothing.
        """
        ask = calls.register(request, producers, blocks, ranks, stages, transfer, engine, patience)
        return self._follow(ask, calls.received)

    def expect(
        self, *, request: str, producers: Sequence[ProducerPeer], transfer: str = "", patience: float | None = None
    ) -> Pending[None]:
        """Keep what producers lend of a request until it is registered for, and return at once."""
        return self._follow(calls.errand("expect", request, producers, transfer, patience), calls.nothing)

    def not_needed(
        self, *, request: str, producers: Sequence[ProducerPeer], transfer: str = "", patience: float | None = None
    ) -> None:
        """Tell producers that nobody will register for a request, and wait until each has heard."""
        self._well(calls.errand("not_needed", request, producers, transfer, patience))

    def finished(
        self, *, request: str, blocks: Sequence[Blocks], transfer: str = "", lease: float | None = None
    ) -> Pending[Written]:
        """Lend blocks of a request that is computed to whoever registers for them, and return at once.

        They must not change until they are returned.
        """
        return self._follow(calls.finished(request, blocks, transfer, lease), calls.written)

    def aborted(self, *, request: str, transfer: str = "") -> None:
        """Say that a request will not come, or that what is lent for it is not to be written any more."""
        self._well(calls.ask("aborted", request=request, transfer=transfer))

    # ---- within ----

    @contextlib.contextmanager
    def _locked(self, op: str) -> Iterator[Core]:
        # Before the lock: in a child it may be held for ever.
        self._shared.core.usable(op)
        with self._shared.lock:
            yield self._shared.core

    def _begin(self, ask: Ask, waiter: _Waiter) -> Call:
        with self._locked(ask.op) as core:
            call = core.begin(ask.op, ask.entries, waiter)
            all_went = core.flush(time.monotonic())
        if not all_went:
            self._shared.waker()
        return call

    def _tell(self, op: str, tell: Callable[..., None], *what: Any) -> None:
        """Have the session say something."""
        with self._locked(op) as core:
            tell(core.session.calls, *what)
            all_went = core.flush(time.monotonic())
        if not all_went:
            self._shared.waker()

    def _forget(self, call: Call) -> None:
        if self._shared.core.forked:
            return
        with self._shared.lock:
            self._shared.core.forget(call)
        self._shared.waker()

    def _time(self, ask: Ask) -> float:
        longest = self._options.longest if ask.seconds is None else ask.seconds
        return longest + self._options.bound

    def _call(self, ask: Ask) -> tuple[Call, _Waiter, Answer, Place]:
        """Make a call, and wait for its answer."""
        waiter = _Waiter()
        call = self._begin(ask, waiter)
        seconds = self._time(ask)
        try:
            answer, place = waiter.answer.result(seconds)
        except Error:
            raise
        except FutureTimeoutError:
            self._forget(call)
            raise calls.unanswered(ask.op, seconds) from None
        except BaseException:  # An interrupt: nobody will have what comes.
            self._forget(call)
            raise
        return call, waiter, answer, place

    def _well(self, ask: Ask) -> tuple[Call, _Waiter, Answer, Place]:
        """Make a call that has to end well."""
        got = self._call(ask)
        calls.well(ask.op, got[2])
        return got

    def _error_of(self, ask: Ask) -> Error | None:
        """Make a call that gives something back. What is lost meanwhile is given back."""
        try:
            answer = self._call(ask)[2]
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

    def _prefix_pages(self, ask: Ask) -> Pages:
        call, _, answer, place = self._call(ask)
        return Pages(self, call, answer, place, short=calls.short_of(ask.op, answer, len(answer.pages)))

    def _follow(self, ask: Ask, made: Callable[[Answer], T]) -> Pending[T]:
        waiter = _Waiter()
        return Pending(self, self._begin(ask, waiter), waiter, made)

    def _fetch(self, ask: Ask, scatter: Scatter) -> Prefix:
        waiter = _FetchWaiter()
        failed: Exception | None = None
        call = self._begin(ask, waiter)
        until = time.monotonic() + self._time(ask)
        try:
            while (item := waiter.inbox.get(timeout=max(0.0, until - time.monotonic()))) is not None:
                show, pool = item
                try:
                    scatter(show.first, chunks_of(show, pool))
                except Exception as error:
                    failed = error
                code = Code.FAULTED if failed else Code.OK
                self._tell(ask.op, Calls.shown, call, show.first, code)
            answer, _ = waiter.answer.result(0)
        except Error:
            raise
        except queue.Empty:
            self._forget(call)
            raise calls.unanswered(ask.op, self._time(ask)) from None
        except BaseException:
            self._forget(call)
            raise
        if failed is not None:
            raise failed
        return calls.prefix_of(ask.op, answer)


def chunks_of(show: Show, pool: Pool) -> list[npt.NDArray[np.uint8]]:
    """View what is shown, only to be read."""
    made = [pool.page(number, length) for number, length in zip(show.pages, show.lengths, strict=True)]
    for chunk in made:
        chunk.flags.writeable = False
    return made


def connect(path: str | os.PathLike[str] | None = None, **options: Any) -> Client:
    """Attach to the agent whose socket is at a path, by default what KVFERRY_SOCKET says.

    Options are the fields of Options. It waits for an agent that is not there yet, for timeout seconds.
    """
    return Client(socket_path(path), Options(**options))


def socket_path(path: str | os.PathLike[str] | None) -> str:
    """Say where the agent's socket is."""
    found = os.fspath(path) if path is not None else os.environ.get(SOCKET_VARIABLE, "")
    if not found:
        remedy = f"give the path that kvferry agent was given as --socket, or set {SOCKET_VARIABLE}"
        raise error_of("connect", Code.INVALID, Why(stage="command", field="path", theirs="empty", remedy=remedy))
    return found
