"""The scheduler's side: which requests have their KV sent or fetched. It talks to no agent, and never waits."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kvferry.vllm.agreement import Agreement
from kvferry.vllm.inputs import Inputs, UnnamedError, length_of
from kvferry.vllm.log import log
from kvferry.vllm.pushes import Output, Pushes
from kvferry.vllm.resets import Resets
from kvferry.vllm.settings import Duties
from kvferry.vllm.words import GivenUp, Gone, Load, Prompt, Push, Receiver, Save, Store, Work

# How a request ends of which all was computed that was asked for.
_WELL = ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")

_TEXT_MAX = 128
# Ids of requests that are remembered as used, and differences that are said once.
_USED, _DIFFERENCES = 65_536, 64
_PORT_MAX = (1 << 16) - 1


class Request(Protocol):
    """What is used of vLLM's request."""

    request_id: str
    prompt_token_ids: Sequence[int] | None
    num_computed_tokens: int
    kv_transfer_params: Any
    status: Any


class Finder(Protocol):
    """What is used of kvferry.vllm.finding."""

    def tokens(self, request: str, prompt: Prompt) -> int | None:
        """Say how many tokens are to be had; None while that is not known."""

    def forget(self, request: str) -> None:
        """Know that a request is not asked about any more."""

    def forget_all(self) -> None:
        """Know that no request is asked about any more by the names that it had."""


class ParamsError(ValueError):
    """The kv_transfer_params of a request are of no use."""


