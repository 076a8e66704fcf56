"""The client for programs with threads. Its methods are thread-safe."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from kvferry import operations
from kvferry.attachment import SOCKET_VARIABLE, Attachment, socket_path
from kvferry.call import Call
from kvferry.call_spec import no_answer_error
from kvferry.call_waiter import CallWaiter
from kvferry.codes import Code
from kvferry.core import Core
from kvferry.errors import Error, LostError
from kvferry.handles import Pages, PendingCall, Prefill, PutResult, RecallResult, SharedPages
from kvferry.progress import FetchProgress, LookupProgress
from kvferry.thread_driver import CompletionEvent, ThreadDriver
from kvferry.values import LendResult, Lookup, Options, Prefix, RegisterResult

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from types import TracebackType

    import numpy as np
    import numpy.typing as npt

    from kvferry.call_spec import CallSpec
    from kvferry.call_waiter import Chunks
    from kvferry.values import Blocks, Peer, ProducerPeer, SharingPeer

    # Called with the index of the first chunk among the keys, and the chunks.
    Scatter = Callable[[int, list[npt.NDArray[np.uint8]]], None]

__all__ = [
    "SOCKET_VARIABLE",
    "Client",
    "Pages",
    "PendingCall",
    "Prefill",
    "PutResult",
    "RecallResult",
    "SharedPages",
    "connect",
]

T = TypeVar("T")

# How often a fetch that receives nothing calls still_wanted, in seconds.
_POLL_INTERVAL = 0.5
# The result of _next_chunks when it is time to call still_wanted.
_NO_CHUNKS: tuple[int, list[Any]] = (-1, [])


class Client(Attachment):
    """The attachment of a process to the agent of its host; see connect.

    A call that fails raises an Error, which says what failed and why. A call that covers only a prefix of the requested
    keys returns that prefix, with the reason in its attribute shortfall. Timeouts are in seconds; None means the
    timeout that the agent has configured.
    """

    _driver: ThreadDriver

    def __init__(self, path: str, options: Options) -> None:
        """Attach to the agent; use connect instead."""
        driver = ThreadDriver(path, options)
        super().__init__(driver, options)
        self._thread = threading.Thread(target=driver.run, name="kvferry", daemon=True)
        self._thread.start()
        self._finalizer = weakref.finalize(self, driver.stop_forgotten)
        self._finalizer.atexit = False
        try:
            with driver.lock:
                core = driver.core
                driver.changed.wait_for(
                    lambda: core.session.is_attached or core.refusal or core.closed, options.timeout
                )
                self._check_attached()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Detach from the agent, which takes back everything that this client holds. All handles become void.

        The call waits for the agent's confirmation for at most two seconds.
        """
        self._finalizer.detach()
        if self._driver.core.forked:
            return
        self._driver.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Client:
        """Return the client; it is closed at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Close the client."""
        self.close()

    def stats(self) -> dict[str, Any]:
        """Return the counters of the agent, for people and for metrics."""
        return self._run(operations.stats())

    # ---- sender ----

    def reserve(self, count: int, *, key: str = "", timeout: float | None = None) -> Pages:
        """Reserve pages of the pool, all of them or none. Their initial content is undefined.

        Args:
            count: number of pages.
            key: the key of a chunk that the pages are for. If the agent limits the pages of a tenant
                (`tenant_share_pct`), they count for the tenant of the key; without a key, for the default tenant.
            timeout: how long to wait for free pages.

        Raises:
            OutOfMemoryError: no pages became free in time.
        """
        call = operations.reserve(count, timeout, key if self.info.tenants else "")
        return Pages(self, self._run(call), writable=True)

    def put(
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
        """Push a batch of a request's chunks to a peer, or offer it to the peer in pull mode.

        Chunk i has the key keys[i] and lies in page first_page + i. The call returns when the peer has all that it will
        receive of this batch. The peer may still read the pages at that point, also after an error (whose attribute
        result is the PutResult): see PutResult.in_use.

        Args:
            peer: the receiver.
            keys: the names of the chunks.
            pages: the handle whose pages hold the chunks.
            request: the id of the request at the receiver.
            first_page: index in the handle of the page of the first chunk.
            last_chunk_tokens: number of tokens of the last chunk; 0 if it is a full chunk.
            last_batch: whether no batch of the request follows. The proxy is notified when all batches have ended.
            timeout: how long the transfer may take.
            trace: the span of the caller, if the request is traced: the result of kvferry.traces.parse_traceparent.

        Returns:
            How many chunks were sent, and how many the peer had already.
        """
        return self._run_put(
            operations.put(peer, keys, pages, request, first_page, last_chunk_tokens, last_batch, timeout, trace)
        )

    def recall(
        self,
        *,
        peer: Peer,
        keys: Sequence[str],
        pages: Pages,
        request: str = "",
        first_page: int = 0,
        timeout: float | None = None,
    ) -> RecallResult:
        """Read back the longest prefix of chunks that a receiver still has, into the pages from first_page on.

        If the receiver has none of the chunks, that is no error: hits is 0 and shortfall is None.
        """
        spec = operations.recall(peer, keys, pages, request, first_page, timeout)
        waiter = self._make_call(spec)
        spec.read(waiter.reply())
        return RecallResult(self, waiter)

    def begin_prefill(
        self,
        *,
        keys: Sequence[str],
        request: str,
        peer: Peer | None = None,
        skip_tokens: int = 0,
        layer_seconds: float = 0.0,
        trace: bytes = b"",
    ) -> Prefill:
        """Start a request whose chunks are pushed layer by layer while they are computed.

        Args:
            keys: the names of all chunks of the prompt.
            request: the id of the request at the receiver.
            peer: the receiver; None to push nothing.
            skip_tokens: how many of the first tokens the receiver has already.
            layer_seconds: how long one layer takes to compute, in seconds; 0 if unknown.
            trace: as for put.
        """
        spec = operations.begin_prefill(keys, request, peer, skip_tokens, layer_seconds, trace)
        return Prefill(self, self._run(spec), request)

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
        """Notify a receiver that no more chunks of a request follow, and return at once.

        Without a code, everything was sent. Calls that wait for chunks of the request at the receiver end with
        SENDER_FAILED, this code and this reason; or with NOT_SENT if everything was sent and the chunk that they wait
        for is not part of it.

        Args:
            request: the id of the request; no other attempt may have the same id.
            peer: the receiver.
            code: why the request failed.
            reason: the same for people.
            timeout: how long to retry.
            tenant: the tenant of the request's chunks (`kvferry.tenants.tenant_of_salt`); empty for the default tenant.
                Requests of two tenants with one id are two requests.

        Returns:
            A pending call. Its result raises NOT_SENT if the receiver says that a chunk was not sent.
        """
        return self._start_call(operations.end_request(request, peer, code, reason, timeout, tenant))

    # ---- receiver ----

    def get(
        self,
        keys: Sequence[str],
        *,
        request: str = "",
        layered: bool = False,
        timeout: float = 0.0,
        reply_margin: float | None = None,
        trace: bytes = b"",
        domain: str = "",
    ) -> Pages:
        """Wait until all keys are ready in the pool, and return the pages of the usable prefix, in order.

        With a request id the call consumes the chunks; without one it only reads them. If a chunk is missing, the
        attribute shortfall says which one and why.

        Args:
            keys: the names of the chunks.
            request: the id of the request.
            layered: whether each chunk has one page for every layer.
            timeout: how long to wait for chunks that are missing.
            reply_margin: how long the agent may take to reply beyond the timeout; None means the value of the client's
                options.
            trace: as for put.
            domain: the trust domain whose chunks are accepted, such as spiffe://fleet; the agent's own if empty. "dns"
                stands for all identities that are DNS names, "unproven" for peers without an identity.
        """
        spec = operations.get(keys, request, layered, timeout, trace, domain)
        return Pages(self, self._run(spec, reply_margin))

    def contains(self, keys: Sequence[str], *, domain: str = "") -> int:
        """Count the chunks, from the first key on, that a get would return now. The result is no promise.

        Chunks that arrive layer by layer are not counted; use a get without a request id for them. The domain is as for
        get.
        """
        count = 0
        for part in self._split_keys("contains", keys):
            found = self._run(operations.contains(part, domain))
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
        timeout: float | None = None,
        still_wanted: Callable[[], bool] | None = None,
        reply_margin: float | None = None,
        trace: bytes = b"",
        domain: str = "",
    ) -> Prefix:
        """Read chunks, including chunks that are still at their senders, and pass them to a callback batch by batch.

        The callback runs in this thread as scatter(first, chunks): chunks[i] is the chunk of key first + i. It is
        read-only, and valid only until the callback returns. An exception of the callback ends the fetch and is raised
        here.

        Args:
            keys: the names of the chunks.
            scatter: the callback.
            request: the id of the request.
            timeout: how long the fetch may take.
            still_wanted: called twice a second while nothing arrives; the fetch is aborted when it returns False. An
                aborted fetch that had not begun to read changes nothing.
            reply_margin: as for get.
            trace: as for put.
            domain: as for get.

        Returns:
            How many chunks were passed to the callback, and why not all of them.
        """
        parts = self._split_keys("fetch", keys)
        if len(parts) == 1:
            return self._run_fetch(
                operations.fetch(parts[0], request, timeout, trace, domain), scatter, still_wanted, reply_margin
            )
        progress = FetchProgress(scatter, timeout)
        for part in parts:
            spec = operations.fetch(part, request, progress.remaining_timeout(), trace, domain)
            try:
                progress.add(self._run_fetch(spec, progress.scatter, still_wanted, reply_margin), len(part))
            except Error as error:
                progress.handle_error(error)
            if progress.is_finished:
                break
        return progress.result()

    def abandon(self, request: str, reason: str = "", tenant: str = "") -> None:
        """Drop the chunks that the agent keeps for a request that nothing will read.

        Args:
            request: the id of the request.
            reason: if given, passed to the sender with the next message about the end of the request.
            tenant: the tenant of the chunks, if there is a reason: the sender of the request of this tenant gets it.
        """
        self._run(operations.abandon(request, reason, tenant))

    # ---- sharing ----

    def store(self, keys: Sequence[str], pages: Pages, first_page: int = 0) -> None:
        """Give pages to the cache: chunk i has the key keys[i] and fills page first_page + i.

        The handle no longer owns these pages afterwards.
        """
        parts = self._split_keys("store", keys)
        pages.check_range("store", first_page, sum(len(part) for part in parts))
        for part in parts:
            self._run(operations.store(part, pages, first_page))
            first_page += len(part)

    def share(self, keys: Sequence[str], pages: Pages, first_page: int = 0) -> SharedPages:
        """Let peers read pages that the engine also keeps reading, until SharedPages.stop_sharing."""
        return SharedPages(self, self._run(operations.share(keys, pages, first_page)), pages)

    def lookup(self, keys: Sequence[str]) -> Lookup:
        """Return how many chunks, from the first key on, this agent has, and how many of them one other node has.

        The result is a hint. If there are more keys than the agent accepts in one call, each part may be at another
        node.
        """
        progress = LookupProgress()
        for part in self._split_keys("lookup", keys):
            if not progress.add(self._run(operations.lookup(part)), len(part)):
                break
        return progress.result()

    def shared_get(
        self, keys: Sequence[str], *, request: str, source: SharingPeer | None = None, timeout: float | None = None
    ) -> Pages:
        """Return the longest prefix that this agent or its peers have. Chunks of peers are read into the pool first.

        Args:
            keys: the names of the chunks.
            request: the id of the request.
            source: the peer to read from; None to ask the directories.
            timeout: how long the call may take.
        """
        return Pages(self, self._run(operations.shared_get(keys, request, source, timeout)))

    def lease(
        self, keys: Sequence[str], *, request: str, source: SharingPeer | None = None, timeout: float | None = None
    ) -> Prefix:
        """Acquire read leases at the peers that have the chunks, without reading them yet, and count the chunks.

        Read the chunks with fetch or shared_fetch under the same request id, or give the leases back with abandon. The
        peers keep the chunks for their p2p_pull_pending_ttl.

        Args:
            keys: the names of the chunks.
            request: the id of the request.
            source: the peer; None to ask the directories.
            timeout: how long the call may take.
        """
        return self._run(operations.lease(keys, request, source, timeout))

    def shared_fetch(
        self,
        keys: Sequence[str],
        scatter: Scatter,
        *,
        request: str,
        source: SharingPeer | None = None,
        timeout: float | None = None,
    ) -> Prefix:
        """Pass the longest prefix that this agent or its peers have to a callback batch by batch, as fetch does."""
        return self._run_fetch(operations.shared_fetch(keys, request, source, timeout), scatter)

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
        """Register blocks of the engine that producers will write into, and return at once.

        The agent owns the blocks until PendingCall.wait_until_unused returns True. If the call fails, the content of
        the blocks is undefined.

        Args:
            request: the engine's own id of the request.
            producers: the ranks that write, in order of their stages and then of their ranks.
            blocks: the blocks to write into.
            producer_ranks: the tensor-parallel size of the producer.
            producer_stages: the pipeline-parallel size of the producer.
            transfer: the id of the transfer at both ends; if it is empty, the ends are matched by request.
            engine: the producer's register.engine_id; empty accepts any engine.
            timeout: how long to wait for the producers.
            epoch: if given, the call is made in this session only, because block numbers of one session mean other
                blocks in the next.

        Returns:
            A pending call, whose result counts the written pages.
        """
        spec = operations.register_blocks(
            request, producers, blocks, producer_ranks, producer_stages, transfer, engine, timeout, epoch
        )
        return self._start_call(spec)

    def expect_request(
        self, *, request: str, producers: Sequence[ProducerPeer], transfer: str = "", timeout: float | None = None
    ) -> PendingCall[None]:
        """Keep the blocks that producers lend for a request until register_blocks is called, and return at once."""
        return self._start_call(operations.expect_request(request, producers, transfer, timeout))

    def decline_request(
        self, *, request: str, producers: Sequence[ProducerPeer], transfer: str = "", timeout: float | None = None
    ) -> None:
        """Tell producers that nothing will be registered for a request, and wait until each of them has confirmed
        it.
        """
        self._run(operations.decline_request(request, producers, transfer, timeout))

    def lend_blocks(
        self,
        *,
        request: str,
        blocks: Sequence[Blocks],
        transfer: str = "",
        lease: float | None = None,
        epoch: int | None = None,
    ) -> PendingCall[LendResult]:
        """Lend the blocks of a computed request to the consumers that register for them, and return at once.

        The blocks must not change until PendingCall.wait_until_unused returns True. The epoch means the same as for
        register_blocks.
        """
        return self._start_call(operations.lend_blocks(request, blocks, transfer, lease, epoch))

    def abort_request(self, *, request: str, transfer: str = "") -> None:
        """Tell the agent that a request will not be computed, or that the blocks lent for it must not be sent any
        more.
        """
        self._run(operations.abort_request(request, transfer))

    # ---- internal ----

    def _make_call(self, spec: CallSpec[Any], reply_margin: float | None = None) -> CallWaiter[CompletionEvent]:
        """Make a call and wait for its reply."""
        call, waiter, seconds = (
            Call(spec.op, spec.entries),
            CallWaiter[CompletionEvent](CompletionEvent),
            self._reply_timeout(spec, reply_margin),
        )
        try:
            self._driver.begin_call(call, waiter)
            answered = waiter.end_event.wait(seconds)
        except BaseException:  # An interrupt: nothing will take the result.
            self._driver.forget_call(call)
            raise
        if not answered:
            self._driver.forget_call(call)
            raise no_answer_error(spec.op, seconds)
        return waiter

    def _run(self, spec: CallSpec[T], reply_margin: float | None = None) -> T:
        """Make a call and read its result."""
        try:
            return spec.read(self._make_call(spec, reply_margin).reply())
        except LostError as error:
            return spec.on_lost(error)

    def _run_optional(self, spec: CallSpec[None] | None) -> None:
        """Make a call, unless it is None."""
        if spec is not None:
            self._run(spec)

    def _run_put(self, spec: CallSpec[None]) -> PutResult:
        """Make a call that has a PutResult, even if it fails."""
        result = PutResult(self, self._make_call(spec))
        result._raise_error(spec)
        return result

    def _start_call(self, spec: CallSpec[T]) -> PendingCall[T]:
        """Make a call without waiting for its reply."""
        call, waiter = (
            Call(spec.op, spec.entries, required_epoch=spec.required_epoch),
            CallWaiter[CompletionEvent](CompletionEvent),
        )
        try:
            self._driver.begin_call(call, waiter)
        except BaseException:
            self._driver.forget_call(call)
            raise
        return PendingCall(self, spec, call, waiter)

    def _run_fetch(
        self,
        spec: CallSpec[Prefix],
        scatter: Scatter,
        still_wanted: Callable[[], bool] | None = None,
        reply_margin: float | None = None,
    ) -> Prefix:
        """Make a call whose chunks are shown batch by batch."""
        inbox: queue.SimpleQueue[Chunks | None] = queue.SimpleQueue()
        waiter = CallWaiter[CompletionEvent](CompletionEvent, inbox.put, lambda _: inbox.put(None))
        scatter_error: Exception | None = None
        code = Code.OK
        call, seconds = Call(spec.op, spec.entries), self._reply_timeout(spec, reply_margin)
        deadline = time.monotonic() + seconds
        try:
            self._driver.begin_call(call, waiter)
            while (
                shown := _next_chunks(inbox, deadline, seconds if still_wanted is None else _POLL_INTERVAL)
            ) is not None:
                if shown is _NO_CHUNKS:
                    if still_wanted is not None and code == Code.OK and not still_wanted():
                        code = Code.CANCELLED
                        self._driver.run_on_core(spec.op, Core.abort_call, call)
                        deadline = min(deadline, time.monotonic() + self._options.reply_margin)
                    continue
                first, chunks = shown
                if code == Code.OK:
                    try:
                        scatter(first, chunks)
                    except Exception as error:
                        scatter_error, code = error, Code.FAULTED
                self._driver.run_on_core(spec.op, Core.acknowledge_shown, call, first, code)
        except queue.Empty:
            self._driver.forget_call(call)
            raise no_answer_error(spec.op, seconds) from None
        except BaseException:
            self._driver.forget_call(call)
            raise
        reply = waiter.reply()
        if scatter_error is not None:
            raise scatter_error
        return spec.read(reply)


def _next_chunks(inbox: queue.SimpleQueue[Chunks | None], deadline: float, pause: float) -> Chunks | None:
    """Wait for the next chunks or for the end of the call, at most for one pause. It raises Empty after the
    deadline.
    """
    remaining = deadline - time.monotonic()
    try:
        return inbox.get(timeout=max(0.0, min(remaining, pause)))
    except queue.Empty:
        if remaining <= pause:
            raise
        return _NO_CHUNKS


def connect(path: str | os.PathLike[str] | None = None, **options: Any) -> Client:
    """Attach to the agent whose socket is at a path.

    Args:
        path: the agent's socket; None means the environment variable KVFERRY_SOCKET.
        options: the fields of Options.

    Raises:
        Error: no agent accepted the attachment within timeout seconds, or the agent refused it.
    """
    return Client(socket_path(path), Options(**options))
