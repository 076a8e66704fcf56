"""The worker's side: copies between blocks and pages, and calls of the agent, on its own threads.

The methods for the engine return at once. No error on a thread is ever raised in the engine: the blocks of a failed
load are reported, so that vLLM computes them, and a failed save is a miss at the decode engine.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kvferry.codes import Code
from kvferry.errors import Error, make_error
from kvferry.handles import release_without_wait
from kvferry.vllm.agent_client import MIN_TIMEOUT, log_outcome, peer_for_rank, remaining_time
from kvferry.vllm.counters import Counters
from kvferry.vllm.end_notifier import EndNotifier
from kvferry.vllm.layer_pusher import LayerPusher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvferry.values import Peer, Prefix
    from kvferry.vllm.agent_client import Client
    from kvferry.vllm.cache import Bytes, Cache
    from kvferry.vllm.chunk_names import ChunkNames
    from kvferry.vllm.settings import Settings
    from kvferry.vllm.step_work import Load, Save, Store, Work

# How long one get waits before the load checks whether it is still needed, in seconds.
_GET_SLICE = 0.5
# How much longer the agent may take to reply to a get, and to a fetch, in seconds.
_GET_MARGIN, _FETCH_MARGIN = 2.0, 0.25
# The first and the longest pause of a load that is refused because its source is busy, in seconds.
_FIRST_PAUSE, _MAX_PAUSE = 0.02, 1.0
# Threads for layer-by-layer pushes: as many as an agent accepts (layerwise.runs). A push that waits for pages or for
# its peer must not block another push that frees them.
_LAYER_THREADS = 256
# Chunks that are reserved and sent at once, because other requests need pages, too.
_BATCH = 16


class ConnectorWorker:
    """See the module."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        names: ChunkNames,
        chunk_blocks: int,
        settings: Settings,
        layers_per_chunk: int = 0,
    ) -> None:
        """Serve one rank.

        Args:
            client: the agent.
            cache: the engine's cache.
            names: the names of chunks.
            chunk_blocks: blocks of a chunk.
            settings: the settings of the connector.
            layers_per_chunk: the number of pages of a chunk, one for each layer; 0 if one page has all layers.
        """
        self._client = client
        self._cache = cache
        self._names = names
        self._chunk_blocks = chunk_blocks
        self._block_tokens = names.chunk // chunk_blocks
        self._page_bytes = chunk_blocks * cache.block_bytes
        self._settings = settings
        self.counts = Counters()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        # The number of readers of a request's blocks; and the requests without readers that were not reported yet.
        self._reader_counts: dict[str, int] = {}
        self._sent_requests: set[str] = set()
        self._received_requests: set[str] = set()
        self._bad_blocks: set[int] = set()
        self._cancel_events: dict[str, threading.Event] = {}
        self._save_threads = ThreadPoolExecutor(settings.saves, "kvferry-save")
        self._load_threads = ThreadPoolExecutor(settings.loads, "kvferry-load")
        # Pages of a chunk.
        self._layers_per_chunk = layers_per_chunk
        self._end_notifier = EndNotifier(client, names.rank, settings.save_patience)
        self._layer_pusher: LayerPusher | None = None
        self._layer_threads = ThreadPoolExecutor(
            _LAYER_THREADS, "kvferry-layers"
        )  # It starts threads only when needed.
        if layers_per_chunk:
            self._layer_pusher = LayerPusher(
                client,
                cache,
                names,
                chunk_blocks,
                settings.save_patience,
                self.counts,
                self._layer_threads,
                self._finish_read,
                self._end_notifier,
            )
        # The work of the current step that was announced, and that was started.
        self._announced_work: Work | None = None
        self._started_work: Work | None = None

    # ---- for the engine, once per step, in this order; start_work may come before or after the forward pass ----

    @property
    def is_agent_away(self) -> bool:
        """Whether the agent is unreachable. Calls are made if it comes back soon."""
        return not self._client.attached

    def begin_step(self, work: Work) -> None:
        """Start a step before it overwrites blocks. Repeated calls for the same step do nothing."""
        if self._announced_work is work:
            return
        self._announced_work = work
        if self._layer_pusher is not None:
            self._layer_pusher.begin_step(work)

    def layer_computed(self, layer: str) -> None:
        """Record that the step has computed a layer."""
        if self._layer_pusher is not None:
            self._layer_pusher.layer_computed(layer)

    def start_work(self, work: Work) -> None:
        """Start the work of a step that does not depend on its forward pass, on threads.

        Blocks to be saved were computed by earlier steps, and no request of this step reads blocks to be loaded.
        """
        self.begin_step(work)
        if self._started_work is work:
            return
        self._started_work = work
        if work.saves or work.stores or work.loads:
            self._cache.mark_computed()
        now = time.monotonic()
        with self._lock:
            for name in (
                *work.ends,
                *(save.local_id for save in work.saves),
                *(store.local_id for store in work.stores),
            ):
                self._reader_counts[name] = self._reader_counts.get(name, 0) + 1
        for save in work.saves:
            self._save_threads.submit(self._run_save, save, now + self._settings.save_patience)
        for store in work.stores:
            self._save_threads.submit(self._run_store, store, now + self._settings.save_patience)
        for load in work.loads:
            cancelled = self._cancel_events[load.local_id] = threading.Event()
            self._load_threads.submit(self._run_load, load, cancelled, now, now + self._settings.load_patience)
        for name in work.cancels:
            if (event := self._cancel_events.get(name)) is not None:
                event.set()
        for cancelled_send in work.cancelled_sends:
            if cancelled_send.failed:
                self.counts.add(failed_saves=1)
            self._end_notifier.notify_failed(
                cancelled_send.request, cancelled_send.tenant, cancelled_send.receiver, None, cancelled_send.reason
            )
        for abandoned in work.abandons:
            self._end_notifier.abandon_request(abandoned.request, abandoned.tenant, abandoned.reason)

    def end_step(self, work: Work, failed: bool = False) -> None:
        """Handle the end of a step's forward pass: all layers are computed, unless it failed."""
        self.start_work(work)
        self._announced_work = self._started_work = None
        if self._layer_pusher is None:
            return
        if failed:
            self._layer_pusher.fail_step()
        self._layer_pusher.end_step(work)

    def take_results(self) -> tuple[set[str], set[str]]:
        """Return the requests whose blocks were read, and those whose loads have ended, once each."""
        with self._lock:
            sent, self._sent_requests = self._sent_requests, set()
            received, self._received_requests = self._received_requests, set()
        for name in received:
            self._cancel_events.pop(name, None)
        return sent, received

    def take_bad_blocks(self) -> set[int]:
        """Return the blocks of loads that failed, once each."""
        with self._lock:
            bad, self._bad_blocks = self._bad_blocks, set()
        return bad

    def close(self) -> None:
        """Shut down. Running saves may end within their timeout; loads end at their next check."""
        self._closing.set()
        if self._layer_pusher is not None:
            self._layer_pusher.close()
        self._load_threads.shutdown(wait=True, cancel_futures=True)
        self._layer_threads.shutdown(wait=True)
        self._save_threads.shutdown(wait=True)
        self._end_notifier.close()
        self._client.close()

    # ---- on threads ----

    def _run_save(self, save: Save, deadline: float) -> None:
        size, finish_read = 0, _CallOnce(lambda: self._finish_read(save.local_id))
        try:
            keys = self._names.chunk_keys(save.prompt)
            peer = peer_for_rank(save.receiver, self._names.rank)
            for begin in range(0, len(keys), _BATCH):
                chunks = range(begin, min(begin + _BATCH, len(keys)))
                size += self._put_chunks(
                    save, peer, keys, chunks, finish_read if chunks.stop == len(keys) else None, deadline
                )
            self._end_notifier.notify_sent(save.request, save.prompt.tenant, save.receiver)
            self.counts.add(saved_requests=1, saved_bytes=size)
        except Exception as error:
            self.counts.add(failed_saves=1)
            log_outcome("its KV did not reach the decode engine", save.local_id, error)
            finish_read()
            # If the agent is lost at the very end, everything may have arrived; the receiver uses it nevertheless.
            self._end_notifier.notify_failed(save.request, save.prompt.tenant, save.receiver, error)
        finally:
            finish_read()

    def _put_chunks(
        self, save: Save, peer: Peer, keys: list[str], chunks: range, finish_read: _CallOnce | None, deadline: float
    ) -> int:
        """Copy and push some chunks, and return their bytes. With finish_read these are the request's last chunks."""
        chunk_blocks = [self._blocks_of_chunk(save.blocks, chunk) for chunk in chunks]
        with release_without_wait(
            self._client.reserve(len(chunks), key=keys[0], timeout=remaining_time("reserve", deadline))
        ) as pages:
            self._fill_pages(pages, chunk_blocks)
            # Checked before the blocks are released: a void handle certainly has not received the data.
            pages.check_valid("put")
            timeout = remaining_time("put", deadline)
            if finish_read is not None:
                finish_read()
            tokens = len(chunk_blocks[-1]) * self._block_tokens if len(chunk_blocks[-1]) < self._chunk_blocks else 0
            self._client.put(
                peer=peer,
                keys=keys[chunks.start : chunks.stop],
                pages=pages,
                request=save.request,
                last_chunk_tokens=tokens,
                last_batch=finish_read is not None,
                timeout=timeout,
                trace=save.trace,
            )
        return sum(map(len, chunk_blocks)) * self._cache.block_bytes

    def _run_store(self, store: Store, deadline: float) -> None:
        """Store the whole chunks that the cache does not have."""
        try:
            keys = self._names.chunk_keys(store.prompt)[: len(store.prompt.tokens) // self._names.chunk]
            remaining_time("contains", deadline)
            stored = self._client.contains(keys) if keys else 0
            for begin in range(stored, len(keys), _BATCH):
                chunks = range(begin, min(begin + _BATCH, len(keys)))
                with release_without_wait(
                    self._client.reserve(len(chunks), key=keys[0], timeout=remaining_time("reserve", deadline))
                ) as pages:
                    self._fill_pages(pages, [self._blocks_of_chunk(store.blocks, chunk) for chunk in chunks])
                    remaining_time("store", deadline)
                    self._client.store(keys[chunks.start : chunks.stop], pages)
                self.counts.add(stored_bytes=len(chunks) * self._page_bytes)
        except Exception as error:
            self.counts.add(failed_stores=1)
            log_outcome("its KV was not stored for other engines", store.local_id, error)
        finally:
            self._finish_read(store.local_id)

    def _fill_pages(self, pages: Any, chunk_blocks: Sequence[Sequence[int]]) -> None:
        for page, blocks in zip(pages, chunk_blocks, strict=True):
            memory = page.memory()
            self._cache.check_size(len(memory), self._chunk_blocks)
            self._cache.gather(blocks, memory)
            self.counts.add(copied_bytes=len(blocks) * self._cache.block_bytes)

    def _finish_read(self, local_id: str) -> None:
        """Record that one reader of a request's blocks is done."""
        with self._lock:
            self._reader_counts[local_id] -= 1
            if not self._reader_counts[local_id]:
                del self._reader_counts[local_id]
                self._sent_requests.add(local_id)

    def _run_load(self, load: Load, cancelled: threading.Event, started: float, deadline: float) -> None:
        chunks = 0
        error: Exception | None = None
        keys: list[str] = []
        pace, delayed = _LoadBackoff(), self._settings.delayed and not load.is_shared
        try:
            keys = self._names.chunk_keys(load.prompt)
            while chunks < len(keys) and not cancelled.is_set() and not self._closing.is_set():
                if delayed:
                    loaded, error = self._fetch_chunks(load, keys, chunks, cancelled, deadline)
                else:
                    loaded, error = self._get_chunks(load, keys, chunks, max(MIN_TIMEOUT, deadline - time.monotonic()))
                chunks += loaded
                if (delayed and loaded) or not self._should_continue(
                    load, error, pace.next_pause(loaded), deadline, cancelled
                ):
                    break
        except Exception as raised:
            error = raised
        finally:
            self._finish_load(load, chunks, len(keys), cancelled.is_set(), error, time.monotonic() - started)
            # Chunks that arrive later are not needed.
            if not load.is_shared and (cancelled.is_set() or not keys or chunks < len(keys)):
                self._end_notifier.abandon_request(load.request, load.prompt.tenant)

    def _should_continue(
        self, load: Load, shortfall: Error | None, pause: float, deadline: float, cancelled: threading.Event
    ) -> bool:
        """Report whether the load continues, after a pause if its source is busy."""
        remaining = deadline - time.monotonic()
        if not load.is_shared:
            return remaining > 0 and (shortfall is None or shortfall.code == Code.NOT_FOUND)
        if shortfall is None or shortfall.code != Code.TOO_MANY:
            return False
        return remaining > _FIRST_PAUSE and not cancelled.wait(min(pause, remaining / 2))

    def _get_chunks(self, load: Load, keys: list[str], begin: int, remaining: float) -> tuple[int, Error | None]:
        """Get chunks from an index on, and copy them; return how many came, and why not all of them.

        Even if the agent is stopped, the call does not exceed the remaining time.
        """
        if load.is_shared:
            pages = self._client.shared_get(keys[begin:], request=load.request, timeout=remaining)
        else:
            timeout = min(remaining / 2, _GET_SLICE)
            pages = self._client.get(
                keys[begin:],
                request=load.request,
                layered=self._layers_per_chunk > 0,
                timeout=timeout,
                reply_margin=max(MIN_TIMEOUT, min(_GET_MARGIN, remaining - timeout)),
                trace=load.trace,
            )
        with release_without_wait(pages):
            memories = [page.memory() for page in pages]
            pages_per_chunk = max(1, self._layers_per_chunk)
            for place in range(0, len(memories), pages_per_chunk):
                self._copy_chunk(load, begin + place // pages_per_chunk, memories[place : place + pages_per_chunk])
            if memories:
                pages.check_valid("get")  # If the handle became void, the copied bytes may be wrong.
            return len(memories) // pages_per_chunk, pages.shortfall

    def _fetch_chunks(
        self, load: Load, keys: list[str], begin: int, cancelled: threading.Event, deadline: float
    ) -> tuple[int, Error | None]:
        """Read chunks that are at their sender, as _get_chunks does.

        Waiting for chunks and reading them is one call, which would be interrupted while it reads if it were sliced. So
        it is aborted instead when it is not needed.
        """

        def is_cancelled() -> bool:
            return cancelled.is_set() or self._closing.is_set()

        def still_wanted() -> bool:
            return not is_cancelled()

        def scatter(first: int, chunks: list[Bytes]) -> None:
            if is_cancelled():
                raise make_error("fetch", Code.CANCELLED)
            for place, chunk in enumerate(chunks, begin + first):
                self._copy_chunk(load, place, [chunk])

        def fetch_keys(requested: list[str]) -> Prefix:
            remaining = remaining_time("fetch", deadline)
            reply_margin = min(
                _FETCH_MARGIN, remaining / 4
            )  # For the reply, so that the call does not exceed the remaining time even if the agent is stopped.
            return self._client.fetch(
                requested,
                scatter,
                request=load.request,
                timeout=remaining - reply_margin,
                still_wanted=still_wanted,
                reply_margin=reply_margin,
                trace=load.trace,
            )

        prefix = fetch_keys(keys[begin:])
        # Chunks that arrived before the sender's notice can still be read.
        sender_ended = prefix.shortfall is not None and prefix.shortfall.code in (Code.SENDER_FAILED, Code.NOT_SENT)
        if sender_ended and not prefix.count and (available := self._client.contains(keys[begin:])):
            prefix = fetch_keys(keys[begin : begin + available])
        return prefix.count, prefix.shortfall

    def _copy_chunk(self, load: Load, chunk: int, pages: list[Bytes]) -> None:
        """Copy a chunk, from one page or from one page for each layer, to its blocks that must be filled."""
        begin = chunk * self._chunk_blocks
        prompt_blocks = -(-len(load.prompt.tokens) // self._block_tokens)
        count = min(self._chunk_blocks, prompt_blocks - begin)
        skip = max(0, load.first_block - begin)
        offset = begin + skip - load.first_block
        blocks = load.blocks[offset : offset + count - skip] if skip < count else ()
        for layer, page in enumerate(pages):
            if self._layers_per_chunk:
                self._cache.check_size(len(page), count, self._cache.layer_bytes)
                self._cache.scatter_layer(layer, page, skip, blocks)
            else:
                self._cache.check_size(len(page), count)
                self._cache.scatter(page, skip, blocks)

    def _finish_load(
        self, load: Load, chunks: int, expected: int, cancelled: bool, error: Exception | None, seconds: float
    ) -> None:
        loaded = chunks * self._chunk_blocks - load.first_block
        bad = () if expected and chunks >= expected else load.blocks[max(0, loaded) :]
        filled = (len(load.blocks) - len(bad)) * self._cache.block_bytes
        self.counts.add(copied_bytes=filled)
        with self._lock:
            if not cancelled:
                self._bad_blocks.update(bad)
            self._received_requests.add(load.local_id)
        if cancelled:
            self.counts.add(cancelled_loads=1)
        elif bad:
            self.counts.add(failed_loads=1, loaded_bytes=filled, failed_load_seconds=seconds)
            log_outcome(
                f"{chunks} of {expected} chunks arrived in {seconds:.1f} s; the rest is computed", load.local_id, error
            )
        else:
            self.counts.add(loaded_requests=1, loaded_bytes=filled, load_seconds=seconds)

    def _blocks_of_chunk(self, blocks: Sequence[int], chunk: int) -> Sequence[int]:
        return blocks[chunk * self._chunk_blocks : (chunk + 1) * self._chunk_blocks]


class _LoadBackoff:
    """The pause of a load that is refused because its source is busy; it doubles each time."""

    def __init__(self) -> None:
        self._pause = _FIRST_PAUSE

    def next_pause(self, loaded: int) -> float:
        """Return the next pause. If something was loaded, the source has room again."""
        pause = _FIRST_PAUSE if loaded else self._pause
        self._pause = min(_MAX_PAUSE, 2 * pause)
        return pause


class _CallOnce:
    """Calls a function at its first call."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    @property
    def is_done(self) -> bool:
        """Whether the function was called."""
        return self._action is None

    def __call__(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()
