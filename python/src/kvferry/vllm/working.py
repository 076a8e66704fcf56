"""The worker's side: copies between blocks and pages, and the calls of the agent, on threads of their own.

What the engine calls here returns at once. Nothing that happens on a thread is ever raised in the engine: a load that
does not end well is reported by its blocks, which vLLM then computes, and a save that does not is a miss at the decode
engine.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kvferry.codes import Code
from kvferry.errors import Error, error_of
from kvferry.handles import briefly
from kvferry.vllm.agents import SOON, left, peer_of, say
from kvferry.vllm.counts import Counts
from kvferry.vllm.ends import Ends
from kvferry.vllm.layers import Layers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvferry.values import Peer, Prefix
    from kvferry.vllm.agents import Client
    from kvferry.vllm.cache import Bytes, Cache
    from kvferry.vllm.keys import Names
    from kvferry.vllm.settings import Settings
    from kvferry.vllm.words import Load, Save, Store, Work

# So long a get waits before it is looked whether anybody still needs what it waits for, in seconds.
_LOOK = 0.5
# How much longer than that its agent may take to answer.
_BOUND, _SPARE = 2.0, 0.25
# How long a load waits at first that is turned away because its source has enough others, and at most, in seconds.
_CROWDED, _CROWDED_MOST = 0.02, 1.0
# Requests that go layer by layer and have a thread: as many as an agent takes (layerwise.runs). One that waits, for
# pages here or for room at its peer, must hold up none that has what others wait for.
_LAYERED = 256
# Chunks that are reserved and put at once: others need pages too.
_BATCH = 16


class Working:
    """See the module."""

    def __init__(
        self, client: Client, cache: Cache, names: Names, chunk_blocks: int, settings: Settings, layers: int = 0
    ) -> None:
        """Serve one rank. A chunk has so many blocks, and a page for each of so many layers; 0: one page."""
        self._client = client
        self._cache = cache
        self._names = names
        self._chunk_blocks = chunk_blocks
        self._block_tokens = names.chunk // chunk_blocks
        self._page_bytes = chunk_blocks * cache.block_bytes
        self._settings = settings
        self.counts = Counts()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        # How many still have to read a request's blocks; requests whose blocks nobody reads, and nobody was told yet.
        self._unread: dict[str, int] = {}
        self._sent: set[str] = set()
        self._received: set[str] = set()
        self._bad: set[int] = set()
        self._cancelled: dict[str, threading.Event] = {}
        self._saving = ThreadPoolExecutor(settings.saves, "kvferry-save")
        self._loading = ThreadPoolExecutor(settings.loads, "kvferry-load")
        # Pages of a chunk.
        self._layers = layers
        self._ends = Ends(client, names.rank, settings.save_patience)
        self._pushing: Layers | None = None
        self._layering = ThreadPoolExecutor(_LAYERED, "kvferry-layers")  # It has no threads before they are needed.
        if layers:
            self._pushing = Layers(
                client,
                cache,
                names,
                chunk_blocks,
                settings.save_patience,
                self.counts,
                self._layering,
                self._read,
                self._ends,
            )
        # The work of this step: what was announced of it, and what was begun.
        self._announced: Work | None = None
        self._begun: Work | None = None

    # ---- for the engine, once per step, in this order; begin may come before the forward pass or after it ----

    @property
    def away(self) -> bool:
        """Whether the agent is away. What is asked of it then is done if it comes back soon."""
        return not self._client.attached

    def before(self, work: Work) -> None:
        """Know what a step is about to compute, and whose blocks it writes. Calls after the first one do nothing."""
        if self._announced is work:
            return
        self._announced = work
        if self._pushing is not None:
            self._pushing.before(work)

    def computed(self, layer: str) -> None:
        """Know that the step has computed a layer."""
        if self._pushing is not None:
            self._pushing.computed(layer)

    def begin(self, work: Work) -> None:
        """Do on threads what a step asks for that needs nothing of its forward pass.

        Blocks to be saved were computed by earlier steps, and no request of this step reads blocks to be loaded.
        """
        self.before(work)
        if self._begun is work:
            return
        self._begun = work
        if work.saves or work.stores or work.loads:
            self._cache.mark()
        now = time.monotonic()
        with self._lock:
            for name in (*work.ends, *(save.ours for save in work.saves), *(store.ours for store in work.stores)):
                self._unread[name] = self._unread.get(name, 0) + 1
        for save in work.saves:
            self._saving.submit(self._save, save, now + self._settings.save_patience)
        for store in work.stores:
            self._saving.submit(self._store, store, now + self._settings.save_patience)
        for load in work.loads:
            unneeded = self._cancelled[load.ours] = threading.Event()
            self._loading.submit(self._load, load, unneeded, now, now + self._settings.load_patience)
        for name in work.cancels:
            if (unneeded_too := self._cancelled.get(name)) is not None:
                unneeded_too.set()
        for gone in work.gone:
            if gone.failed:
                self.counts.add(failed_saves=1)
            self._ends.failed(gone.request, gone.receiver, None, gone.reason)
        for given_up in work.abandons:
            self._ends.abandon(given_up.request, given_up.reason)

    def end(self, work: Work, failed: bool = False) -> None:
        """Know that the forward pass of a step is over: all layers are computed, unless it failed."""
        self.begin(work)
        self._announced = self._begun = None
        if self._pushing is None:
            return
        if failed:
            self._pushing.fail_step()
        self._pushing.after(work)

    def results(self) -> tuple[set[str], set[str]]:
        """Give the requests whose blocks were read, and those whose blocks are written, or never will be; once each."""
        with self._lock:
            sent, self._sent = self._sent, set()
            received, self._received = self._received, set()
        for name in received:
            self._cancelled.pop(name, None)
        return sent, received

    def bad_blocks(self) -> set[int]:
        """Give the blocks of those requests that were not written; once each."""
        with self._lock:
            bad, self._bad = self._bad, set()
        return bad

    def close(self) -> None:
        """End. Saves that have begun may end, within their patience; loads end as soon as they look."""
        self._stopping.set()
        if self._pushing is not None:
            self._pushing.close()
        self._loading.shutdown(wait=True, cancel_futures=True)
        self._layering.shutdown(wait=True)
        self._saving.shutdown(wait=True)
        self._ends.close()
        self._client.close()

    # ---- on threads ----

    def _save(self, save: Save, until: float) -> None:
        size, reads = 0, _Once(lambda: self._read(save.ours))
        try:
            keys = self._names.keys(save.prompt)
            peer = peer_of(save.receiver, self._names.rank)
            for begin in range(0, len(keys), _BATCH):
                chunks = range(begin, min(begin + _BATCH, len(keys)))
                size += self._put(save, peer, keys, chunks, reads if chunks.stop == len(keys) else None, until)
            self._ends.sent(save.request, save.receiver)
            self.counts.add(saved_requests=1, saved_bytes=size)
        except Exception as error:
            self.counts.add(failed_saves=1)
            say("its KV did not get to the decode engine", save.ours, error)
            reads()
            # With an agent that is lost at the very end all of it may be there: then it is had all the same.
            self._ends.failed(save.request, save.receiver, error)
        finally:
            reads()

    def _put(self, save: Save, peer: Peer, keys: list[str], chunks: range, last: _Once | None, until: float) -> int:
        """Copy and push some chunks; give their bytes. Who puts the last ones, of which one may be a part, says so."""
        part = [self._blocks_of(save.blocks, chunk) for chunk in chunks]
        with briefly(self._client.reserve(len(chunks), patience=left("reserve", until))) as pages:
            self._gather(pages, part)
            pages.look("put")  # Before the blocks are given up: what is void is certainly not there.
            patience = left("put", until)
            if last is not None:
                last()
            tokens = len(part[-1]) * self._block_tokens if len(part[-1]) < self._chunk_blocks else 0
            self._client.put(
                peer=peer,
                keys=keys[chunks.start : chunks.stop],
                pages=pages,
                request=save.request,
                tokens=tokens,
                last=last is not None,
                patience=patience,
            )
        return sum(map(len, part)) * self._cache.block_bytes

    def _store(self, store: Store, until: float) -> None:
        """Give the cache those whole chunks that it has not."""
        try:
            keys = self._names.keys(store.prompt)[: len(store.prompt.tokens) // self._names.chunk]
            left("contains", until)
            here = self._client.contains(keys) if keys else 0
            for begin in range(here, len(keys), _BATCH):
                chunks = range(begin, min(begin + _BATCH, len(keys)))
                with briefly(self._client.reserve(len(chunks), patience=left("reserve", until))) as pages:
                    self._gather(pages, [self._blocks_of(store.blocks, chunk) for chunk in chunks])
                    left("store", until)
                    self._client.store(keys[chunks.start : chunks.stop], pages)
                self.counts.add(stored_bytes=len(chunks) * self._page_bytes)
        except Exception as error:
            self.counts.add(failed_stores=1)
            say("its KV was not stored for others", store.ours, error)
        finally:
            self._read(store.ours)

    def _gather(self, pages: Any, part: Sequence[Sequence[int]]) -> None:
        for page, blocks in zip(pages, part, strict=True):
            whole = page.memory()
            self._cache.fits(len(whole), self._chunk_blocks)
            self._cache.gather(blocks, whole)

    def _read(self, ours: str) -> None:
        """Say that one of those who read the blocks of a request does so no more."""
        with self._lock:
            self._unread[ours] -= 1
            if not self._unread[ours]:
                del self._unread[ours]
                self._sent.add(ours)

    def _load(self, load: Load, unneeded: threading.Event, begun: float, until: float) -> None:
        chunks = 0
        error: Exception | None = None
        keys: list[str] = []
        pace, delayed = _Pace(), self._settings.delayed and not load.shared
        try:
            keys = self._names.keys(load.prompt)
            while chunks < len(keys) and not unneeded.is_set() and not self._stopping.is_set():
                if delayed:
                    came, error = self._fetch(load, keys, chunks, unneeded, until)
                else:
                    came, error = self._come(load, keys, chunks, max(SOON, until - time.monotonic()))
                chunks += came
                if (delayed and came) or not self._goes_on(load, error, pace.after(came), until, unneeded):
                    break
        except Exception as raised:
            error = raised
        finally:
            self._loaded(load, chunks, len(keys), unneeded.is_set(), error, time.monotonic() - begun)
            # What comes later waits for nobody.
            if not load.shared and (unneeded.is_set() or not keys or chunks < len(keys)):
                self._ends.abandon(load.request)

    def _goes_on(self, load: Load, short: Error | None, pause: float, until: float, unneeded: threading.Event) -> bool:
        """Say whether more is to be asked for, having waited where others are to be served first."""
        rest = until - time.monotonic()
        if not load.shared:
            return rest > 0 and (short is None or short.code == Code.NOT_FOUND)
        if short is None or short.code != Code.TOO_MANY:
            return False
        return rest > _CROWDED and not unneeded.wait(min(pause, rest / 2))

    def _come(self, load: Load, keys: list[str], begin: int, rest: float) -> tuple[int, Error | None]:
        """Have chunks from a place on, and copy what comes; say how many, and why not all, if they are not.

        Be the agent stopped, no more of the rest is waited for than that.
        """
        if load.shared:
            pages = self._client.shared_get(keys[begin:], request=load.request, patience=rest)
        else:
            patience = min(rest / 2, _LOOK)
            pages = self._client.get(
                keys[begin:],
                request=load.request,
                layered=self._layers > 0,
                patience=patience,
                bound=max(SOON, min(_BOUND, rest - patience)),
            )
        with briefly(pages):
            each = [page.memory() for page in pages]
            of_chunk = max(1, self._layers)
            for place in range(0, len(each), of_chunk):
                self._fill(load, begin + place // of_chunk, each[place : place + of_chunk])
            if each:
                pages.look("get")  # What was void meanwhile may have been others' bytes.
            return len(each) // of_chunk, pages.short

    def _fetch(
        self, load: Load, keys: list[str], begin: int, unneeded: threading.Event, until: float
    ) -> tuple[int, Error | None]:
        """Have chunks that are at their sender, as _come does.

        To wait for them and to read them is one call: in slices, it would be cut off while it reads. So it is aborted.
        """

        def over() -> bool:
            return unneeded.is_set() or self._stopping.is_set()

        def wanted() -> bool:
            return not over()

        def take(first: int, chunks: list[Bytes]) -> None:
            if over():
                raise error_of("fetch", Code.CANCELLED)
            for place, chunk in enumerate(chunks, begin + first):
                self._fill(load, place, [chunk])

        def fetched(wanted_keys: list[str]) -> Prefix:
            rest = left("fetch", until)
            bound = min(_SPARE, rest / 4)  # For its answer: no more than the rest is waited, be the agent stopped.
            return self._client.fetch(
                wanted_keys, take, request=load.request, patience=rest - bound, wanted=wanted, bound=bound
            )

        prefix = fetched(keys[begin:])
        # What came before its sender said that no more does is still to be had.
        told = prefix.short is not None and prefix.short.code in (Code.SENDER_FAILED, Code.NOT_SENT)
        if told and not prefix.count and (there := self._client.contains(keys[begin:])):
            prefix = fetched(keys[begin : begin + there])
        return prefix.count, prefix.short

    def _fill(self, load: Load, chunk: int, pages: list[Bytes]) -> None:
        """Copy a chunk, of one page or of one for each layer, to those of its blocks that are to be filled."""
        begin = chunk * self._chunk_blocks
        all_ = -(-len(load.prompt.tokens) // self._block_tokens)
        count = min(self._chunk_blocks, all_ - begin)
        skip = max(0, load.first - begin)
        at = begin + skip - load.first
        blocks = load.blocks[at : at + count - skip] if skip < count else ()
        for layer, page in enumerate(pages):
            if self._layers:
                self._cache.fits(len(page), count, self._cache.layer_bytes)
                self._cache.scatter_layer(layer, page, skip, blocks)
            else:
                self._cache.fits(len(page), count)
                self._cache.scatter(page, skip, blocks)

    def _loaded(
        self, load: Load, chunks: int, wanted: int, unneeded: bool, error: Exception | None, seconds: float
    ) -> None:
        here = chunks * self._chunk_blocks - load.first
        bad = () if wanted and chunks >= wanted else load.blocks[max(0, here) :]
        filled = (len(load.blocks) - len(bad)) * self._cache.block_bytes
        with self._lock:
            if not unneeded:
                self._bad.update(bad)
            self._received.add(load.ours)
        if unneeded:
            self.counts.add(cancelled_loads=1)
        elif bad:
            self.counts.add(failed_loads=1, loaded_bytes=filled, failed_load_seconds=seconds)
            say(f"{chunks} of {wanted} chunks came in {seconds:.1f} s; the rest is computed", load.ours, error)
        else:
            self.counts.add(loaded_requests=1, loaded_bytes=filled, load_seconds=seconds)

    def _blocks_of(self, blocks: Sequence[int], chunk: int) -> Sequence[int]:
        return blocks[chunk * self._chunk_blocks : (chunk + 1) * self._chunk_blocks]


class _Pace:
    """How long a load waits that is turned away because its source has enough others: longer each time."""

    def __init__(self) -> None:
        self._pause = _CROWDED

    def after(self, came: int) -> float:
        """Give the next pause. Where something came, the source has room again."""
        pause = _CROWDED if came else self._pause
        self._pause = min(_CROWDED_MOST, 2 * pause)
        return pause


class _Once:
    """Calls something the first time that it is called."""

    def __init__(self, what: Callable[[], None]) -> None:
        self._what: Callable[[], None] | None = what

    @property
    def done(self) -> bool:
        """Whether it was called."""
        return self._what is None

    def __call__(self) -> None:
        what, self._what = self._what, None
        if what is not None:
            what()
