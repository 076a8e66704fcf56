"""What vLLM calls: KvferryConnector. Of this package only this module and block_hash import vLLM.

It only passes on: requests and blocks to kvferry.vllm.scheduling, in the scheduler's process; steps to
kvferry.vllm.working, in each worker's.
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
from kvferry.vllm import block_hash, counts, plugin
from kvferry.vllm.agreement import Agreement
from kvferry.vllm.cache import Cache, chunk_blocks, kind_of_device
from kvferry.vllm.finding import Finding
from kvferry.vllm.home import Home
from kvferry.vllm.identity import ModelIdentity, attention_backends, model_identity, model_label
from kvferry.vllm.inputs import Inputs
from kvferry.vllm.keys import Names, dtype_name
from kvferry.vllm.log import adopt_client, log
from kvferry.vllm.own import Own
from kvferry.vllm.pushes import Pushes
from kvferry.vllm.resets import Resets
from kvferry.vllm.scheduling import Request, Scheduling
from kvferry.vllm.settings import BLOCKS, Duties, Engine, Settings, refused
from kvferry.vllm.versions import check_version
from kvferry.vllm.words import Prompt, Work
from kvferry.vllm.working import Working

if TYPE_CHECKING:
    from collections.abc import Mapping

# Those of vLLM's classes whose members are used.
CLASSES = {
    "KVConnectorBase_V1": KVConnectorBase_V1,
    "KVConnectorOutput": KVConnectorOutput,
    "SchedulerOutput": SchedulerOutput,
}

adopt_client()
plugin.register()  # Be it that no package is installed, of which vLLM would take the entry point.


@dataclass
class Metadata(KVConnectorMetadata):  # type: ignore[misc] # vLLM is not there where types are checked.
    """The work of a step."""

    work: Work = field(default_factory=Work)


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker knows when it has its cache and its agent."""

    names: Names
    duties: Duties
    # Of the first rank: reading all weights is for one of them. It is of the model, and the same at all.
    identity: ModelIdentity | None = None
    # Where its agent takes registrations, if that lends the engine's own blocks.
    producer: str = ""


@dataclass
class WorkerInfos(KVConnectorWorkerMetadata):  # type: ignore[misc]
    """What workers tell the scheduler's side with their first step, by their ranks.

    vLLM's handshake metadata is not for this: MultiConnector passes that of one connector to all others, of which some
    end the engine at what is not theirs.
    """

    ranks: dict[int, WorkerInfo] = field(default_factory=dict)
    # Whether the agent of a rank is away, of those where that has changed.
    away: dict[int, bool] = field(default_factory=dict)

    def aggregate(self, other: WorkerInfos) -> WorkerInfos:
        """Add what other workers tell."""
        return WorkerInfos({**self.ranks, **other.ranks}, {**self.away, **other.away})


@dataclass
class Stats(KVConnectorStats):  # type: ignore[misc]
    """What was counted since the last report: a number for each word of kvferry.vllm.counts."""

    data: dict[str, Any] = field(default_factory=dict)

    def reset(self) -> None:
        """Forget all."""
        self.data = {}

    def aggregate(self, other: Stats) -> Stats:
        """Add another report."""
        self.data = counts.together(self.data, other.data)
        return self

    def reduce(self) -> dict[str, int | float]:
        """Give what goes to the log."""
        return dict(self.data)

    def is_empty(self) -> bool:
        """Say whether nothing was counted."""
        return not self.data


class PromMetrics(KVConnectorPromMetrics):  # type: ignore[misc]
    """The same as counters kvferry:<word> in vLLM's /metrics."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Mapping[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        """Register them."""
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        made = {
            word: self._counter_cls(name=f"kvferry:{word}", documentation=text, labelnames=labelnames)
            for word, text in counts.WORDS.items()
        }
        self._counters = {
            engine: {word: counter.labels(*values) for word, counter in made.items()}
            for engine, values in per_engine_labelvalues.items()
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Count a report."""
        for word, counter in self._counters.get(engine_idx, {}).items():
            if by := transfer_stats_data.get(word):
                counter.inc(by)


class KvferryConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """See kvferry.vllm. vLLM makes one in the scheduler's process, and one in each worker's."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        """Look at the engine, and refuse what is not supported, before anything is served."""
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        check_version(vllm.__version__, CLASSES)
        transfer = vllm_config.kv_transfer_config
        self._settings = Settings.of(transfer.kv_connector_extra_config)
        self._engine = engine_of(vllm_config, kv_cache_config)
        self._engine.check()
        self._scheduling: Scheduling | None = None
        self._working: Working | Own | None = None
        # What the scheduler's side was not told yet.
        self._untold: WorkerInfo | None = None
        self._finding: Finding | None = None
        # Whether the scheduler's side was told that the agent is away.
        self._away = False
        # Workers said how chunks are named, and what there is to do.
        self._told = False
        # The exception that was being handled, if any, when the step began.
        self._handled: BaseException | None = None
        if role == KVConnectorRole.SCHEDULER:
            if self._engine.role != "kv_producer" and self._engine.failures != "recompute":
                log.warning(
                    "kv_load_failure_policy is %s: requests whose KV is lost fail; set it to recompute (beside "
                    "MultiConnector, where that is used)",
                    self._engine.failures,
                )
            # Workers say more with their first step: update_connector_output.
            self._resets = Resets()
            self._inputs = Inputs(
                self._engine.block_tokens,
                self._settings.load_patience,
                adapter_folder=block_hash.adapter_folder,
                adapter_dtype=block_hash.adapter_dtype(vllm_config),
                extra_keys=block_hash.extra_keys,
            )
            self._scheduling = Scheduling(
                Duties(), self._engine.block_tokens, model="", inputs=self._inputs, resets=self._resets
            )

    # ---- worker ----

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Take the cache, attach to the agent, and see whether both fit."""
        engine = self._engine
        order = f"{machine(kv_caches)} {attention_backends(self._vllm_config, kv_caches)}".strip()
        cache = Cache(kv_caches, engine, order)
        identity = self._identity() if engine.rank == 0 else None
        attached = self._attached(engine.rank, self._settings.start_patience)
        if BLOCKS in attached.info.sides:  # This engine's process is the only one that may have blocks there.
            attached.close()
            attached = self._attached(engine.rank, self._settings.start_patience, adopts=True)
        home: Home | None = None
        try:
            if BLOCKS not in attached.info.sides and any(
                kind_of_device(tensor) != "cpu" for tensor in kv_caches.values()
            ):
                log.info("kvferry: %s", attached.pin_memory().text)
            info = attached.info
            layers = info.layers if info.layers > 1 else 0  # A chunk of one layer is one page in any case.
            duties = Duties.of(engine.role, info.sides, layers)
            home = Home(attached, cache, engine) if duties.own else None
            blocks = 1 if home else chunk_blocks(cache, engine, info.page_bytes, info.shape, layers)
            cache.stripes = info.shape[0]
            names = Names(
                model=engine.model,
                ranks=engine.ranks,
                rank=engine.rank,
                dtype=dtype_name(cache.dtype),
                layout=cache.layout,
                chunk=blocks * engine.block_tokens,
            )
            if duties.shares:
                check_directory(attached, names)
        except BaseException:
            if home is not None:
                home.leave()
            attached.close()
            raise
        self._untold = WorkerInfo(names, duties, identity, info.producer)
        if home is not None:
            self._working = Own(attached, cache, home, engine.rank, self._settings)
            return
        warn_of_small_pool(info.pages // max(1, layers) * names.chunk, engine.longest, info.pages * info.page_bytes)
        log.info("kvferry: chunks of %d tokens, %d bytes; layout: %s", names.chunk, info.page_bytes, names.layout)
        self._working = Working(attached, cache, names, blocks, self._settings, layers)

    def _identity(self) -> ModelIdentity:
        """Look at the model, and at all its weights: large ones that the Hub's client has not named take a while."""
        begun = time.monotonic()
        identity = model_identity(self._vllm_config, self._settings.weights)
        facts = "; ".join(f"{name}: {value}" for name, value in identity.facts)
        log.info("kvferry: the model is %s, found in %.1f s (%s)", identity.digest, time.monotonic() - begun, facts)
        return identity

    def handle_preemptions(self, kv_connector_metadata: Metadata) -> None:
        """Know what the step computes, before it writes blocks that were others'."""
        if self._working is not None:
            self._working.before(kv_connector_metadata.work)

    def bind_connector_metadata(self, connector_metadata: Metadata) -> None:
        """Know the work of the step. Every way through vLLM calls this before the forward pass."""
        super().bind_connector_metadata(connector_metadata)
        self._handled = sys.exc_info()[1]
        if self._working is not None:
            self._working.before(connector_metadata.work)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Begin with what the step asks for.

        vLLM calls this after the forward pass, or before it if another connector loads what the pass needs
        (SchedulerOutput.has_sync_kv_loads): nothing here depends on which.
        """
        del forward_context, kwargs
        if self._working is not None:
            self._working.begin(self._get_connector_metadata().work)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing: a request is not scheduled before its KV is there."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Have a layer go while the next one is computed, where agents push layer by layer; else nothing.

        Where a step is computed in several batches (dual batch overlap), the first call for a layer says nothing of
        the others' tokens. Then wait_for_save alone counts.
        """
        del kv_layer, attn_metadata, kwargs
        if self._working is not None and not self._engine.splits_steps:
            self._working.computed(layer_name)

    def wait_for_save(self) -> None:
        """Know that the forward pass is over, that of a draft model included. It waits for nothing.

        vLLM calls this also while an exception of the forward pass is on its way: then nothing of the step counts.
        """
        if self._working is not None:
            raised = sys.exc_info()[1]
            failed = raised is not None and raised is not self._handled
            self._working.end(self._get_connector_metadata().work, failed)
        self._handled = None

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """Say whose blocks were read, and whose are written or failed."""
        if self._working is None:
            return None, None
        sent, received = self._working.results()
        return sent or None, received or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Say which blocks are to be computed."""
        return set() if self._working is None else self._working.bad_blocks()

    def get_kv_connector_stats(self) -> Stats | None:
        """Say what was counted."""
        found = {} if self._working is None else self._working.counts.take()
        return Stats(data=found) if found else None

    def build_connector_worker_meta(self) -> WorkerInfos | None:
        """Tell the scheduler's side, once, how chunks are named and what there is to do, and if the agent is away."""
        untold, self._untold = self._untold, None
        told = WorkerInfos()
        if untold is not None:
            told.ranks[untold.names.rank] = untold
        if self._working is not None and self._working.away != self._away:
            self._away = self._working.away
            told.away[self._engine.rank] = self._away
        return told if told.ranks or told.away else None

    def shutdown(self) -> None:
        """Detach."""
        working, self._working = self._working, None
        finding, self._finding = self._finding, None
        for part in (working, finding, self._scheduling):
            if part is not None:
                part.close()

    # ---- scheduler ----

    @property
    def _of_scheduler(self) -> Scheduling:
        if self._scheduling is None:
            raise AssertionError("BUG: a worker's connector was asked what the scheduler's knows")
        return self._scheduling

    def _take(self, ranks: list[WorkerInfo]) -> None:
        """Know how chunks are named, and look for them at the agent of the first rank: others have the same ones."""
        told = ranks[0]
        if told.identity is None:
            raise AssertionError(f"BUG: rank {told.names.rank} spoke, and not the first one, which knows the model")
        self._told = True
        if told.duties.shares:
            self._finding = Finding(partial(self._attached, told.names.rank, self._settings.grace), told.names)
        tokens = self._engine.block_tokens
        pushes = Pushes(tokens, told.names.chunk) if told.duties.layers else None
        self._scheduling = Scheduling(
            told.duties,
            tokens,
            self._finding,
            pushes,
            Agreement(told.names, tokens, **dict(told.identity.facts)),
            model=told.identity.digest,
            inputs=self._inputs,
            resets=self._resets,
            names=told.names,
            producers=[rank.producer for rank in ranks],
        )

    def _attached(self, rank: int, patience: float, *, adopts: bool = False) -> client.Client:
        return client.connect(
            self._settings.socket_of(rank),
            name=f"vllm {self._engine.role}",
            timeout=patience,
            grace=self._settings.grace,
            adopts=adopts,
        )

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Say how much of a prompt is to be had. None, which has vLLM ask again: workers have said nothing yet."""
        if not self._told:
            return None, False
        return self._of_scheduler.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Request, blocks: Any, num_external_tokens: int) -> None:
        """Take a request's blocks."""
        self._of_scheduler.allocated(request, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Metadata:
        """Give what the workers are to do."""
        return Metadata(work=self._of_scheduler.step(scheduler_output))

    def update_connector_output(self, connector_output: Any) -> None:
        """Know what the workers have done."""
        said = connector_output.kv_connector_worker_meta
        if isinstance(said, WorkerInfos):
            if said.ranks:
                self._take([said.ranks[rank] for rank in sorted(said.ranks)])
            self._of_scheduler.know_away(said.away)
        self._of_scheduler.reported(connector_output.finished_recving)

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Send a request's KV, if it is to be sent."""
        return self._of_scheduler.finished(request, block_ids)

    def reset_cache(self) -> bool:
        """Use no KV from before: the engine may have other weights. It returns false if some is still being loaded."""
        return self._of_scheduler.reset()

    # ---- metrics ----

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Stats:
        """Make a report of what a worker said."""
        return Stats(data=dict(data or {}))

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: Mapping[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> PromMetrics:
        """Make the metrics."""
        return PromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


def check_directory(agent: client.Client, names: Names) -> None:
    """Refuse to share at an agent that asks no directory: without one nothing is ever loaded.

    A directory that is down now may come: that is only said.
    """
    try:
        agent.lookup(names.keys(Prompt((0,))))
    except Error as error:
        if error.code == Code.UNSUPPORTED:
            raise refused(
                "controller_reply_url of the agent",
                "none",
                "a directory",
                "run kvferry directory, and set enable_controller, controller_pull_url and controller_reply_url in the "
                "agent's file: engines share what a directory knows of",
            ) from error
        log.warning("kvferry: what other engines have is not found while no directory answers: %s", error)


def warn_of_small_pool(tokens: int, longest: int, size: int) -> None:
    """Say that the pool of an agent, of so many tokens and bytes, has no room for the longest prompt."""
    if 0 < tokens < longest:
        log.warning(
            "kvferry: the agent's pool has room for %d tokens, and a prompt may have %d (max_model_len): longer ones "
            "are computed; set pd_buffer_size to %d or more",
            tokens,
            longest,
            -(-size * longest // tokens),
        )


def engine_of(config: Any, cache: Any) -> Engine:
    """Read what vLLM's configuration says of an engine."""
    parallel, groups = config.parallel_config, cache.kv_cache_groups
    if not groups:
        raise refused("kv_cache_groups", "0", "1", "use a model with attention")
    spec = groups[0].kv_cache_spec
    splits = {
        name: getattr(parallel, name, 1)
        for name in ("pipeline_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size")
    }
    return Engine(
        model=model_label(config),
        role=str(config.kv_transfer_config.kv_role),
        ranks=parallel.tensor_parallel_size,
        rank=parallel.rank % parallel.tensor_parallel_size,
        splits=splits,
        groups=len(groups),
        cache=type(spec).__name__,
        block_tokens=spec.block_size,
        block_bytes=spec.page_size_bytes,
        blocks=cache.num_blocks,
        failures=config.kv_transfer_config.kv_load_failure_policy,
        longest=int(config.model_config.max_model_len),
        splits_steps=bool(getattr(parallel, "use_ubatching", False)),
    )


def machine(layers: Mapping[str, Any]) -> str:
    """Say what the order of bytes in a block depends on, beside what tensors say: of a CPU, what it can do."""
    for tensor in layers.values():
        if (kind := kind_of_device(tensor)) != "cpu":
            return kind
    torch = importlib.import_module("torch")
    amx = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return f"{torch.backends.cpu.get_cpu_capability()}{' amx' if amx is not None and amx() else ''}"
