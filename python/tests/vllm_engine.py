"""A test double of an engine of vLLM: its scheduler's and worker's order of calls.

It follows the order of vLLM 0.32, and asserts what vLLM asserts of a connector. KV is a function of the tokens, so that
an engine with wrong KV is detected.
"""

from __future__ import annotations

import hashlib
import time
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from vllm_double import BLOCK, HEAD, HEADS, LAYERS, TIMEOUT, Role, Status, Tensor, cache_config, config

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from kvferry.vllm.step_work import Prompt


@dataclass
class Request:
    request_id: str
    prompt_token_ids: list[int]
    kv_transfer_params: dict[str, Any] | None = None
    status: Status = Status.WAITING
    num_computed_tokens: int = 0
    blocks: list[int] = field(default_factory=list)
    # Number of blocks of its prompt in the engine's prefix cache.
    prefix_blocks: int = 0
    # Tokens that were computed here: more than one token of the prompt only if KV did not arrive.
    computed_tokens: int = 0
    # Whether some were computed since it was scheduled from the start.
    is_started: bool = False
    is_ready: bool = False
    has_failed: bool = False
    # The inputs of its KV besides the tokens.
    cache_salt: str | None = None
    lora_request: Any = None
    mm_features: list[Any] = field(default_factory=list)
    prompt_embeds: Any = None
    prompt_is_token_ids: list[bool] | None = None
    arrival_time: float = field(default_factory=time.time)
    # Headers of a traced request that vLLM's server keeps.
    trace_headers: dict[str, str] | None = None


class Blocks:
    def __init__(self, ids: list[int]) -> None:
        self._ids = ids

    def get_block_ids(self) -> tuple[list[int], ...]:
        return (list(self._ids),)


@dataclass
class Output:
    """vLLM's SchedulerOutput, which is its own block table here."""

    num_scheduled_tokens: dict[str, int]
    preempted_req_ids: set[str]
    tables: dict[str, list[int]]
    has_sync_kv_loads: bool = False

    @property
    def kv_connector_block_state(self) -> Output:
        return self

    def get_block_ids(self, req_id: str) -> tuple[list[int], ...] | None:
        return (list(self.tables[req_id]),) if req_id in self.num_scheduled_tokens else None


def kv_of(tokens: list[int], layer: int, *inputs: Any) -> npt.NDArray[np.float32]:
    """Return a block of KV: it depends on all tokens up to its end, and on other inputs, if there are any."""
    seed = hashlib.sha256(repr((layer, tokens, *inputs)).encode()).digest()[:8]
    drawn = np.random.default_rng(int.from_bytes(seed, "little"))
    return drawn.random((HEADS, BLOCK, 2 * HEAD), np.float32)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that threads establish."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.001)


