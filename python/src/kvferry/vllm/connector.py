"""KvferryConnector, the class that vLLM calls. In this package only this module and block_hash import vLLM.

It delegates: requests and blocks to kvferry.vllm.connector_scheduler, in the scheduler's process; steps to
kvferry.vllm.connector_worker or kvferry.vllm.block_worker, in each worker's process.
"""

from __future__ import annotations

import importlib
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import vllm
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import KVConnectorOutput

from kvferry import client
from kvferry.codes import Code
from kvferry.errors import Error
from kvferry.vllm import block_hash, counters, plugin
from kvferry.vllm.agreement import Agreement
from kvferry.vllm.block_memory import BlockMemory
from kvferry.vllm.block_worker import BlockWorker
from kvferry.vllm.cache import Cache, blocks_per_chunk, device_kind
from kvferry.vllm.cache_resets import CacheResets
from kvferry.vllm.chunk_names import ChunkNames, dtype_name
from kvferry.vllm.connector_scheduler import ConnectorScheduler, Request
from kvferry.vllm.connector_worker import ConnectorWorker
from kvferry.vllm.identity import ModelIdentity, attention_backends, model_identity, model_label
from kvferry.vllm.log import log, route_client_log
from kvferry.vllm.prefix_lookup import PrefixLookup
from kvferry.vllm.push_tracker import PushTracker
from kvferry.vllm.request_inputs import RequestInputs
from kvferry.vllm.settings import BLOCKS_SIDE, ConnectorDuties, Engine, Settings, unsupported_error
from kvferry.vllm.step_work import Prompt, Work
from kvferry.vllm.versions import check_version

if TYPE_CHECKING:
    from collections.abc import Mapping

# The classes of vLLM whose members are used.
USED_CLASSES = {
    "KVConnectorBase_V1": KVConnectorBase_V1,
    "KVConnectorOutput": KVConnectorOutput,
    "SchedulerOutput": SchedulerOutput,
}

route_client_log()
plugin.register()  # In case the package is not installed, so that vLLM does not find its entry point.


