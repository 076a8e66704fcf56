"""The worker's side of prompts that go layer by layer: each layer is copied and pushed while the next is computed.

The engine's thread only notes what is computed. Copies and calls run on threads, for one request one after the other.
Blocks are not kept for that while a prompt is computed. A copy counts only if its blocks were still the request's
after it: vLLM says that others have them before anybody writes them.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from kvferry.vllm.agents import left, peer_of, say

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from kvferry.vllm.agents import Client
    from kvferry.vllm.cache import Cache
    from kvferry.vllm.counts import Counts
    from kvferry.vllm.ends import Ends
    from kvferry.vllm.keys import Names
    from kvferry.vllm.words import Part, Push, Work


@dataclass
class _Copy:
    """A part of a run, in one epoch."""

    part: Part
    epoch: int
    # Layers that were not noted yet, and those that were not saved.
    unsaid: set[int]
    unsaved: int
    pages: Any = None


@dataclass
class _Run:
    """A request."""

    push: Push
    # When all that is computed of it so far is to be at the peer. No call is made later than that.
    until: float
    # Grows when what was computed is lost: copies of another epoch mean nothing.
    epoch: int = 0
    # The last part was given, in this epoch; all of it was copied, or never will be; vLLM keeps the blocks for that.
    last: bool = False
    read: bool = False
    ended: bool = False
    # What is to be done next, by the one thread that works for it.
    queue: deque[Callable[[], None]] = field(default_factory=deque)
    busy: bool = False
    # Of that thread alone.
    prefill: Any = None
    over: bool = False
    copies: list[_Copy] = field(default_factory=list)
    bytes: int = 0


class Layers:
    """Serves one rank. What the engine calls here returns at once."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        names: Names,
        chunk_blocks: int,
        patience: float,
        counts: Counts,
        threads: Executor,
        read: Callable[[str], None],
        ends: Ends,
    ) -> None:
        """Work on these threads. Read is told of each request that has ended, when its blocks are not needed.

        Who waits for what never comes of a request is told by ends.
        """
        self._client, self._cache, self._names, self._counts = client, cache, names, counts
        self._ends = ends
        self._chunk_blocks = chunk_blocks
        self._patience = patience
        self._threads, self._told = threads, read
        self._lock = Lock()
        self._runs: dict[str, _Run] = {}
        # What this step computes.
        self._step: list[tuple[_Run, _Copy]] = []

    # ---- for the engine, in the order of a step ----

    def before(self, work: Work) -> None:
        """Know what a step computes, and whose blocks others may write from now on."""
        self.fail_step()  # A step that never came to its end.
        until = time.monotonic() + self._patience
        for name in work.preempts:
            if (lost := self._runs.get(name)) is not None and self._lost(lost):
                lost.until = until
                self._queue(lost, partial(self._again, lost))
        for name in work.drops:
            if (dropped := self._runs.pop(name, None)) is not None and self._lost(dropped):
                self._queue(dropped, partial(self._over, dropped))
        for push in work.pushes:
            self._runs[push.ours] = _Run(push, until)
        for part in work.parts:
            run = self._runs.get(part.ours)
            if run is not None and not run.read:
                run.last = part.last
                copy = _Copy(part, run.epoch, set(range(self._cache.layers)), self._cache.layers)
                self._step.append((run, copy))

    def computed(self, name: str) -> None:
        """Know that the step has computed a layer."""
        if self._step and (layer := self._cache.places.get(name)) is not None:
            self._cache.mark()
            for run, copy in self._step:
                self._layer(run, copy, layer)

    def fail_step(self) -> None:
        """Give up the requests of a step that ended before it had computed all layers: their blocks have anything."""
        step, self._step = self._step, []
        for run, copy in step:
            if copy.unsaid and self._runs.pop(run.push.ours, None) is not None and self._lost(run):
                self._queue(run, partial(self._over, run))

    def after(self, work: Work) -> None:
        """Know that the step has computed all layers, whatever was said of each; and which requests have ended."""
        for name in self._cache.places:
            self.computed(name)
        self._step = []
        for name in work.ends:
            run = self._runs.get(name)
            if run is None:
                self._told(name)
                continue
            with self._lock:
                run.ended, whole = True, run.last or run.read
                read = run.read
            if read:
                self._forget(run)
            elif not whole:  # Its prompt was never computed to its end.
                self._queue(run, partial(self._over, run))

    def close(self) -> None:
        """Give up what is half done."""
        for run in list(self._runs.values()):
            if self._lost(run):
                self._queue(run, partial(self._over, run))

    # ---- within ----

    def _layer(self, run: _Run, copy: _Copy, layer: int) -> None:
        if layer in copy.unsaid:
            copy.unsaid.discard(layer)
            run.until = time.monotonic() + self._patience
            self._queue(run, partial(self._save, run, copy, layer))

    def _lost(self, run: _Run) -> bool:
        """Know that a run's blocks are others' from now on; say whether that matters to it."""
        with self._lock:
            if run.read:
                return False
            run.epoch, run.last = run.epoch + 1, False
            return True

    def _queue(self, run: _Run, what: Callable[[], None]) -> None:
        with self._lock:
            run.queue.append(what)
            if run.busy:
                return
            run.busy = True
        self._threads.submit(self._work, run)

    def _work(self, run: _Run) -> None:
        while True:
            with self._lock:
                if not run.queue:
                    run.busy = False
                    return
                what = run.queue.popleft()
            try:
                what()
            except Exception as error:
                self._failed(run, error)

    def _save(self, run: _Run, copy: _Copy, layer: int) -> None:
        """Copy and push one layer of a part; with the last one of all, finish."""
        if run.over or copy.epoch != run.epoch:
            return
        count = self._cache.layers
        if run.prefill is None:
            left("begin_prefill", run.until)
            keys = self._names.keys(run.push.prompt)
            peer = peer_of(run.push.receiver, self._names.rank)
            run.prefill = self._client.begin_prefill(keys=keys, request=run.push.request, peer=peer)
        if copy.pages is None:
            chunks = -(-len(copy.part.blocks) // self._chunk_blocks)
            copy.pages = self._client.reserve(chunks * count, patience=left("reserve", run.until))
            run.copies.append(copy)
        for begin in range(0, len(copy.part.blocks), self._chunk_blocks):
            blocks = copy.part.blocks[begin : begin + self._chunk_blocks]
            page = copy.pages[begin // self._chunk_blocks * count + layer].memory()
            self._cache.fits(len(page), self._chunk_blocks, self._cache.layer_bytes)
            self._cache.gather_layer(layer, blocks, page)
            self._counts.add(copied_bytes=len(blocks) * self._cache.layer_bytes)
        copy.unsaved -= 1
        left("save_layer", run.until)
        for handle in (run.prefill, copy.pages):  # Before the blocks are given up: what is void is certainly not there.
            handle.look("save_layer")
        with self._lock:
            if copy.epoch != run.epoch:  # Somebody else's bytes may be among them.
                return
            run.read = copy.part.last and copy.unsaved == 0
        run.prefill.save_layer(layer, copy.part.tokens, copy.pages)
        run.bytes += len(copy.part.blocks) * self._cache.layer_bytes
        if run.read:
            self._finish(run)
        elif copy.unsaved == 0 and not copy.part.last:
            self._release(run)

    def _finish(self, run: _Run) -> None:
        self._forget(run)
        run.prefill.finish(patience=left("finish_prefill", run.until))
        run.over = True
        self._ends.sent(run.push.request, run.push.receiver)
        self._release(run)
        self._counts.add(saved_requests=1, saved_bytes=run.bytes)

    def _forget(self, run: _Run) -> None:
        """Say once that a run that has ended needs its blocks no more."""
        with self._lock:
            if not (run.read and run.ended) or self._runs.get(run.push.ours) is not run:
                return
            del self._runs[run.push.ours]
        self._told(run.push.ours)

    def _again(self, run: _Run) -> None:
        """Begin anew. What is whole at the peer stays there."""
        run.bytes = 0
        self._release(run)
        if run.prefill is not None and not run.over:
            left("preempt_prefill", run.until)
            run.prefill.preempt()

    def _over(self, run: _Run, error: Exception | None = None) -> None:
        """End a run of which nothing more goes, and have who waits for it told. It waits for no agent."""
        run.over = True
        prefill, run.prefill = run.prefill, None
        with self._lock:
            run.read = True
        self._forget(run)
        self._release(run)
        if prefill is not None and not prefill.released:
            prefill.drop(wait=False)
        self._ends.failed(run.push.request, run.push.receiver, error)

    def _failed(self, run: _Run, error: Exception) -> None:
        self._counts.add(failed_saves=1)
        say("its KV did not get to the decode engine", run.push.ours, error)
        # With an agent that is lost at the very end all of it may be there: then it is had all the same.
        try:
            self._over(run, error)
        except Exception as again:
            say("what was sent of it was not given up", run.push.ours, again)

    def _release(self, run: _Run) -> None:
        """Give pages back. Who reads them may take its time."""
        copies, run.copies = run.copies, []
        for copy in copies:
            if not copy.pages.released:
                copy.pages.release(0)