class Engine:
    """One engine, with both sides of its connector in one process."""

    # Elements between the blocks of a layer, which have one row.
    gap = 0

    def __init__(
        self, connector: Callable[..., Any], role: str, blocks: int = 64, budget: int = 1 << 20, **extra: Any
    ) -> None:
        vllm, cache = config(role, **extra), cache_config(blocks)
        self.scheduler = connector(vllm, Role.SCHEDULER, cache)
        self.worker = connector(vllm, Role.WORKER, cache)
        # Layers are slices of one storage, with gaps between them.
        self._storage = np.zeros((LAYERS, blocks + 3, HEADS, BLOCK, 2 * HEAD + self.gap), np.float32)
        self.layers = {f"layers.{i}.attn": Tensor(self._storage[i, :blocks, ..., : 2 * HEAD]) for i in range(LAYERS)}
        self.worker.register_kv_caches(self.layers)
        self.free = list(range(1, blocks))
        # The weights of its model, if they differ from the initial ones.
        self.weights = ""
        # The weights of adapters, by number: each adapter is loaded once.
        self.adapters: dict[int, str] = {}
        # The most tokens of a step; whether the engine calls the hooks of layers.
        self._budget = budget
        self.calls_layer_hooks = True
        # Whether it starts loads before the forward pass, and whether it announces preemptions.
        self.loads_before_forward = False
        self.announces_preemptions = True
        # The number of last layers that are computed after loads start: those of a draft model.
        self.draft_layers = 0
        # The number of batches of a step, computed one after the other.
        self.batches_per_step = 1
        # Whether another connector loads the beginning of new requests in the step itself, and how many tokens of it
        # are wrong.
        self.sync_loads = False
        self.wrong_sync_tokens = 0
        # Called between two layers.
        self.between_layers: Callable[[], None] = lambda: None
        # Blocks that are overwritten when the next step begins, and prefix cache hits.
        self._stale_blocks: list[int] = []
        self._prefix_hits: list[tuple[Request, int]] = []
        self._preempted: set[str] = set()
        self.requests: dict[str, Request] = {}
        self._waiting: list[Request] = []
        self._running: list[Request] = []
        self._finished: set[str] = set()
        self.outputs: dict[str, dict[str, Any] | None] = {}
        self.counts: dict[str, float] = {}
        self.step()  # In the first step the workers report to the scheduler's side.

    def shared_prompt(self, tokens: list[int]) -> Prompt:
        """Return the prompt that names the shared KV of some tokens."""
        prompt: Prompt = self.scheduler._scheduler_side._shared_prompt(Request("named", tokens), len(tokens))
        return prompt

    def add(self, request: Request) -> Request:
        self.requests[request.request_id] = request
        self._waiting.append(request)
        return request

    def abort(self, request: Request) -> None:
        held = request.status == Status.WAITING_FOR_REMOTE_KVS and not request.is_ready
        self._waiting = [r for r in self._waiting if r is not request]
        self._running = [r for r in self._running if r is not request]
        request.status = Status.FINISHED_ABORTED
        self._end_request(request, held)

    def preempt(self, request: Request) -> None:
        self._running.remove(request)
        self._release(request)
        self._preempted.add(request.request_id)
        request.num_computed_tokens, request.status, request.is_started = 0, Status.WAITING, False
        self._waiting.insert(0, request)

    def step(self, finish: bool = True) -> None:
        """Schedule a step, execute it, and handle its results. Requests end when their prompt is computed, if finish
        is set.
        """
        scheduled = self._schedule()
        tables = {request.request_id: request.blocks for request, _ in scheduled}
        tokens = {request.request_id: end - request.num_computed_tokens for request, end in scheduled}
        output = Output(tokens, self._preempted, tables, self.sync_loads)
        metadata = self.scheduler.build_connector_meta(output)
        self._preempted = set()
        if self.announces_preemptions:
            self.worker.handle_preemptions(metadata)
        self.worker.bind_connector_metadata(metadata)
        self._overwrite()
        if self.loads_before_forward:
            self.worker.start_load_kv(None)
        try:
            self._compute(scheduled)
        finally:  # As in vLLM.
            if not self.loads_before_forward:
                self.worker.start_load_kv(None)
            if not self.draft_layers:
                self.worker.wait_for_save()
        if self.draft_layers:
            self._forward(scheduled, range(LAYERS - self.draft_layers, LAYERS))
            self.worker.wait_for_save()
        self._finish_step(scheduled)
        finished, self._finished = self._finished, set()
        sent, received = self.worker.get_finished(finished)
        bad = self.worker.get_block_ids_with_load_errors()
        if (stats := self.worker.get_kv_connector_stats()) is not None:
            for name, increment in stats.data.items():
                self.counts[name] = self.counts.get(name, 0) + increment
        worker_meta = self.worker.build_connector_worker_meta()
        self.worker.clear_connector_metadata()
        self._handle_results(sent or set(), received or set(), bad, worker_meta)
        if finish:
            for request in [r for r in self._running if r.num_computed_tokens >= len(r.prompt_token_ids)]:
                self._running.remove(request)
                request.status = Status.FINISHED_LENGTH_CAPPED
                self._end_request(request, False)

    def run(self, condition: Callable[[], bool], finish: bool = True) -> None:
        """Run steps until a condition holds."""
        end = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < end, "it takes too long"
            self.step(finish)
            time.sleep(0.001)  # The step time of a waiting engine.

    def is_idle(self) -> bool:
        """Report whether vLLM would run no more steps."""
        return not self.requests and not self._finished

    def close(self) -> None:
        """Complete everything in progress, check the connector's reports, and shut down."""
        self.run(self.is_idle)
        worker = self.worker._worker
        for pool in ("_layer_threads", "_save_threads", "_load_threads", "_copy_threads", "_notice_threads"):
            if hasattr(worker, pool):
                getattr(worker, pool).shutdown(wait=True)
        self.step()
        assert not self._waiting
        self.worker.shutdown()
        self.scheduler.shutdown()
        assert len(self.free) == len(self.layers["layers.0.attn"].array) - 1

    def check_blocks(self, request: Request) -> None:
        """Check that a request's blocks contain the expected KV."""
        prompt = request.prompt_token_ids[: request.num_computed_tokens]
        for place, block in enumerate(request.blocks[: -(-len(prompt) // BLOCK)]):
            for i, layer in enumerate(self.layers.values()):
                wanted = self._kv(request, min(len(prompt), (place + 1) * BLOCK), i)
                assert np.array_equal(layer.array[block], wanted), (request.request_id, place, i)

    # ---- within ----

    def _schedule(self) -> list[tuple[Request, int]]:
        """Return the requests to compute, and up to which token."""
        scheduled, budget = [], self._budget
        for request in self._running:
            new_tokens = min(budget, len(request.prompt_token_ids) - request.num_computed_tokens)
            if new_tokens:
                scheduled.append((request, request.num_computed_tokens + new_tokens))
                budget -= new_tokens
        for request in list(self._waiting):
            if request.status == Status.WAITING_FOR_REMOTE_KVS:
                if not request.is_ready:
                    continue
                request.is_ready, request.status = False, Status.WAITING
                if request.has_failed and not request.num_computed_tokens:
                    self._release(request)
                request.has_failed = False
                if request.num_computed_tokens == len(request.prompt_token_ids):
                    request.num_computed_tokens -= 1
            if not budget:
                break
            external, is_async = 0, False
            if request.num_computed_tokens == 0:
                external, is_async = self.scheduler.get_num_new_matched_tokens(request, request.prefix_blocks * BLOCK)
                if external is None:
                    continue
                assert not is_async or external
            needed = -(-len(request.prompt_token_ids) // BLOCK) - len(request.blocks)
            if needed > len(self.free):
                break
            request.blocks += [self.free.pop(0) for _ in range(needed)]
            self._prefix_hits += [(request, place) for place in range(request.prefix_blocks)]
            self.scheduler.update_state_after_alloc(request, Blocks(request.blocks), external)
            request.num_computed_tokens += external + request.prefix_blocks * BLOCK
            request.prefix_blocks = 0
            if is_async:
                request.status = Status.WAITING_FOR_REMOTE_KVS
                continue
            self._waiting.remove(request)
            self._running.append(request)
            request.status = Status.RUNNING
            new_tokens = min(budget, len(request.prompt_token_ids) - request.num_computed_tokens)
            scheduled.append((request, request.num_computed_tokens + new_tokens))
            budget -= new_tokens
        return scheduled

    def _overwrite(self) -> None:
        """Overwrite freed blocks, and write the blocks of prefix cache hits."""
        for block in self._stale_blocks:
            for layer in self.layers.values():
                layer.array[block] = -1.0
        for request, place in self._prefix_hits:
            for i in range(LAYERS):
                self._write(request, place, i, len(request.prompt_token_ids))
        self._stale_blocks, self._prefix_hits = [], []

    def _compute(self, scheduled: list[tuple[Request, int]]) -> None:
        self._forward(scheduled, range(LAYERS - self.draft_layers))

    def _forward(self, scheduled: list[tuple[Request, int]], layers: range) -> None:
        names = list(self.layers)
        for batch in range(self.batches_per_step):
            for i in layers:
                if scheduled and self.calls_layer_hooks:
                    self.worker.wait_for_layer_load(names[i])
                for request, end in scheduled[batch :: self.batches_per_step]:
                    begin = request.num_computed_tokens
                    # Of a block that arrived in part, only the rest is written: the other part must be correct already.
                    first = begin // BLOCK if request.is_started else -(-begin // BLOCK)
                    for place in range(first, -(-end // BLOCK)):
                        self._write(request, place, i, end)
                    if not request.is_started:
                        for place in range(self.wrong_sync_tokens // BLOCK):
                            self._write_wrong(request, place, i)
                if scheduled and self.calls_layer_hooks:
                    self.worker.save_kv_layer(names[i], self.layers[names[i]], None)
                self.between_layers()

    def _finish_step(self, scheduled: list[tuple[Request, int]]) -> None:
        for request, end in scheduled:
            request.computed_tokens += end - request.num_computed_tokens
            request.num_computed_tokens, request.is_started = end, True
            if self.wrong_sync_tokens:  # Everything after the failed load is recomputed.
                request.num_computed_tokens = 0
            self.check_blocks(request)
        if scheduled:
            self.sync_loads, self.wrong_sync_tokens = False, 0

    def _write_wrong(self, request: Request, place: int, layer: int) -> None:
        list(self.layers.values())[layer].array[request.blocks[place]] = -2.0

    def _write(self, request: Request, place: int, layer: int, end: int) -> None:
        known = min(end, (place + 1) * BLOCK)
        list(self.layers.values())[layer].array[request.blocks[place]] = self._kv(request, known, layer)

    def _kv(self, request: Request, end: int, layer: int) -> npt.NDArray[np.float32]:
        """Return the KV of a request's tokens up to a position."""
        inputs: list[Any] = [self.weights] if self.weights else []
        if (adapter := request.lora_request) is not None:
            if adapter.lora_int_id not in self.adapters:
                self.adapters[adapter.lora_int_id] = adapter.weights()
            inputs.append(self.adapters[adapter.lora_int_id])
        if request.prompt_embeds is not None:
            inputs.append(request.prompt_embeds.array[:end].tobytes())
        inputs += [f.identifier for f in request.mm_features if f.mm_position.offset < end]
        return kv_of(request.prompt_token_ids[:end], layer, *inputs)

    def _handle_results(self, sent: set[str], received: set[str], bad: set[int], worker_meta: Any = None) -> None:
        for request in self._waiting:
            places = [place for place, block in enumerate(request.blocks) if block in bad]
            if places and request.status == Status.WAITING_FOR_REMOTE_KVS:
                request.num_computed_tokens, request.has_failed = places[0] * BLOCK, True
        output = types.SimpleNamespace(
            finished_sending=sent, finished_recving=received, kv_connector_worker_meta=worker_meta
        )
        self.scheduler.update_connector_output(output)
        for name in received:
            request = self.requests[name]
            if request.status == Status.WAITING_FOR_REMOTE_KVS:
                assert not request.is_ready
                request.is_ready = True
            else:
                assert request.status == Status.FINISHED_ABORTED
                self._free_request(request)
        for name in sent:
            assert self.requests[name].status == Status.FINISHED_LENGTH_CAPPED
            self._free_request(self.requests[name])

    def _end_request(self, request: Request, held: bool) -> None:
        delay, params = self.scheduler.request_finished(request, list(request.blocks))
        self.outputs[request.request_id] = params
        self._finished.add(request.request_id)
        if not (held or delay):
            self._free_request(request)

    def _free_request(self, request: Request) -> None:
        del self.requests[request.request_id]
        self._release(request)

    def _release(self, request: Request) -> None:
        self._stale_blocks += request.blocks  # Their content must not be used any more.
        self.free += request.blocks
        request.blocks = []
