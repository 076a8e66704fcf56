"""The worker's side: copies between blocks and pages, and the calls of the agent, on threads of their own.

What the engine calls here returns at once. Nothing that happens on a thread is ever raised in the engine: a load that
does not end well is reported by its blocks, which vLLM then computes, and a save that does not is a miss at the decode
engine.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from kvferry.codes import Code
from kvferry.errors import Error, wrong
from kvferry.values import Peer
from kvferry.vllm.counts import Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvferry.vllm.cache import Bytes, Cache
    from kvferry.vllm.keys import Names
    from kvferry.vllm.settings import Settings
    from kvferry.vllm.words import Load, Save, Store, Work

    Scatter = Callable[[int, list[Bytes]], None]

log = logging.getLogger("kvferry.vllm")

# So long a get waits before it is looked whether anybody still needs what it waits for, in seconds.
_LOOK = 0.5
# What a call is given whose time is over, in seconds.
_SOON = 0.001
# Chunks that are reserved and put at once: others need pages too.
_BATCH = 16


class Client(Protocol):
    """What is used of kvferry.Client."""

    def reserve(self, count: int, *, patience: float | None = None) -> Any:
        """See kvferry.Client, as for the others."""

    def put(
        self,
        *,
        peer: Peer,
        keys: Sequence[str],
        pages: Any,
        request: str = "",
        first: int = 0,
        tokens: int = 0,
        last: bool = False,
        patience: float | None = None,
    ) -> Any:
        """Push chunks."""

    def get(self, keys: Sequence[str], *, request: str = "", layered: bool = False, patience: float = 0.0) -> Any:
        """Wait for chunks."""

    def fetch(self, keys: Sequence[str], scatter: Scatter, *, request: str = "", patience: float | None = None) -> Any:
        """Have chunks handed over."""

    def abandon(self, request: str) -> None:
        """Give up what is kept."""

    def contains(self, keys: Sequence[str]) -> int:
        """Count the chunks that are here."""

    def store(self, keys: Sequence[str], pages: Any, first: int = 0) -> None:
        """Give pages to the cache."""

    def shared_get(self, keys: Sequence[str], *, request: str, patience: float | None = None) -> Any:
        """Have chunks that are here, or that peers have."""

    def close(self) -> None:
        """Detach."""


class Working:
    """See the module."""

    def __init__(self, client: Client, cache: Cache, names: Names, chunk_blocks: int, settings: Settings) -> None:
        """Serve one rank. A page has so many blocks."""
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
        # Saves whose blocks may still be read; those whose blocks may not any more, and nobody was told yet.
        self._unread: set[str] = set()
        self._sent: set[str] = set()
        self._received: set[str] = set()
        self._bad: set[int] = set()
        self._cancelled: dict[str, threading.Event] = {}
        self._saving = ThreadPoolExecutor(settings.saves, "kvferry-save")
        self._loading = ThreadPoolExecutor(settings.loads, "kvferry-load")

    # ---- for the engine ----

    def begin(self, work: Work) -> None:
        """Do what a step asks for, on threads."""
        now = time.monotonic()
        for save in work.saves:
            with self._lock:
                self._unread.add(save.ours)
            self._saving.submit(self._save, save, now + self._settings.save_patience)
        for store in work.stores:
            with self._lock:
                self._unread.add(store.ours)
            self._saving.submit(self._store, store, now + self._settings.save_patience)
        for load in work.loads:
            unneeded = self._cancelled[load.ours] = threading.Event()
            self._loading.submit(self._load, load, unneeded, now, now + self._settings.load_patience)
        for name in work.cancels:
            if (unneeded_too := self._cancelled.get(name)) is not None:
                unneeded_too.set()
        for request in work.abandons:
            self._loading.submit(self._abandon, request)

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
        self._loading.shutdown(wait=True, cancel_futures=True)
        self._saving.shutdown(wait=True)
        self._client.close()

    # ---- on threads ----

    def _save(self, save: Save, until: float) -> None:
        size = 0
        try:
            keys = self._names.keys(save.prompt)
            peer = _peer(save, self._names.rank)
            for begin in range(0, len(keys), _BATCH):
                last = begin + _BATCH >= len(keys)
                size += self._put(save, peer, keys, range(begin, min(begin + _BATCH, len(keys))), last, until)
            self.counts.add(saved_requests=1, saved_bytes=size)
        except Exception as error:
            self.counts.add(failed_saves=1)
            _say("its KV did not get to the decode engine", save.ours, error)
        finally:
            self._read(save.ours)

    def _put(self, save: Save, peer: Peer, keys: list[str], chunks: range, last: bool, until: float) -> int:
        """Copy and push some chunks; give their bytes. The last of all of them may be a part."""
        part = [self._blocks_of(save.blocks, chunk) for chunk in chunks]
        with self._client.reserve(len(chunks), patience=_left(until)) as pages:
            self._gather(pages, part)
            if last:
                self._read(save.ours)
            tokens = len(part[-1]) * self._block_tokens if len(part[-1]) < self._chunk_blocks else 0
            self._client.put(
                peer=peer,
                keys=keys[chunks.start : chunks.stop],
                pages=pages,
                request=save.request,
                tokens=tokens,
                last=last,
                patience=_left(until),
            )
            pages.release(0)  # Who reads them may take its time.
        return sum(map(len, part)) * self._cache.block_bytes

    def _store(self, store: Store, until: float) -> None:
        """Give the cache those whole chunks that it has not."""
        try:
            keys = self._names.keys(store.prompt)[: len(store.prompt.tokens) // self._names.chunk]
            here = self._client.contains(keys) if keys else 0
            for begin in range(here, len(keys), _BATCH):
                chunks = range(begin, min(begin + _BATCH, len(keys)))
                with self._client.reserve(len(chunks), patience=_left(until)) as pages:
                    self._gather(pages, [self._blocks_of(store.blocks, chunk) for chunk in chunks])
                    self._client.store(keys[chunks.start : chunks.stop], pages)
                self.counts.add(stored_bytes=len(chunks) * self._page_bytes)
        except Exception as error:
            self.counts.add(failed_stores=1)
            _say("its KV was not stored for others", store.ours, error)
        finally:
            self._read(store.ours)

    def _gather(self, pages: Any, part: Sequence[Sequence[int]]) -> None:
        for page, blocks in zip(pages, part, strict=True):
            whole = page.array()
            self._fits(len(whole), self._chunk_blocks)
            self._cache.gather(blocks, whole)

    def _read(self, ours: str) -> None:
        """Say that the blocks of a request may be written again; a second time means nothing."""
        with self._lock:
            if ours in self._unread:
                self._unread.discard(ours)
                self._sent.add(ours)

    def _load(self, load: Load, unneeded: threading.Event, begun: float, until: float) -> None:
        chunks = 0
        error: Exception | None = None
        keys: list[str] = []
        try:
            keys = self._names.keys(load.prompt)
            while chunks < len(keys) and not unneeded.is_set() and not self._stopping.is_set():
                left = until - time.monotonic()
                came, short = self._come(load, keys, chunks, max(_SOON, left))
                chunks, error = chunks + came, short
                if left <= _LOOK or load.shared or (short is not None and short.code != Code.NOT_FOUND):
                    break
        except Exception as raised:
            error = raised
        finally:
            self._loaded(load, chunks, len(keys), unneeded.is_set(), error, time.monotonic() - begun)

    def _come(self, load: Load, keys: list[str], begin: int, left: float) -> tuple[int, Error | None]:
        """Have chunks from a place on, and copy what comes; say how many, and why not all, if they are not."""
        if self._settings.delayed and not load.shared:

            def take(first: int, chunks: list[Bytes]) -> None:
                for place, chunk in enumerate(chunks, begin + first):
                    self._fill(load, place, chunk)

            prefix = self._client.fetch(keys[begin:], take, request=load.request, patience=left)
            return prefix.count, prefix.short
        if load.shared:
            pages = self._client.shared_get(keys[begin:], request=load.request, patience=left)
        else:
            pages = self._client.get(keys[begin:], request=load.request, patience=min(left, _LOOK))
        with pages:
            for place, page in enumerate(pages, begin):
                self._fill(load, place, page.array())
            return len(pages), pages.short

    def _fill(self, load: Load, chunk: int, whole: Bytes) -> None:
        """Copy a chunk to those of its blocks that are to be filled."""
        begin = chunk * self._chunk_blocks
        all_ = -(-len(load.prompt.tokens) // self._block_tokens)
        count = min(self._chunk_blocks, all_ - begin)
        self._fits(len(whole), count)
        skip = max(0, load.first - begin)
        if skip < count:
            at = begin + skip - load.first
            self._cache.scatter(whole, skip, load.blocks[at : at + count - skip])

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
            self.counts.add(failed_loads=1, loaded_bytes=filled, load_seconds=seconds)
            _say(f"{chunks} of {wanted} chunks came in {seconds:.1f} s; the rest is computed", load.ours, error)
        else:
            self.counts.add(loaded_requests=1, loaded_bytes=filled, load_seconds=seconds)
        if not load.shared and (not wanted or chunks < wanted):  # What comes later waits for nobody.
            self._abandon(load.request)

    def _abandon(self, request: str) -> None:
        try:
            self._client.abandon(request)
        except Exception as error:
            log.debug("request %s could not be abandoned: %s", request, error)

    def _blocks_of(self, blocks: Sequence[int], chunk: int) -> Sequence[int]:
        return blocks[chunk * self._chunk_blocks : (chunk + 1) * self._chunk_blocks]

    def _fits(self, size: int, blocks: int) -> None:
        """Refuse pages of an agent that was started anew with another file, and chunks that somebody else made."""
        wanted = blocks * self._cache.block_bytes
        if size != wanted:
            raise wrong("copy", "page", f"{size} bytes", f"{wanted}", "start the agent with the file that it had")


def _peer(save: Save, rank: int) -> Peer:
    to = save.receiver
    if rank >= len(to.init_ports):
        raise wrong(
            "put",
            "disagg_spec.receiver_init_port",
            f"{len(to.init_ports)} ports",
            f"one for rank {rank}",
            "give each rank one",
        )
    return Peer(to.host, to.init_ports[rank], to.alloc_ports[rank])


def _left(until: float) -> float:
    """Give the time that is left; what is too late is asked for all the same, and ends at once."""
    return max(_SOON, until - time.monotonic())


def _say(what: str, request: str, error: Exception | None) -> None:
    """Log how a request fared: a defect of ours with its trace, what agents and peers do in one line."""
    if error is None or isinstance(error, Error):
        log.warning("request %s: %s%s", request, what, f": {error}" if error else "")
    else:
        log.error("BUG: request %s: %s", request, what, exc_info=error)
