"""A test double of the agents of a prefill and a decode host, and two engines over it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

import vllm_double as double
from kvferry.codes import Code
from kvferry.errors import lost_error, make_error
from kvferry.values import Lookup, Prefix
from vllm_engine import Engine, Request

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_TOKENS = double.CHUNK * double.BLOCK


class AgentsDouble:
    """Both agents: the chunks that were put and not consumed yet, and the faults to inject."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.chunks: dict[str, bytes] = {}
        self.claims: set[tuple[str, str]] = set()
        self.abandoned_requests: list[str] = []
        # Why requests were abandoned, and how they ended, as their senders reported it.
        self.abandon_reasons: dict[str, str] = {}
        self.request_ends: dict[str, tuple[Code, str]] = {}
        # By request: the tenants that ends and abandons named.
        self.named_tenants: dict[str, set[str]] = {}
        self.held_pages = 0
        self.is_dead = False
        self.is_holding = False
        self.refuse_after: int | None = None
        # Whether chunks are pushed layer by layer at each side, and how many layers of chunks were pushed.
        self.layers = {"kv_producer": 0, "kv_consumer": 0}
        self.layered_saves = 0
        self.prefills: set[str] = set()
        # Shared chunks, by the socket of the agent that has them; a directory knows all of them while it is up.
        self.shared: dict[str, dict[str, bytes]] = {}
        self.directory_up = True
        self.has_directory = True  # Whether the agents are configured with a directory.
        # Chunks that a pool has room for.
        self.pages = 1 << 20
        # The calls, with the names of their threads.
        self.calls: list[tuple[str, str]] = []
        # The traces of puts, gets and fetches.
        self.traces: list[bytes] = []

    def record_call(self, op: str) -> None:
        self.calls.append((threading.current_thread().name.rpartition("_")[0], op))
        if self.is_dead:
            raise lost_error(op)


class Pages:
    """Pages of either agent."""

    def __init__(self, wire: AgentsDouble, contents: list[bytearray], shortfall: Any = None) -> None:
        self._wire, self.contents, self.shortfall = wire, contents, shortfall
        self.released = self.put = self.void = False
        with wire.changed:
            wire.held_pages += 1

    def __len__(self) -> int:
        return len(self.contents)

    def __getitem__(self, index: int) -> Any:
        return SimpleNamespace(memory=lambda: np.frombuffer(self.contents[index], np.uint8))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.released:
            self.release()

    def check_valid(self, op: str) -> None:
        assert not self.released
        if self.void:
            raise lost_error(op)

    def release(self, timeout: float | None = None) -> None:
        assert not self.released
        assert timeout == 0 or not self.put  # Pages that were put may still be read for long.
        self.released = True
        with self._wire.changed:
            self._wire.held_pages -= 1


