"""The scheduler's side: it decides which requests have their KV sent or loaded. It calls no agent and never blocks."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kvferry.traces import parse_traceparent
from kvferry.vllm.agreement import Agreement
from kvferry.vllm.cache_resets import CacheResets
from kvferry.vllm.log import log
from kvferry.vllm.push_tracker import PushTracker, StepOutput
from kvferry.vllm.request_inputs import RequestInputs, UnnamableInputError, prompt_length, tenant_of_request
from kvferry.vllm.settings import ConnectorDuties
from kvferry.vllm.step_work import AbandonedLoad, CancelledSend, Load, Prompt, Push, Receiver, Save, Store, Work

if TYPE_CHECKING:
    from kvferry.vllm.chunk_names import ChunkNames

# The statuses of requests that were computed completely.
_COMPLETED_STATUSES = ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")

_TEXT_MAX = 128
# How many used request ids are remembered, and how many differences are logged once.
_MAX_USED_NAMES, _MAX_DIFFERENCES = 65_536, 64
_PORT_MAX = (1 << 16) - 1
# The address where a rank accepts registrations, as an agent reports it.
_PRODUCER = re.compile(r"[^\s:][^\s]{0,253}:[0-9]{1,5}:[0-9]{1,5}")


class Request(Protocol):
    """The members of vLLM's request that are used."""

    request_id: str
    prompt_token_ids: Sequence[int] | None
    num_computed_tokens: int
    kv_transfer_params: Any
    status: Any


class Finder(Protocol):
    """The methods of kvferry.vllm.prefix_lookup that are used."""

    def available_tokens(self, request: str, prompt: Prompt) -> int | None:
        """Return how many tokens are available; None while that is not known."""

    def forget_request(self, request: str) -> None:
        """Drop the lookup of a request."""

    def forget_all(self) -> None:
        """Drop all lookups."""


class ParamsError(ValueError):
    """The kv_transfer_params of a request are invalid."""