class Scheduling:
    """See the module. One object serves all requests of an engine."""

    def __init__(
        self,
        duties: Duties,
        block_tokens: int,
        finder: Finder | None = None,
        pushes: Pushes | None = None,
        agreement: Agreement | None = None,
        *,
        model: str,
        inputs: Inputs,
        resets: Resets,
    ) -> None:
        """Serve an engine. Where it shares, there is a finder; where its prompts go layer by layer, pushes.

        The agreement is what other engines must agree with for its KV to be of use to them; None: that is not known.
        Model is the digest of its model's identity: all names depend on it.
        """
        self._duties = duties
        self._block_tokens = block_tokens
        self._finder = finder
        self._pushes = pushes
        self._model = model
        self._inputs = inputs
        self._resets = resets
        # The epoch in which a request first had blocks. All that it computes later may rest on what those had.
        self._begun: dict[str, str] = {}
        self._next = Work()
        # Requests whose KV was asked for, once: what did not come then is computed.
        self._asked: set[str] = set()
        # Those of them whose worker has not said yet that it is done.
        self._open: set[str] = set()
        self._agreement = agreement
        # What differed between this engine and others, each said once.
        self._differences: dict[str, None] = {}
        # By which names agents know requests that are sent, by ours; and which names were used before.
        self._sent_as: dict[str, str] = {}
        self._used: dict[str, None] = {}
        # Agents of this engine, by rank, that are away: nothing is promised then.
        self._away: frozenset[int] = frozenset()
        # What was found before blocks are there for it: tokens that are here already, and all that are to be had.
        self._matched: dict[str, tuple[int, int]] = {}

    # ---- in the order of a request's life ----

    def matched(self, request: Request, computed: int) -> tuple[int | None, bool]:
        """Say how many tokens behind those that are here already are to be had, and that they come by themselves.

        None: that is not known yet. It changes nothing: vLLM may ask again, and may not have the blocks.
        """
        self._matched.pop(request.request_id, None)
        end: int | None = self._end(request)
        looks = not end and self._looks(request)
        if end or looks or self._sends(request):
            if not self._inputs.ready(request):
                return None, False
            if not self._named(request):
                return 0, False
        if looks and self._finder is not None:
            end = self._finder.tokens(request.request_id, self._shared_prompt(request, length_of(request)))
            if end is None:
                return None, False
        if not end or end <= computed:
            return 0, False
        self._matched[request.request_id] = (computed, end)
        return end - computed, True

    def allocated(self, request: Request, blocks: Sequence[int], external: int) -> None:
        """Know the blocks of a request: with external tokens those that are to be filled are among them."""
        name = request.request_id
        current = self._begun.setdefault(name, self._resets.epoch) == self._resets.epoch
        if self._pushes is not None and current:
            self._follow(self._pushes, request)
        here, end = self._matched.pop(name, (0, 0))
        shared = self._looks(request)
        if shared and self._finder is not None:  # Once: what is not had now is computed.
            self._asked.add(name)
            self._finder.forget(name)
        if external <= 0:
            if self._end(request):  # All of it is here. What was sent waits for nobody.
                self._asked.add(name)
                self._next.abandons.append(GivenUp(_shared_name(request)))
            return
        end = min(end, here + external)
        first, behind = here // self._block_tokens, -(-end // self._block_tokens)
        self._asked.add(name)
        self._open.add(name)
        prompt = self._shared_prompt(request, end) if shared else self._prompt(request, end)
        # Peers are told of it, and know engines by other names than we do: it must be nobody else's.
        both = uuid.uuid4().hex if shared else _shared_name(request)
        self._next.loads.append(Load(name, both, prompt, tuple(blocks[first:behind]), first, shared))

    def step(self, output: Output) -> Work:
        """Give what there is to do, once, with a step of vLLM's."""
        work, self._next = self._next, Work()
        if self._pushes is not None:
            self._pushes.step(output, work)
        return work

    def reported(self, received: Sequence[str] | set[str] | None) -> None:
        """Know whose loads are over, well or not."""
        self._open.difference_update(received or ())

    def know_away(self, ranks: Mapping[int, bool]) -> None:
        """Know which agents of this engine are away, and which are back, of those of which that has changed."""
        self._away = self._away - {rank for rank, away in ranks.items() if not away} | {
            rank for rank, away in ranks.items() if away
        }

    def finished(self, request: Request, blocks: Sequence[int]) -> tuple[bool, dict[str, Any] | None]:
        """Say whether a request's blocks are still needed, and what the decode engine is to be told."""
        name = request.request_id
        self._matched.pop(name, None)
        current = self._begun.pop(name, self._resets.epoch) == self._resets.epoch
        if name in self._open:  # It was aborted. vLLM keeps the blocks until the worker has reported it.
            self._open.discard(name)
            self._next.cancels.append(name)
        elif self._sent_here(request):  # What still comes of it waits for nobody, be it the word that it failed.
            self._next.abandons.append(GivenUp(_shared_name(request)))
        self._asked.discard(name)
        if self._finder is not None:
            self._finder.forget(name)
        try:
            prompt = self._sent(request, blocks, current)
        except ParamsError as error:
            log.warning("request %s: %s; its KV goes nowhere", name, error)
            prompt = None
        stored = current and self._stored(request, blocks)
        self._inputs.forget(name)
        attempt = self._sent_as.pop(name, None)
        if prompt is None:
            return stored, None
        params = dict(_params(request))
        params.pop("do_remote_decode", None)
        params |= {"do_remote_prefill": True, "remote_tokens": len(prompt.tokens), "attempt": attempt}
        if self._agreement is not None:
            params["agreement"] = self._agreement.words
        return True, params

    def reset(self) -> bool:
        """Have no KV used that was computed before, because the engine may have other weights from now on.

        Shared chunks have names of this engine's own from now on. Requests that are being computed are neither sent
        nor stored; those that came before load nothing that is sent for them. It returns false if loads of KV from
        before are under way.
        """
        self._resets.add()
        if self._finder is not None:
            self._finder.forget_all()
        for push, begun in self._pushes.end_all() if self._pushes is not None else ():
            if begun:
                self._next.drops.append(push.ours)
            else:
                self._next.gone.append(Gone(push.request, push.receiver))
        log.info(
            "the cache was reset: KV from before is not used, and what is stored from now on is found by this engine "
            "alone, until it is started anew"
        )
        if self._open:
            log.warning("the cache was reset while %d requests load KV from before: reset it again", len(self._open))
        return not self._open

    def close(self) -> None:
        """End."""
        self._inputs.close()

    # ---- within ----

    def _prompt(self, request: Request, end: int) -> Prompt:
        """Give what names the KV that is sent for a request."""
        return self._inputs.prompt(request, end, model=self._model)

    def _shared_prompt(self, request: Request, end: int) -> Prompt:
        """Give what names the KV of a request where engines share."""
        if not self._resets.epoch:
            return self._prompt(request, end)
        return self._inputs.prompt(request, end, model=self._model, epoch=self._resets.epoch)

    def _named(self, request: Request) -> bool:
        """Say whether the KV of a request can be named, and tell people if it cannot."""
        try:
            self._inputs.check(request)
        except UnnamedError as error:
            self._inputs.refuse(request, error)
            return False
        return True

    def _sends(self, request: Request) -> bool:
        """Say whether the KV of a request is to go to a decode engine. What is wrong with it is said when it ends."""
        try:
            return self._receiver(request) is not None
        except ParamsError:
            return False

    def _end(self, request: Request) -> int:
        """Say how many tokens of a prompt can be had; 0 where nothing is to be fetched, or was already."""
        params = _params(request)
        if not self._duties.loads or not params.get("do_remote_prefill") or request.request_id in self._asked:
            return 0
        try:
            _shared_name(request)
            tokens = _number(params, "remote_tokens", 1 << 40) if "remote_tokens" in params else 1 << 40
        except ParamsError as error:
            log.warning("request %s: %s; it is computed", request.request_id, error)
            self._asked.add(request.request_id)
            return 0
        if getattr(request, "arrival_time", float("inf")) <= self._resets.at:
            log.info("request %s came before the cache was reset; it is computed", request.request_id)
            self._asked.add(request.request_id)
            self._next.abandons.append(GivenUp(_shared_name(request), "the decode engine's cache was reset"))
            return 0
        if differs := self._differs(params):
            self._asked.add(request.request_id)
            self._next.abandons.append(GivenUp(_shared_name(request), differs))
            return 0
        return min(tokens, length_of(request))

    def _differs(self, params: Mapping[str, Any]) -> str:
        """Say in what the engine that sent a request's KV differs from this one; nothing: its KV is of use."""
        differs = "" if self._agreement is None else self._agreement.difference(params.get("agreement"))
        if differs and differs not in self._differences:
            log.warning("KV of another engine is of no use here, and its requests are computed: %s", differs)
            if len(self._differences) < _DIFFERENCES:
                self._differences[differs] = None
        return differs

    def _name_sent(self, request: Request, receiver: Receiver) -> str:
        """Say by which name agents know a request that is sent: one that no other attempt has.

        It is that of disagg_spec, by which a decode engine may wait already, unless that was used before. Then it is a
        new one, which the decode engine is told, and who waits by the old one is told that it waits in vain.
        """
        ours = request.request_id
        if (known := self._sent_as.get(ours)) is not None:
            return known
        name = both = _shared_name(request)
        if both in self._used:
            name = uuid.uuid4().hex
            self._next.gone.append(Gone(both, receiver, "its request id was used before; its KV goes by another one"))
        self._used[both] = None
        if len(self._used) > _USED:
            del self._used[next(iter(self._used))]
        self._sent_as[ours] = name
        return name

    def _sent_here(self, request: Request) -> bool:
        """Say whether a request's KV is sent to this engine."""
        try:
            return self._duties.loads and bool(_params(request).get("do_remote_prefill") and _shared_name(request))
        except ParamsError:
            return False

    def _looks(self, request: Request) -> bool:
        """Say whether a request's KV is looked for where engines share it: once, and if it is not sent for it."""
        sent = _params(request).get("do_remote_prefill")
        return self._duties.shares and not sent and request.request_id not in self._asked

    def _stored(self, request: Request, blocks: Sequence[int]) -> bool:
        """Have a prompt's whole chunks stored; say whether its blocks are still needed for that."""
        if not self._duties.shares or request.status.name not in _WELL:
            return False
        try:
            prompt = self._shared_prompt(request, min(length_of(request), request.num_computed_tokens))
        except UnnamedError as error:
            self._inputs.refuse(request, error)
            return False
        whole = len(prompt.tokens) // self._block_tokens
        if not whole or len(blocks) < whole:
            return False
        self._next.stores.append(Store(request.request_id, prompt, tuple(blocks[:whole])))
        return True

    def _follow(self, pushes: Pushes, request: Request) -> None:
        """Have a request that begins to be computed sent meanwhile. What is wrong with it is said when it ends."""
        try:
            receiver = self._receiver(request)
            if receiver is not None and not self._away:
                prompt = self._prompt(request, length_of(request))
                push = Push(request.request_id, self._name_sent(request, receiver), prompt, receiver)
                pushes.add(push, lambda: request.num_computed_tokens)
        except (ParamsError, UnnamedError):
            return

    def _receiver(self, request: Request) -> Receiver | None:
        """Say where a request's KV is to go; None: nowhere."""
        params = _params(request)
        if not self._duties.saves or not params or "disagg_spec" not in params or params.get("do_remote_prefill"):
            return None
        if not length_of(request):
            raise ParamsError("prompt_token_ids: none, want tokens")
        return receiver_of(params)

    def _sent(self, request: Request, blocks: Sequence[int], current: bool) -> Prompt | None:
        """Have what a request's decode engine needs sent; give it, or None where nothing is sent.

        A request that is not current was computed in part before the cache was reset.
        """
        if self._pushes is not None and not current:
            return None  # It was given up when the cache was reset.
        well = request.status.name in _WELL and current
        if self._pushes is not None and well:
            self._pushes.rest(request.request_id, blocks, self._next)
        if self._pushes is not None and (push := self._pushes.end(request.request_id)) is not None:
            (self._next.ends if well else self._next.drops).append(request.request_id)
            return push.prompt if well else None
        receiver = self._receiver(request)
        if receiver is None:
            return None
        both = self._name_sent(request, receiver)
        prompt, why = self._saved(request, blocks, well)
        if prompt is None:
            self._next.gone.append(Gone(both, receiver, why, failed=bool(why)))
            return None
        needed = -(-len(prompt.tokens) // self._block_tokens)
        self._next.saves.append(Save(request.request_id, both, prompt, tuple(blocks[:needed]), receiver))
        return prompt

    def _saved(self, request: Request, blocks: Sequence[int], well: bool) -> tuple[Prompt | None, str]:
        """Give what names a request's KV that can be sent; or None, and why it cannot, which its decode is told."""
        if not well:
            return None, ""
        if self._away:
            log.warning(
                "request %s: the agent of rank %d is away; its KV goes nowhere", request.request_id, min(self._away)
            )
            return None, "the agent of its prefill engine is away"
        try:
            prompt = self._prompt(request, length_of(request))
        except UnnamedError as error:
            self._inputs.refuse(request, error)
            return None, f"its KV has no name: {error}"
        needed = -(-len(prompt.tokens) // self._block_tokens)
        if self._pushes is not None or request.num_computed_tokens < len(prompt.tokens) or len(blocks) < needed:
            log.warning("request %s: its prompt is not computed; its KV goes nowhere", request.request_id)
            return None, "its prompt was not computed"
        return prompt, ""


def _params(request: Request) -> Mapping[str, Any]:
    """Give what a request says of its KV: vLLM takes it from vllm_xargs, too, where no type is checked."""
    params = request.kv_transfer_params
    return params if isinstance(params, Mapping) else {}


def _spec(params: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = params.get("disagg_spec")
    if not isinstance(spec, Mapping):
        raise ParamsError(f"kv_transfer_params.disagg_spec: {type(spec).__name__}, want an object; see kvferry.vllm")
    return spec


def _shared_name(request: Request) -> str:
    """Say by which name the agents of both engines know a request: by that of its attempt, if its prefill gave one."""
    params = _params(request)
    where, name = "disagg_spec.req_id", _spec(params).get("req_id")
    if params.get("do_remote_prefill") and params.get("attempt") is not None:
        where, name = "attempt", params["attempt"]
    if not isinstance(name, str) or not 0 < len(name.encode()) <= _TEXT_MAX:
        raise ParamsError(f"{where}: {name!r:.80}, want a text of 1 to {_TEXT_MAX} bytes; give it both engines")
    return name


def _number(of: Mapping[str, Any], name: str, most: int) -> int:
    value = of.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ParamsError(f"{name}: {value!r:.80}, want a number from 1 to {most}; see kvferry.vllm")
    return value


def receiver_of(params: Mapping[str, Any]) -> Receiver:
    """Read where a decode engine receives. A port for each rank is a list; one number is a list of one."""
    spec = _spec(params)
    host = spec.get("receiver_host")
    if not isinstance(host, str) or not host:
        raise ParamsError(
            f"disagg_spec.receiver_host: {host!r:.80}, want a host; give pd_peer_host of the decode's agent"
        )
    ports = []
    for name in ("receiver_init_port", "receiver_alloc_port"):
        value = spec.get(name)
        each = value if isinstance(value, (list, tuple)) else [value]
        ports.append(tuple(_number({name: one}, name, _PORT_MAX) for one in each))
    if not ports[0] or len(ports[0]) != len(ports[1]):
        raise ParamsError("disagg_spec: its lists of ports differ in length, or are empty; give a port for each rank")
    return Receiver(host, ports[0], ports[1])