@dataclass
class Metadata(KVConnectorMetadata):  # type: ignore[misc] # vLLM is not there where types are checked.
    """The work of a step."""

    work: Work = field(default_factory=Work)


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker knows after it has its cache and its agent."""

    names: ChunkNames
    duties: ConnectorDuties
    # Set by the first rank only, because reading all weights is expensive. The identity is the same at all ranks.
    identity: ModelIdentity | None = None
    # The address where its agent accepts registrations, if the agent lends the engine's blocks.
    producer: str = ""


@dataclass
class WorkerInfos(KVConnectorWorkerMetadata):  # type: ignore[misc]
    """What workers report to the scheduler's side with their first step, by rank.

    vLLM's handshake metadata is not used, because MultiConnector passes the metadata of one connector to all others,
    some of which stop the engine when they receive foreign metadata.
    """

    ranks: dict[int, WorkerInfo] = field(default_factory=dict)
    # Whether the agent of a rank is unreachable, for ranks where that has changed.
    away_ranks: dict[int, bool] = field(default_factory=dict)

    def aggregate(self, other: WorkerInfos) -> WorkerInfos:
        """Merge the reports of other workers."""
        return WorkerInfos({**self.ranks, **other.ranks}, {**self.away_ranks, **other.away_ranks})


@dataclass
class Stats(KVConnectorStats):  # type: ignore[misc]
    """The counts since the last report: a number for each name of kvferry.vllm.counters."""

    data: dict[str, Any] = field(default_factory=dict)

    def reset(self) -> None:
        """Reset all counts."""
        self.data = {}

    def aggregate(self, other: Stats) -> Stats:
        """Add another report."""
        self.data = counters.merge_counts(self.data, other.data)
        return self

    def reduce(self) -> dict[str, int | float]:
        """Return the counts for the log."""
        return dict(self.data)

    def is_empty(self) -> bool:
        """Report whether nothing was counted."""
        return not self.data


class PromMetrics(KVConnectorPromMetrics):  # type: ignore[misc]
    """The counters kvferry:<name> in vLLM's /metrics."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Mapping[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        """Register the counters."""
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        prom_counters = {
            name: self._counter_cls(name=f"kvferry:{name}", documentation=text, labelnames=labelnames)
            for name, text in counters.COUNTERS.items()
        }
        self._counters = {
            engine: {name: counter.labels(*values) for name, counter in prom_counters.items()}
            for engine, values in per_engine_labelvalues.items()
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Add a report."""
        for name, counter in self._counters.get(engine_idx, {}).items():
            if increment := transfer_stats_data.get(name):
                counter.inc(increment)


class KvferryConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """See kvferry.vllm. vLLM creates one connector in the scheduler's process and one in each worker's."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        """Check the engine's configuration, and refuse what is not supported before anything is served."""
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        check_version(vllm.__version__, USED_CLASSES)
        transfer = vllm_config.kv_transfer_config
        self._settings = Settings.from_config(transfer.kv_connector_extra_config)
        self._engine = read_engine(vllm_config, kv_cache_config)
        self._engine.check_supported()
        self._scheduler: ConnectorScheduler | None = None
        self._worker: ConnectorWorker | BlockWorker | None = None
        # The report that was not sent to the scheduler's side yet.
        self._unreported_info: WorkerInfo | None = None
        self._prefix_lookup: PrefixLookup | None = None
        # Whether the scheduler's side was told that the agent is unreachable.
        self._reported_away = False
        # Whether the workers have reported the names of chunks and their duties.
        self._is_configured = False
        # The exception that was being handled, if any, when the step began.
        self._outer_exception: BaseException | None = None
        if role == KVConnectorRole.SCHEDULER:
            if self._engine.role != "kv_producer" and self._engine.load_failure_policy != "recompute":
                log.warning(
                    "kv_load_failure_policy is %s: requests whose KV is lost fail; set it to recompute (next to "
                    "MultiConnector, where that is used)",
                    self._engine.load_failure_policy,
                )
            # Workers report more with their first step: see update_connector_output.
            self._resets = CacheResets()
            self._inputs = RequestInputs(
                self._engine.block_tokens,
                self._settings.load_patience,
                adapter_folder=block_hash.adapter_folder,
                adapter_dtype=block_hash.adapter_dtype(vllm_config),
                extra_keys=block_hash.extra_keys,
            )
            self._scheduler = ConnectorScheduler(
                ConnectorDuties(), self._engine.block_tokens, model="", inputs=self._inputs, resets=self._resets
            )

    # ---- worker ----

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Check the cache, attach to the agent, and check that both fit."""
        engine = self._engine
        layout = f"{machine_kind(kv_caches)} {attention_backends(self._vllm_config, kv_caches)}".strip()
        cache = Cache(kv_caches, engine, layout)
        identity = self._read_identity() if engine.rank == 0 else None
        agent = self._connect_agent(engine.rank, self._settings.start_patience)
        if BLOCKS_SIDE in agent.info.sides:  # Only one engine may have blocks in the agent's pool.
            agent.close()
            agent = self._connect_agent(engine.rank, self._settings.start_patience, owns_pool=True)
        memory: BlockMemory | None = None
        try:
            if BLOCKS_SIDE not in agent.info.sides and any(
                device_kind(tensor) != "cpu" for tensor in kv_caches.values()
            ):
                log.info("kvferry: %s", agent.pin_memory().text)
            info = agent.info
            layers = info.layers if info.layers > 1 else 0  # A chunk with one layer is one page in any case.
            duties = ConnectorDuties.for_role(engine.role, info.sides, layers)
            memory = BlockMemory(agent, cache, engine) if duties.own_blocks else None
            blocks = 1 if memory else blocks_per_chunk(cache, engine, info.page_bytes, info.shape, layers)
            cache.stripes = info.shape[0]
            names = ChunkNames(
                model=engine.model,
                ranks=engine.ranks,
                rank=engine.rank,
                dtype=dtype_name(cache.dtype),
                layout=cache.layout,
                chunk=blocks * engine.block_tokens,
            )
            if duties.shares:
                check_directory(agent, names)
        except BaseException:
            if memory is not None:
                memory.release()
            agent.close()
            raise
        self._unreported_info = WorkerInfo(names, duties, identity, info.producer)
        if memory is not None:
            self._worker = BlockWorker(agent, cache, memory, engine.rank, self._settings)
            return
        warn_of_small_pool(info.pages // max(1, layers) * names.chunk, engine.max_tokens, info.pages * info.page_bytes)
        log.info("kvferry: chunks of %d tokens, %d bytes; layout: %s", names.chunk, info.page_bytes, names.layout)
        self._worker = ConnectorWorker(agent, cache, names, blocks, self._settings, layers)

    def _read_identity(self) -> ModelIdentity:
        """Compute the identity of the model. Hashing large weight files may take a while."""
        started = time.monotonic()
        identity = model_identity(self._vllm_config, self._settings.weights)
        facts = "; ".join(f"{name}: {value}" for name, value in identity.facts)
        log.info("kvferry: the model is %s, found in %.1f s (%s)", identity.digest, time.monotonic() - started, facts)
        return identity

    def handle_preemptions(self, kv_connector_metadata: Metadata) -> None:
        """Start a step before it overwrites blocks of preempted requests."""
        if self._worker is not None:
            self._worker.begin_step(kv_connector_metadata.work)

    def bind_connector_metadata(self, connector_metadata: Metadata) -> None:
        """Start a step. Every code path of vLLM calls this before the forward pass."""
        super().bind_connector_metadata(connector_metadata)
        self._outer_exception = sys.exc_info()[1]
        if self._worker is not None:
            self._worker.begin_step(connector_metadata.work)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Start the work of the step.

        vLLM calls this after the forward pass, or before it if another connector loads what the pass needs
        (SchedulerOutput.has_sync_kv_loads). Both orders work.
        """
        del forward_context, kwargs
        if self._worker is not None:
            self._worker.start_work(self._get_connector_metadata().work)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing: a request is not scheduled before its KV is loaded."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Push a layer while the next one is computed, if agents push layer by layer; otherwise do nothing.

        If a step is computed in several batches (dual batch overlap), the first call for a layer does not cover the
        tokens of the other batches. Then only wait_for_save is used.
        """
        del kv_layer, attn_metadata, kwargs
        if self._worker is not None and not self._engine.may_split_steps:
            self._worker.layer_computed(layer_name)

    def wait_for_save(self) -> None:
        """Handle the end of the forward pass, including that of a draft model. It does not block.

        vLLM also calls this while an exception of the forward pass propagates; then the step has computed nothing.
        """
        if self._worker is not None:
            exception = sys.exc_info()[1]
            failed = exception is not None and exception is not self._outer_exception
            self._worker.end_step(self._get_connector_metadata().work, failed)
        self._outer_exception = None

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """Return the requests whose blocks were read, and those whose loads have ended."""
        if self._worker is None:
            return None, None
        sent, received = self._worker.take_results()
        return sent or None, received or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Return the blocks that were not loaded and must be computed."""
        return set() if self._worker is None else self._worker.take_bad_blocks()

    def get_kv_connector_stats(self) -> Stats | None:
        """Return the counts since the last call."""
        counts = {} if self._worker is None else self._worker.counts.take_counts()
        return Stats(data=counts) if counts else None

    def build_connector_worker_meta(self) -> WorkerInfos | None:
        """Report the names of chunks and the duties once, and changes of the agent's reachability."""
        info, self._unreported_info = self._unreported_info, None
        infos = WorkerInfos()
        if info is not None:
            infos.ranks[info.names.rank] = info
        if self._worker is not None and self._worker.is_agent_away != self._reported_away:
            self._reported_away = self._worker.is_agent_away
            infos.away_ranks[self._engine.rank] = self._reported_away
        return infos if infos.ranks or infos.away_ranks else None

    def shutdown(self) -> None:
        """Shut down and detach."""
        worker, self._worker = self._worker, None
        prefix_lookup, self._prefix_lookup = self._prefix_lookup, None
        for part in (worker, prefix_lookup, self._scheduler):
            if part is not None:
                part.close()

    # ---- scheduler ----

    @property
    def _scheduler_side(self) -> ConnectorScheduler:
        if self._scheduler is None:
            raise AssertionError("BUG: a worker's connector was called as the scheduler's")
        return self._scheduler

    def _configure_scheduler(self, workers: list[WorkerInfo]) -> None:
        """Configure the scheduler's side. Lookups use the agent of the first rank, because all ranks have the same
        chunks.
        """
        first = workers[0]
        if first.identity is None:
            raise AssertionError(f"BUG: rank {first.names.rank} reported before the first rank, which knows the model")
        self._is_configured = True
        if first.duties.shares:
            self._prefix_lookup = PrefixLookup(
                partial(self._connect_agent, first.names.rank, self._settings.grace), first.names
            )
        tokens = self._engine.block_tokens
        pushes = PushTracker(tokens, first.names.chunk) if first.duties.layers else None
        self._scheduler = ConnectorScheduler(
            first.duties,
            tokens,
            self._prefix_lookup,
            pushes,
            Agreement(first.names, tokens, **dict(first.identity.facts)),
            model=first.identity.digest,
            inputs=self._inputs,
            resets=self._resets,
            names=first.names,
            producers=[worker.producer for worker in workers],
        )

    def _connect_agent(self, rank: int, timeout: float, *, owns_pool: bool = False) -> client.Client:
        return client.connect(
            self._settings.socket_for_rank(rank),
            name=f"vllm {self._engine.role}",
            timeout=timeout,
            grace=self._settings.grace,
            owns_pool=owns_pool,
        )

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Return how many tokens of a prompt can be loaded. None means that vLLM must ask again."""
        if not self._is_configured:
            return None, False
        return self._scheduler_side.match_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        """Handle the allocation of a request's blocks."""
        self._scheduler_side.handle_allocation(request, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Metadata:
        """Return the work of the step for the workers."""
        return Metadata(work=self._scheduler_side.take_step_work(scheduler_output))

    def update_connector_output(self, connector_output: Any) -> None:
        """Handle the reports of the workers."""
        infos = connector_output.kv_connector_worker_meta
        if isinstance(infos, WorkerInfos):
            if infos.ranks:
                self._configure_scheduler([infos.ranks[rank] for rank in sorted(infos.ranks)])
            self._scheduler_side.set_away_ranks(infos.away_ranks)
        self._scheduler_side.handle_received(connector_output.finished_recving)

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Send a request's KV if it has a receiver."""
        return self._scheduler_side.finish_request(request, block_ids)

    def reset_cache(self) -> bool:
        """Stop using earlier KV, because the weights may have changed. It returns False if some is still being
        loaded.
        """
        return self._scheduler_side.reset_cache()

    # ---- metrics ----

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Stats:
        """Create a report from the counts of a worker."""
        return Stats(data=dict(data or {}))

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: Mapping[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> PromMetrics:
        """Create the metrics."""
        return PromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


def check_directory(agent: client.Client, names: ChunkNames) -> None:
    """Refuse to share at an agent without a directory, because nothing would ever be loaded.

    An unreachable directory may come back, so it only causes a warning.
    """
    try:
        agent.lookup(names.chunk_keys(Prompt((0,))))
    except Error as error:
        if error.code == Code.UNSUPPORTED:
            raise unsupported_error(
                "controller_reply_url of the agent",
                "none",
                "a directory",
                "run kvferry directory, and set enable_controller, controller_pull_url and controller_reply_url in the "
                "agent's file: engines share the chunks that a directory knows",
            ) from error
        if error.code == Code.FORBIDDEN:  # The agent has tenants, and the default tenant is not one of them.
            return
        log.warning("kvferry: KV of other engines is not found while no directory answers: %s", error)


def warn_of_small_pool(tokens: int, max_tokens: int, size: int) -> None:
    """Warn if the pool of an agent, in tokens and bytes, has no room for the longest prompt."""
    if 0 < tokens < max_tokens:
        log.warning(
            "kvferry: the agent's pool has room for %d tokens, and a prompt may have %d (max_model_len): longer ones "
            "are computed; set pd_buffer_size to %d or more",
            tokens,
            max_tokens,
            -(-size * max_tokens // tokens),
        )


def read_engine(config: Any, cache: Any) -> Engine:
    """Read the engine's properties from vLLM's configuration."""
    parallel, groups = config.parallel_config, cache.kv_cache_groups
    if not groups:
        raise unsupported_error("kv_cache_groups", "0", "1", "use a model with attention")
    spec = groups[0].kv_cache_spec
    parallel_sizes = {
        name: getattr(parallel, name, 1)
        for name in ("pipeline_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size")
    }
    return Engine(
        model=model_label(config),
        role=str(config.kv_transfer_config.kv_role),
        ranks=parallel.tensor_parallel_size,
        rank=parallel.rank % parallel.tensor_parallel_size,
        parallel_sizes=parallel_sizes,
        groups=len(groups),
        cache=type(spec).__name__,
        block_tokens=spec.block_size,
        block_bytes=spec.page_size_bytes,
        blocks=cache.num_blocks,
        load_failure_policy=config.kv_transfer_config.kv_load_failure_policy,
        max_tokens=int(config.model_config.max_model_len),
        may_split_steps=bool(getattr(parallel, "use_ubatching", False)),
    )


def machine_kind(layers: Mapping[str, Any]) -> str:
    """Return what determines the byte order within a block besides the tensors: for a CPU, its capabilities."""
    for tensor in layers.values():
        if (kind := device_kind(tensor)) != "cpu":
            return kind
    torch = importlib.import_module("torch")
    amx = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return f"{torch.backends.cpu.get_cpu_capability()}{' amx' if amx is not None and amx() else ''}"