class ConnectorScheduler:
    """See the module. One object serves all requests of an engine."""

    def __init__(
        self,
        duties: ConnectorDuties,
        block_tokens: int,
        finder: Finder | None = None,
        pushes: PushTracker | None = None,
        agreement: Agreement | None = None,
        *,
        model: str,
        inputs: RequestInputs,
        resets: CacheResets,
        names: ChunkNames | None = None,
        producers: Sequence[str] = (),
    ) -> None:
        """Serve an engine.

        Args:
            duties: what the engine does.
            block_tokens: tokens of a block.
            finder: looks up shared KV, if the engine shares.
            pushes: tracks layer-by-layer pushes, if the engine has any.
            agreement: the facts in which other engines must agree; None if they are not known.
            model: the digest of the model's identity, on which all names depend.
            inputs: names the inputs of requests.
            resets: the resets of the cache.
            names: names the content of lent blocks.
            producers: where the ranks accept registrations, if the engine lends its blocks.
        """
        self._duties = duties
        self._block_tokens = block_tokens
        self._finder = finder
        self._pushes = pushes
        self._model = model
        self._inputs = inputs
        self._resets = resets
        self._names = names
        self._producers = tuple(producers)
        # The reset epoch in which a request first had blocks. All later computations may depend on these blocks.
        self._first_epochs: dict[str, str] = {}
        self._next_work = Work()
        # Requests whose load was handled, once: KV that did not arrive is computed.
        self._handled_loads: set[str] = set()
        # Loads that the workers have not reported yet.
        self._open_loads: set[str] = set()
        self._agreement = agreement
        # Differences from other engines, each logged once.
        self._differences: dict[str, None] = {}
        # The names of sent requests at the agents, by local id; and the names that were used before.
        self._send_names: dict[str, str] = {}
        self._used_names: dict[str, None] = {}
        # Ranks whose agents are unreachable: nothing is promised meanwhile.
        self._away_ranks: frozenset[int] = frozenset()
        # Matches of requests without blocks: tokens that are local, and tokens that can be loaded.
        self._matches: dict[str, tuple[int, int]] = {}

    # ---- in the order of a request's lifetime ----

    def match_tokens(self, request: Request, computed: int) -> tuple[int | None, bool]:
        """Return how many tokens after the local ones can be loaded, and whether they are loaded asynchronously.

        None means that the result is not known yet. The call changes nothing, because vLLM may call again and may not
        have the blocks.
        """
        self._matches.pop(request.request_id, None)
        end: int | None = self._loadable_tokens(request)
        looks_up = not end and self._looks_up(request)
        if end or looks_up or self._has_receiver(request):
            if not self._inputs.is_ready(request):
                return None, False
            if not self._can_be_named(request):
                return 0, False
            if end and self._duties.own_blocks and not self._has_matching_content(request, end):
                return 0, False
        if looks_up and self._finder is not None:
            end = self._finder.available_tokens(
                request.request_id, self._shared_prompt(request, prompt_length(request))
            )
            if end is None:
                return None, False
        if not end or end <= computed:
            return 0, False
        self._matches[request.request_id] = (computed, end)
        return end - computed, True

    def handle_allocation(self, request: Request, blocks: Sequence[int], external: int) -> None:
        """Handle the allocation of a request's blocks, which include the blocks of external tokens to be loaded."""
        name = request.request_id
        current = self._first_epochs.setdefault(name, self._resets.epoch) == self._resets.epoch
        if self._pushes is not None and current:
            self._track_push(self._pushes, request)
        local_tokens, end = self._matches.pop(name, (0, 0))
        shared = self._looks_up(request)
        if shared and self._finder is not None:  # Once: KV that is not loaded now is computed.
            self._handled_loads.add(name)
            self._finder.forget_request(name)
        if external <= 0:
            if self._loadable_tokens(request):  # All of it is local. The sent KV is not needed.
                self._handled_loads.add(name)
                self._abandon_load(request)
            return
        end = min(end, local_tokens + external)
        first, end_block = local_tokens // self._block_tokens, -(-end // self._block_tokens)
        self._handled_loads.add(name)
        self._open_loads.add(name)
        prompt = self._shared_prompt(request, end) if shared else self._sent_prompt(request, end)
        # Peers see the id and know engines by other names, so it must be unique.
        shared_id = uuid.uuid4().hex if shared else _shared_request_id(request)
        producers = () if shared else self._find_producers(request)
        self._next_work.loads.append(
            Load(name, shared_id, prompt, tuple(blocks[first:end_block]), first, shared, producers, _trace_of(request))
        )

    def take_step_work(self, output: StepOutput) -> Work:
        """Return the work of a step of vLLM, once."""
        work, self._next_work = self._next_work, Work()
        if self._pushes is not None:
            self._pushes.add_step(output, work)
        return work

    def handle_received(self, received: Sequence[str] | set[str] | None) -> None:
        """Handle the loads that workers report as ended."""
        self._open_loads.difference_update(received or ())

    def set_away_ranks(self, ranks: Mapping[int, bool]) -> None:
        """Update which agents of this engine are unreachable."""
        self._away_ranks = self._away_ranks - {rank for rank, is_away in ranks.items() if not is_away} | {
            rank for rank, is_away in ranks.items() if is_away
        }

    def finish_request(self, request: Request, blocks: Sequence[int]) -> tuple[bool, dict[str, Any] | None]:
        """Return whether a request's blocks are still needed, and the parameters for the decode engine."""
        name = request.request_id
        self._matches.pop(name, None)
        current = self._first_epochs.pop(name, self._resets.epoch) == self._resets.epoch
        if name in self._open_loads:  # It was aborted. vLLM keeps the blocks until the worker has reported the load.
            self._open_loads.discard(name)
            self._next_work.cancels.append(name)
        elif self._is_sent_here(request):  # Chunks that still arrive are not needed, nor is a notice of failure.
            self._abandon_load(request)
        self._handled_loads.discard(name)
        if self._finder is not None:
            self._finder.forget_request(name)
        try:
            prompt = self._queue_send(request, blocks, current)
        except ParamsError as error:
            log.warning("request %s: %s; its KV is not sent", name, error)
            prompt = None
        is_stored = current and self._queue_store(request, blocks)
        self._inputs.forget_request(name)
        attempt = self._send_names.pop(name, None)
        if prompt is None:
            return is_stored, None
        params = dict(_transfer_params(request))
        params.pop("do_remote_decode", None)
        params |= {"do_remote_prefill": True, "remote_tokens": len(prompt.tokens), "attempt": attempt}
        if self._agreement is not None:
            params["agreement"] = self._agreement.facts
        if self._duties.own_blocks:
            params |= {"producers": list(self._producers), "content": self._content_key(prompt)}
        return True, params

    def reset_cache(self) -> bool:
        """Stop using KV that was computed before, because the engine's weights may have changed.

        From now on shared chunks have names that only this engine uses. Requests in progress are neither sent nor
        stored, and requests that arrived before load nothing that is sent for them. It returns False if loads of
        earlier KV are in progress.
        """
        self._resets.record_reset()
        if self._finder is not None:
            self._finder.forget_all()
        for push, is_announced in self._pushes.end_all_pushes() if self._pushes is not None else ():
            if is_announced:
                self._next_work.drops.append(push.local_id)
            else:
                self._next_work.cancelled_sends.append(
                    CancelledSend(push.request, push.receiver, tenant=push.prompt.tenant)
                )
        log.info(
            "the cache was reset: earlier KV is not used, and KV stored from now on is found by this engine "
            "only, until it is restarted"
        )
        if self._open_loads:
            log.warning("the cache was reset while %d requests load earlier KV: reset it again", len(self._open_loads))
        return not self._open_loads

    def close(self) -> None:
        """Shut down."""
        self._inputs.close()

    # ---- internal ----

    def _sent_prompt(self, request: Request, end: int) -> Prompt:
        """Return the prompt that names the KV sent for a request."""
        return self._inputs.make_prompt(request, end, model=self._model)

    def _shared_prompt(self, request: Request, end: int) -> Prompt:
        """Return the prompt that names the shared KV of a request."""
        if not self._resets.epoch:
            return self._sent_prompt(request, end)
        return self._inputs.make_prompt(request, end, model=self._model, epoch=self._resets.epoch)

    def _can_be_named(self, request: Request) -> bool:
        """Report whether the KV of a request can be named, and log if it cannot."""
        try:
            self._inputs.check_inputs(request)
        except UnnamableInputError as error:
            self._inputs.log_refusal(request, error)
            return False
        return True

    def _has_receiver(self, request: Request) -> bool:
        """Report whether the KV of a request is sent to a decode engine. Invalid parameters are logged when it ends."""
        try:
            return self._find_receiver(request) is not None
        except ParamsError:
            return False

    def _loadable_tokens(self, request: Request) -> int:
        """Return how many tokens of a prompt can be loaded; 0 if nothing is loaded or the load was handled already."""
        params = _transfer_params(request)
        if not self._duties.loads or not params.get("do_remote_prefill") or request.request_id in self._handled_loads:
            return 0
        try:
            _shared_request_id(request)
            if self._duties.own_blocks and not self._find_producers(request):
                self._handled_loads.add(
                    request.request_id
                )  # The request arrived before its prefill engine's response, or that engine lends no blocks.
                return 0
            tokens = _read_number(params, "remote_tokens", 1 << 40) if "remote_tokens" in params else 1 << 40
        except ParamsError as error:
            log.warning("request %s: %s; it is computed", request.request_id, error)
            self._handled_loads.add(request.request_id)
            return 0
        if getattr(request, "arrival_time", float("inf")) <= self._resets.last_time:
            log.info("request %s came before the cache was reset; it is computed", request.request_id)
            self._handled_loads.add(request.request_id)
            self._abandon_load(request, "the decode engine's cache was reset")
            return 0
        if difference := self._find_difference(params):
            self._handled_loads.add(request.request_id)
            self._abandon_load(request, difference)
            return 0
        return min(tokens, prompt_length(request))

    def _abandon_load(self, request: Request, reason: str = "") -> None:
        """Drop the KV that is sent for a request, and give its sender the reason."""
        try:
            producers = self._find_producers(request)
        except ParamsError:
            producers = ()
        self._next_work.abandons.append(
            AbandonedLoad(_shared_request_id(request), reason, tenant_of_request(request), producers)
        )

    def _find_producers(self, request: Request) -> tuple[str, ...]:
        """Return where the ranks that lend a request's KV accept registrations; empty if no blocks are lent to this
        engine.
        """
        if not self._duties.own_blocks:
            return ()
        producers = _transfer_params(request).get("producers", ())
        if not producers:
            return ()
        if (
            not isinstance(producers, (list, tuple))
            or len(producers) != len(self._producers)
            or not all(isinstance(text, str) and _PRODUCER.fullmatch(text) for text in producers)
        ):
            want = f"{len(self._producers)} of host:port:port, as its prefill engine reported"
            raise ParamsError(f"producers: {producers!r:.80}, want {want}")
        return tuple(producers)

    def _has_matching_content(self, request: Request, end: int) -> bool:
        """Report whether the lent blocks are the KV of this prompt. Agents cannot compare them, because blocks have
        no names.
        """
        if _transfer_params(request).get("content") == self._content_key(self._sent_prompt(request, end)):
            return True
        log.warning("request %s: its prefill engine computed another prompt, or with other inputs", request.request_id)
        self._handled_loads.add(request.request_id)
        self._abandon_load(request)
        return False

    def _content_key(self, prompt: Prompt) -> str:
        """Return a name for everything that the KV of a prompt depends on: the key of its last chunk."""
        if self._names is None:
            raise AssertionError("BUG: blocks are lent without names")
        return self._names.chunk_keys(prompt)[-1]

    def _find_difference(self, params: Mapping[str, Any]) -> str:
        """Return how the engine that sent a request's KV differs from this one; empty if its KV is usable."""
        difference = "" if self._agreement is None else self._agreement.find_difference(params.get("agreement"))
        if difference and difference not in self._differences:
            log.warning("KV of another engine cannot be used here, and its requests are computed: %s", difference)
            if len(self._differences) < _MAX_DIFFERENCES:
                self._differences[difference] = None
        return difference

    def _choose_send_name(self, request: Request, receiver: Receiver) -> str:
        """Return the name of a sent request at the agents; no other attempt has the same name.

        It is the id of disagg_spec, for which a decode engine may wait already, unless that id was used before. Then it
        is a new id, which the decode engine receives with the parameters, and waiters for the old id are notified.
        """
        local_id = request.request_id
        if (name_before := self._send_names.get(local_id)) is not None:
            return name_before
        name = shared_id = _shared_request_id(request)
        if shared_id in self._used_names:
            name = uuid.uuid4().hex
            self._next_work.cancelled_sends.append(
                CancelledSend(
                    shared_id,
                    receiver,
                    "its request id was used before; its KV is sent under another id",
                    tenant_of_request(request),
                )
            )
        self._used_names[shared_id] = None
        if len(self._used_names) > _MAX_USED_NAMES:
            del self._used_names[next(iter(self._used_names))]
        self._send_names[local_id] = name
        return name

    def _is_sent_here(self, request: Request) -> bool:
        """Report whether a request's KV is sent to this engine."""
        try:
            return self._duties.loads and bool(
                _transfer_params(request).get("do_remote_prefill") and _shared_request_id(request)
            )
        except ParamsError:
            return False

    def _looks_up(self, request: Request) -> bool:
        """Report whether shared KV is looked up for a request: once, and only if no KV is sent for it."""
        sent = _transfer_params(request).get("do_remote_prefill")
        return self._duties.shares and not sent and request.request_id not in self._handled_loads

    def _queue_store(self, request: Request, blocks: Sequence[int]) -> bool:
        """Store a prompt's whole chunks; report whether its blocks are still needed for that."""
        if not self._duties.shares or request.status.name not in _COMPLETED_STATUSES:
            return False
        try:
            prompt = self._shared_prompt(request, min(prompt_length(request), request.num_computed_tokens))
        except UnnamableInputError as error:
            self._inputs.log_refusal(request, error)
            return False
        full_blocks = len(prompt.tokens) // self._block_tokens
        if not full_blocks or len(blocks) < full_blocks:
            return False
        self._next_work.stores.append(Store(request.request_id, prompt, tuple(blocks[:full_blocks])))
        return True

    def _track_push(self, pushes: PushTracker, request: Request) -> None:
        """Track the push of a request that starts to be computed. Invalid parameters are logged when it ends."""
        try:
            receiver = self._find_receiver(request)
            if receiver is not None and not self._away_ranks:
                prompt = self._sent_prompt(request, prompt_length(request))
                name = self._choose_send_name(request, receiver)
                push = Push(request.request_id, name, prompt, receiver, _trace_of(request))
                pushes.track_push(push, lambda: request.num_computed_tokens)
        except (ParamsError, UnnamableInputError):
            return

    def _find_receiver(self, request: Request) -> Receiver | None:
        """Return the receiver of a request's KV; None if it has none."""
        params = _transfer_params(request)
        if not self._duties.saves or not params or "disagg_spec" not in params or params.get("do_remote_prefill"):
            return None
        if not prompt_length(request):
            raise ParamsError("prompt_token_ids: none, want tokens")
        return read_receiver(params)

    def _queue_send(self, request: Request, blocks: Sequence[int], current: bool) -> Prompt | None:
        """Send what a request's decode engine needs, and return its prompt; None if nothing is sent.

        A request that is not current was computed in part before the cache was reset.
        """
        if self._pushes is not None and not current:
            return None  # It was aborted when the cache was reset.
        completed = request.status.name in _COMPLETED_STATUSES and current
        if self._pushes is not None and completed:
            self._pushes.add_last_part(request.request_id, blocks, self._next_work)
        if self._pushes is not None and (push := self._pushes.end_push(request.request_id)) is not None:
            (self._next_work.ends if completed else self._next_work.drops).append(request.request_id)
            return push.prompt if completed else None
        receiver = self._find_receiver(request)
        if receiver is None:
            return None
        shared_id = self._choose_send_name(request, receiver)
        prompt, reason = self._sendable_prompt(request, blocks, completed)
        if prompt is None:
            self._next_work.cancelled_sends.append(
                CancelledSend(shared_id, receiver, reason, tenant_of_request(request), failed=bool(reason))
            )
            return None
        needed = -(-len(prompt.tokens) // self._block_tokens)
        self._next_work.saves.append(
            Save(request.request_id, shared_id, prompt, tuple(blocks[:needed]), receiver, _trace_of(request))
        )
        return prompt

    def _sendable_prompt(self, request: Request, blocks: Sequence[int], completed: bool) -> tuple[Prompt | None, str]:
        """Return the prompt whose KV can be sent; or None and the reason, which its decode engine receives."""
        if not completed:
            return None, ""
        if self._away_ranks:
            log.warning(
                "request %s: the agent of rank %d is unreachable; its KV is not sent",
                request.request_id,
                min(self._away_ranks),
            )
            return None, "the agent of its prefill engine is unreachable"
        try:
            prompt = self._sent_prompt(request, prompt_length(request))
        except UnnamableInputError as error:
            self._inputs.log_refusal(request, error)
            return None, f"its KV cannot be named: {error}"
        needed = -(-len(prompt.tokens) // self._block_tokens)
        if self._pushes is not None or request.num_computed_tokens < len(prompt.tokens) or len(blocks) < needed:
            log.warning("request %s: its prompt is not computed; its KV is not sent", request.request_id)
            return None, "its prompt was not computed"
        return prompt, ""


def _transfer_params(request: Request) -> Mapping[str, Any]:
    """Return the KV parameters of a request. vLLM also reads them from vllm_xargs without a type check."""
    params = request.kv_transfer_params
    return params if isinstance(params, Mapping) else {}


def _trace_of(request: Request) -> bytes:
    """Return the span of a request, from the headers that vLLM's server keeps of traced requests."""
    headers = getattr(request, "trace_headers", None)
    parent = headers.get("traceparent") if isinstance(headers, Mapping) else None
    return parse_traceparent(parent if isinstance(parent, str) else None)


def _disagg_spec(params: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = params.get("disagg_spec")
    if not isinstance(spec, Mapping):
        raise ParamsError(f"kv_transfer_params.disagg_spec: {type(spec).__name__}, want an object; see kvferry.vllm")
    return spec


def _shared_request_id(request: Request) -> str:
    """Return the id of a request at the agents of both engines: that of its attempt, if its prefill engine chose
    one.
    """
    params = _transfer_params(request)
    field, name = "disagg_spec.req_id", _disagg_spec(params).get("req_id")
    if params.get("do_remote_prefill") and params.get("attempt") is not None:
        field, name = "attempt", params["attempt"]
    if not isinstance(name, str) or not 0 < len(name.encode()) <= _TEXT_MAX:
        raise ParamsError(
            f"{field}: {name!r:.80}, want a text of 1 to {_TEXT_MAX} bytes; give both engines the same id"
        )
    return name


def _read_number(params: Mapping[str, Any], name: str, maximum: int) -> int:
    value = params.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
        raise ParamsError(f"{name}: {value!r:.80}, want a number from 1 to {maximum}; see kvferry.vllm")
    return value


def read_receiver(params: Mapping[str, Any]) -> Receiver:
    """Read the receiver of a decode engine. The ports are lists with one port for each rank; a number is a list of
    one.
    """
    spec = _disagg_spec(params)
    host = spec.get("receiver_host")
    if not isinstance(host, str) or not host:
        raise ParamsError(
            f"disagg_spec.receiver_host: {host!r:.80}, want a host; give pd_peer_host of the decode's agent"
        )
    ports = []
    for name in ("receiver_init_port", "receiver_alloc_port"):
        value = spec.get(name)
        values = value if isinstance(value, (list, tuple)) else [value]
        ports.append(tuple(_read_number({name: port}, name, _PORT_MAX) for port in values))
    if not ports[0] or len(ports[0]) != len(ports[1]):
        raise ParamsError("disagg_spec: its lists of ports differ in length, or are empty; give a port for each rank")
    return Receiver(host, ports[0], ports[1])