class Prefill:
    """A request that is pushed layer by layer: a chunk is complete when all of its layers are."""

    def __init__(self, agent: Agent, keys: list[str], request: str) -> None:
        assert request not in agent.wire.prefills
        self._agent, self._keys, self._request = agent, keys, request
        agent.wire.prefills.add(request)
        self._layers: dict[str, dict[int, bytes]] = {}
        self._firsts: dict[Pages, int] = {}
        self._tokens = [0] * double.LAYERS
        self._last: Pages | None = None
        self.released = False

    def __enter__(self) -> Prefill:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.released:
            self.abort()

    def check_valid(self, op: str) -> None:
        self._agent.wire.record_call(op)
        assert not self.released

    def save_layer(self, layer: int, tokens: int, pages: Pages) -> None:
        wire = self._agent.wire
        wire.record_call("save_layer")
        assert not self.released
        assert not pages.released
        assert self._tokens[layer] <= tokens
        first = self._firsts.setdefault(pages, self._tokens[layer] // CHUNK_TOKENS)
        for chunk in range(self._tokens[layer] // CHUNK_TOKENS, tokens // CHUNK_TOKENS):
            assert chunk >= first
            self._save(chunk, layer, bytes(pages.contents[(chunk - first) * double.LAYERS + layer]))
        self._tokens[layer], self._last = tokens, pages

    def _save(self, chunk: int, layer: int, content: bytes) -> None:
        wire = self._agent.wire
        if wire.refuse_after is not None:
            if wire.refuse_after == 0:
                raise make_error("save_layer", Code.PEER_LOST)
            wire.refuse_after -= 1
        key = self._keys[chunk]
        layers = self._layers.setdefault(key, {})
        if len(layers) == double.LAYERS:
            return  # The chunk is complete at the peer, and stays as it is.
        layers[layer] = content
        wire.layered_saves += 1
        if len(layers) == double.LAYERS:
            with wire.changed:
                half = len(content) // 2  # First the keys of all layers, then their values.
                each = [layers[i] for i in range(double.LAYERS)]
                wire.chunks[key] = b"".join([*(one[:half] for one in each), *(one[half:] for one in each)])
                wire.claims.add((self._request, key))
                wire.changed.notify_all()

    def preempt(self) -> None:
        self._agent.wire.record_call("preempt")
        self._firsts, self._last = {}, None
        self._layers = {key: layers for key, layers in self._layers.items() if len(layers) == double.LAYERS}
        self._tokens = [0] * double.LAYERS

    def finish(self, timeout: float) -> None:
        wire, (tokens, *others) = self._agent.wire, self._tokens
        assert timeout > 0
        wire.record_call("finish")
        with wire.changed:
            wire.changed.wait_for(lambda: not wire.is_holding, double.TIMEOUT)
        assert set(others) <= {tokens}
        chunk, rest = divmod(tokens, CHUNK_TOKENS)
        if rest:
            assert self._last is not None
            assert not self._last.released
            first = self._firsts[self._last]
            for layer in range(double.LAYERS):
                content = self._last.contents[(chunk - first) * double.LAYERS + layer]
                self._save(chunk, layer, bytes(content[: rest * len(content) // CHUNK_TOKENS]))
        assert all(len(self._layers.get(key, {})) == double.LAYERS for key in self._keys)
        self._end()

    def abort(self, *, wait: bool = True) -> None:
        del wait
        assert not self.released
        self._end()

    def _end(self) -> None:
        self.released = True
        self._agent.wire.prefills.discard(self._request)


@dataclass
class Agent:
    """A client of an agent."""

    wire: AgentsDouble
    path: str = ""
    layers: int = 0
    page_bytes: int = 0
    info: Any = field(default_factory=SimpleNamespace)

    def __post_init__(self) -> None:
        self.page_bytes = double.PAGE_BYTES // max(1, self.layers)
        sides = ("sender", "receiver") if self.layers else ("sender", "receiver", "sharing")
        pages = self.wire.pages * max(1, self.layers)
        vars(self.info).update(
            pages=pages,
            page_bytes=self.page_bytes,
            shape=double.SHAPE,
            sides=sides,
            layers=max(1, self.layers),
            producer="",
        )

    def reserve(self, count: int, *, key: str = "", timeout: float | None = None) -> Pages:
        del key, timeout
        self.wire.record_call("reserve")
        pages = Pages(self.wire, [bytearray(b"\xee" * self.page_bytes) for _ in range(count)])
        pages.put = self.layers > 0
        return pages

    def begin_prefill(self, *, keys: list[str], request: str, peer: Any, trace: bytes = b"") -> Prefill:
        assert self.layers
        assert peer
        self.wire.traces.append(trace)
        self.wire.record_call("begin_prefill")
        return Prefill(self, keys, request)

    def put(
        self,
        *,
        keys: list[str],
        pages: Pages,
        request: str,
        last_chunk_tokens: int,
        last_batch: bool,
        trace: bytes = b"",
        **_: Any,
    ) -> None:
        self.wire.traces.append(trace)
        assert isinstance(last_batch, bool)
        assert not self.layers
        with self.wire.changed:
            self.wire.changed.wait_for(lambda: not self.wire.is_holding, double.TIMEOUT)
            for i, (key, content) in enumerate(zip(keys, pages.contents, strict=True)):
                pages.put = False  # A caller may wait after an error.
                self.wire.record_call("put")
                if self.wire.refuse_after is not None:
                    if self.wire.refuse_after == 0:
                        raise make_error("put", Code.PEER_LOST)
                    self.wire.refuse_after -= 1
                part = last_chunk_tokens if last_chunk_tokens and i == len(keys) - 1 else double.CHUNK * double.BLOCK
                self.wire.chunks[key] = bytes(content[: part * self.page_bytes // (double.CHUNK * double.BLOCK)])
                self.wire.claims.add((request, key))
            pages.put = True
            self.wire.changed.notify_all()

    @property
    def attached(self) -> bool:
        return not self.wire.is_dead

    def end_request(self, *, request: str, peer: Any, code: int, reason: str, timeout: float, tenant: str = "") -> Any:
        assert peer
        assert timeout > 0
        self.wire.record_call("end")
        with self.wire.changed:
            self.wire.request_ends[request] = (Code(code), reason)
            self.wire.named_tenants.setdefault(request, set()).add(tenant)
            self.wire.changed.notify_all()
        return SimpleNamespace(done=lambda: True, result=lambda _: None)

    def _missing_error(self, op: str, request: str) -> Any:
        if request not in self.wire.request_ends:
            return make_error(op, Code.NOT_FOUND)
        return make_error(op, Code.NOT_SENT if self.wire.request_ends[request][0] == Code.OK else Code.SENDER_FAILED)

    def get(
        self,
        keys: list[str],
        *,
        request: str,
        timeout: float = 0,
        layered: bool = False,
        reply_margin: float | None = None,
        trace: bytes = b"",
    ) -> Pages:
        self.wire.traces.append(trace)
        assert layered == (self.layers > 0)
        assert reply_margin is None or reply_margin > 0

        def there() -> int:
            claimed = {key for _, key in self.wire.claims}
            # A get may read the chunks of other requests, but does not consume them.
            found = [key in claimed for key in keys]
            return found.index(False) if False in found else len(keys)

        with self.wire.changed:
            self.wire.changed.wait_for(
                lambda: self.wire.is_dead or there() == len(keys) or request in self.wire.request_ends, timeout
            )
            self.wire.record_call("get")
            found = keys[: there()]
            self.wire.claims.difference_update((request, key) for key in found)
            shortfall = None if len(found) == len(keys) else self._missing_error("get", request)
            contents = [self.wire.chunks[key] for key in found]
            if layered:
                contents = [_layer(content, layer) for content in contents for layer in range(double.LAYERS)]
            return Pages(self.wire, [bytearray(content) for content in contents], shortfall)

    def fetch(
        self,
        keys: list[str],
        scatter: Any,
        *,
        request: str,
        timeout: float,
        still_wanted: Any = lambda: True,
        reply_margin: float | None = None,
        trace: bytes = b"",
    ) -> Prefix:
        """Wait for all chunks before reading any. A fetch that never began to read changes nothing."""

        def there() -> bool:
            return self.wire.is_dead or all((request, key) in self.wire.claims for key in keys)

        with self.wire.changed:
            until = time.monotonic() + timeout
            assert reply_margin is None or reply_margin > 0
            while not self.wire.changed.wait_for(there, 0.01) and time.monotonic() < until:
                if not still_wanted():
                    return Prefix(0, make_error("fetch", Code.CANCELLED))
                if request in self.wire.request_ends:
                    break
            if not there():
                return Prefix(0, self._missing_error("fetch", request))
        with self.get(keys, request=request, trace=trace) as pages:
            # One chunk at a time, because the connector must count chunks.
            for i, content in enumerate(pages.contents):
                scatter(i, [np.frombuffer(content, np.uint8)])
            return Prefix(len(pages), pages.shortfall)

    def abandon(self, request: str, reason: str = "", tenant: str = "") -> None:
        self.wire.record_call("abandon")
        with self.wire.changed:
            self.wire.abandoned_requests.append(request)
            self.wire.named_tenants.setdefault(request, set()).add(tenant)
            if reason:
                self.wire.abandon_reasons[request] = reason
            self.wire.claims = {claim for claim in self.wire.claims if claim[0] != request}

    @property
    def stored(self) -> dict[str, bytes]:
        return self.wire.shared.setdefault(self.path, {})

    def contains(self, keys: list[str]) -> int:
        self.wire.record_call("contains")
        with self.wire.changed:
            claimed = {key for _, key in self.wire.claims}
        return _prefix_length(keys, {**self.stored, **dict.fromkeys(claimed, b"")})

    def lookup(self, keys: list[str]) -> Lookup:
        self.wire.record_call("lookup")
        if not self.wire.has_directory:
            raise make_error("lookup", Code.UNSUPPORTED)
        if not self.wire.directory_up:
            raise make_error("lookup", Code.UNREACHABLE)
        return Lookup(
            _prefix_length(keys, self.stored), max(_prefix_length(keys, other) for other in self.wire.shared.values())
        )

    def store(self, keys: list[str], pages: Pages) -> None:
        self.wire.record_call("store")
        for key, content in zip(keys, pages.contents, strict=True):
            assert key not in self.stored
            self.stored[key] = bytes(content)

    def shared_get(self, keys: list[str], *, request: str, timeout: float) -> Pages:
        assert request
        assert timeout > 0
        self.wire.record_call("shared_get")
        source = max(self.wire.shared.values(), key=lambda other: _prefix_length(keys, other))
        found = keys[: _prefix_length(keys, source)]
        self.stored.update((key, source[key]) for key in found)
        shortfall = None if len(found) == len(keys) else make_error("shared_get", Code.NOT_FOUND)
        return Pages(self.wire, [bytearray(source[key]) for key in found], shortfall)

    def close(self) -> None:
        pass


def _layer(chunk: bytes, layer: int) -> bytes:
    half = len(chunk) // 2 // double.LAYERS
    return b"".join(chunk[at * half : (at + 1) * half] for at in (layer, double.LAYERS + layer))


def _prefix_length(keys: list[str], of: dict[str, bytes]) -> int:
    found = [key in of for key in keys]
    return found.index(False) if False in found else len(keys)


class EnginePair:
    """A prefill and a decode engine."""

    def __init__(self, wire: AgentsDouble, budget: int = 1 << 20, blocks: int = 64, **extra: Any) -> None:
        import kvferry.vllm

        self.wire = wire
        connector = kvferry.vllm.KvferryConnector
        self.prefill = Engine(connector, "kv_producer", blocks, budget, **extra)
        self.decode = Engine(connector, "kv_consumer", max(blocks, 64), **extra)

    def transfer_params(self, name: str) -> dict[str, Any]:
        spec = {"req_id": name, "receiver_host": "d", "receiver_init_port": [1], "receiver_alloc_port": [2]}
        return {"disagg_spec": spec}

    def run_prefill(self, name: str, prompt: list[int], **extra: Any) -> dict[str, Any]:
        """Compute and send a prompt; return the parameters for the decode engine."""
        request = self.prefill.add(Request(f"{name}-0a", prompt, self.transfer_params(name), **extra))
        self.prefill.run(lambda: request.request_id not in self.prefill.requests)
        params = self.prefill.outputs[request.request_id]
        assert params is not None
        return params

    def add_decode(self, name: str, prompt: list[int], params: dict[str, Any] | None = None) -> Request:
        wants = {**self.transfer_params(name), "do_remote_prefill": True}
        return self.decode.add(Request(f"{name}-0b", prompt, wants if params is None else params))

    def close_all(self) -> None:
        """Shut everything down, and check that no pages are held."""
        for engine in (self.prefill, self.decode):
            engine.close()
        assert self.wire.held_pages == 0
        assert not self.wire.prefills


def sharing_engines(hosts: int, **extra: Any) -> list[Engine]:
    """Create two engines that share through the agents of so many hosts."""
    from kvferry.vllm import KvferryConnector

    return [Engine(KvferryConnector, "kv_both", socket=f"{i % hosts}.sock", **extra) for i in range(2)]


def run_prompt(engine: Engine, name: str, tokens: list[int]) -> Request:
    """Let an engine serve one prompt."""
    request = engine.add(Request(name, tokens))
    engine.run(engine.is_idle)
    return request


def close_engines(engines: list[Engine], wire: AgentsDouble) -> None:
    """Shut everything down, and check that no pages are held."""
    for engine in engines:
        engine.close()
    assert wire.held_pages == 0


def prompt(seed: int, length: int) -> list[int]:
    drawn = np.random.default_rng(seed)
    return [int(t) for t in drawn.integers(0, 1 << 31, length)]
