"""The worker's side of layer-by-layer pushes: each layer is copied and sent while the next one is computed.

The engine's thread only records which layers are computed. Copies and calls run on threads, in order for each request.
vLLM does not keep the blocks of a prompt for the copies while the prompt is computed. A copy counts only if its blocks
still belonged to the request afterwards: vLLM reports the loss of blocks before anything overwrites them.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from kvferry.vllm.agent_client import log_outcome, peer_for_rank, remaining_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from kvferry.vllm.agent_client import Client
    from kvferry.vllm.cache import Cache
    from kvferry.vllm.chunk_names import ChunkNames
    from kvferry.vllm.counters import Counters
    from kvferry.vllm.end_notifier import EndNotifier
    from kvferry.vllm.step_work import Part, Push, Work


@dataclass
class _Copy:
    """A part of a prompt that is copied, in one epoch of its push."""

    part: Part
    epoch: int
    # Layers that the engine has not computed yet, and the number of layers that were not saved yet.
    unnoted_layers: set[int]
    unsaved_layers: int
    pages: Any = None


@dataclass
class _LayerPush:
    """The push of one request."""

    push: Push
    # When everything computed so far must be at the peer. No call starts later.
    deadline: float
    # Increases when computed blocks are lost: copies of earlier epochs are invalid.
    epoch: int = 0
    # Whether the last part was added in this epoch; whether everything was copied, or never will be; whether vLLM keeps
    # the blocks until then.
    has_last_part: bool = False
    is_copied: bool = False
    is_ended: bool = False
    # Tasks, which one thread at a time runs.
    tasks: deque[Callable[[], None]] = field(default_factory=deque)
    is_running: bool = False
    # Used only by that thread.
    prefill: Any = None
    first_key: str = ""
    is_finished: bool = False
    copies: list[_Copy] = field(default_factory=list)
    bytes: int = 0


class LayerPusher:
    """Pushes the layers of one rank. The methods for the engine return at once."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        names: ChunkNames,
        chunk_blocks: int,
        timeout: float,
        counts: Counters,
        threads: Executor,
        on_copied: Callable[[str], None],
        end_notifier: EndNotifier,
    ) -> None:
        """Create a pusher.

        Args:
            client: the agent.
            cache: the engine's cache.
            names: the names of chunks.
            chunk_blocks: blocks of a chunk.
            timeout: how long a save may take, in seconds.
            counts: the counters.
            threads: runs copies and calls.
            on_copied: called with each ended request whose blocks are not needed any more.
            end_notifier: notifies decode engines of requests that fail.
        """
        self._client, self._cache, self._names, self._counts = client, cache, names, counts
        self._end_notifier = end_notifier
        self._chunk_blocks = chunk_blocks
        self._patience = timeout
        self._threads, self._on_copied = threads, on_copied
        self._lock = Lock()
        self._pushes: dict[str, _LayerPush] = {}
        # The copies of the current step.
        self._step_copies: list[tuple[_LayerPush, _Copy]] = []

    # ---- for the engine, in the order of a step ----

    def begin_step(self, work: Work) -> None:
        """Start a step, and handle the requests whose blocks may be overwritten from now on."""
        self.fail_step()  # A step without an end.
        deadline = time.monotonic() + self._patience
        for name in work.preempts:
            if (run := self._pushes.get(name)) is not None and self._invalidate_copies(run):
                run.deadline = deadline
                self._queue_task(run, partial(self._restart_push, run))
        for name in work.drops:
            if (dropped := self._pushes.pop(name, None)) is not None and self._invalidate_copies(dropped):
                self._queue_task(dropped, partial(self._end_push, dropped))
        for push in work.pushes:
            self._pushes[push.local_id] = _LayerPush(push, deadline)
        for part in work.parts:
            run = self._pushes.get(part.local_id)
            if run is not None and not run.is_copied:
                run.has_last_part = part.is_last
                copy = _Copy(part, run.epoch, set(range(self._cache.layer_count)), self._cache.layer_count)
                self._step_copies.append((run, copy))

    def layer_computed(self, name: str) -> None:
        """Record that the step has computed a layer."""
        if self._step_copies and (layer := self._cache.layer_indices.get(name)) is not None:
            self._cache.mark_computed()
            for run, copy in self._step_copies:
                self._queue_layer(run, copy, layer)

    def fail_step(self) -> None:
        """Abort the requests of a step that ended before all layers were computed, because their blocks are
        undefined.
        """
        step, self._step_copies = self._step_copies, []
        for run, copy in step:
            if (
                copy.unnoted_layers
                and self._pushes.pop(run.push.local_id, None) is not None
                and self._invalidate_copies(run)
            ):
                self._queue_task(run, partial(self._end_push, run))

    def end_step(self, work: Work) -> None:
        """Record that the step has computed all layers, and handle the requests that have ended."""
        for name in self._cache.layer_indices:
            self.layer_computed(name)
        self._step_copies = []
        for name in work.ends:
            run = self._pushes.get(name)
            if run is None:
                self._on_copied(name)
                continue
            with self._lock:
                run.is_ended, complete = True, run.has_last_part or run.is_copied
                copied = run.is_copied
            if copied:
                self._report_copied(run)
            elif not complete:  # Its prompt was not computed completely.
                self._queue_task(run, partial(self._end_push, run))

    def close(self) -> None:
        """Abort unfinished pushes."""
        for run in list(self._pushes.values()):
            if self._invalidate_copies(run):
                self._queue_task(run, partial(self._end_push, run))

    # ---- internal ----

    def _queue_layer(self, run: _LayerPush, copy: _Copy, layer: int) -> None:
        if layer in copy.unnoted_layers:
            copy.unnoted_layers.discard(layer)
            run.deadline = time.monotonic() + self._patience
            self._queue_task(run, partial(self._save_layer, run, copy, layer))

    def _invalidate_copies(self, run: _LayerPush) -> bool:
        """Invalidate the copies of a push, because its blocks are lost. Report whether they were still needed."""
        with self._lock:
            if run.is_copied:
                return False
            run.epoch, run.has_last_part = run.epoch + 1, False
            return True

    def _queue_task(self, run: _LayerPush, task: Callable[[], None]) -> None:
        with self._lock:
            run.tasks.append(task)
            if run.is_running:
                return
            run.is_running = True
        self._threads.submit(self._run_tasks, run)

    def _run_tasks(self, run: _LayerPush) -> None:
        while True:
            with self._lock:
                if not run.tasks:
                    run.is_running = False
                    return
                task = run.tasks.popleft()
            try:
                task()
            except Exception as error:
                self._fail_push(run, error)

    def _save_layer(self, run: _LayerPush, copy: _Copy, layer: int) -> None:
        """Copy and push one layer of a part; finish the push after the last layer of the last part."""
        if run.is_finished or copy.epoch != run.epoch:
            return
        count = self._cache.layer_count
        if run.prefill is None:
            remaining_time("begin_prefill", run.deadline)
            keys = self._names.chunk_keys(run.push.prompt)
            peer = peer_for_rank(run.push.receiver, self._names.rank)
            run.prefill = self._client.begin_prefill(
                keys=keys, request=run.push.request, peer=peer, trace=run.push.trace
            )
            run.first_key = keys[0] if keys else ""
        if copy.pages is None:
            chunks = -(-len(copy.part.blocks) // self._chunk_blocks)
            timeout = remaining_time("reserve", run.deadline)
            copy.pages = self._client.reserve(chunks * count, key=run.first_key, timeout=timeout)
            run.copies.append(copy)
        for begin in range(0, len(copy.part.blocks), self._chunk_blocks):
            blocks = copy.part.blocks[begin : begin + self._chunk_blocks]
            page = copy.pages[begin // self._chunk_blocks * count + layer].memory()
            self._cache.check_size(len(page), self._chunk_blocks, self._cache.layer_bytes)
            self._cache.gather_layer(layer, blocks, page)
            self._counts.add(copied_bytes=len(blocks) * self._cache.layer_bytes)
        copy.unsaved_layers -= 1
        remaining_time("save_layer", run.deadline)
        # Checked before the blocks are released: a void handle certainly has not received the data.
        for handle in (run.prefill, copy.pages):
            handle.check_valid("save_layer")
        with self._lock:
            if copy.epoch != run.epoch:  # The copy may contain bytes of other requests.
                return
            run.is_copied = copy.part.is_last and copy.unsaved_layers == 0
        run.prefill.save_layer(layer, copy.part.token_end, copy.pages)
        run.bytes += len(copy.part.blocks) * self._cache.layer_bytes
        if run.is_copied:
            self._finish_push(run)
        elif copy.unsaved_layers == 0 and not copy.part.is_last:
            self._release_pages(run)

    def _finish_push(self, run: _LayerPush) -> None:
        self._report_copied(run)
        run.prefill.finish(timeout=remaining_time("finish_prefill", run.deadline))
        run.is_finished = True
        self._end_notifier.notify_sent(run.push.request, run.push.prompt.tenant, run.push.receiver)
        self._release_pages(run)
        self._counts.add(saved_requests=1, saved_bytes=run.bytes)

    def _report_copied(self, run: _LayerPush) -> None:
        """Report once that an ended request does not need its blocks any more."""
        with self._lock:
            if not (run.is_copied and run.is_ended) or self._pushes.get(run.push.local_id) is not run:
                return
            del self._pushes[run.push.local_id]
        self._on_copied(run.push.local_id)

    def _restart_push(self, run: _LayerPush) -> None:
        """Restart a push. Chunks that are complete at the peer stay there."""
        run.bytes = 0
        self._release_pages(run)
        if run.prefill is not None and not run.is_finished:
            remaining_time("preempt_prefill", run.deadline)
            run.prefill.preempt()

    def _end_push(self, run: _LayerPush, error: Exception | None = None) -> None:
        """End a push of which no more is sent, and notify its receiver. It does not wait for an agent."""
        run.is_finished = True
        prefill, run.prefill = run.prefill, None
        with self._lock:
            run.is_copied = True
        self._report_copied(run)
        self._release_pages(run)
        if prefill is not None and not prefill.released:
            prefill.abort(wait=False)
        self._end_notifier.notify_failed(run.push.request, run.push.prompt.tenant, run.push.receiver, error)

    def _fail_push(self, run: _LayerPush, error: Exception) -> None:
        self._counts.add(failed_saves=1)
        log_outcome("its KV did not reach the decode engine", run.push.local_id, error)
        # If the agent is lost at the very end, everything may have arrived; the receiver uses it nevertheless.
        try:
            self._end_push(run, error)
        except Exception as end_error:
            log_outcome("its partial KV could not be abandoned", run.push.local_id, end_error)

    def _release_pages(self, run: _LayerPush) -> None:
        """Release pages without waiting for their readers."""
        copies, run.copies = run.copies, []
        for copy in copies:
            if not copy.pages.released:
                copy.pages.release(0)
