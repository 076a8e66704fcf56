"""A test double of LMCache 0.5: the classes that plug-ins use, and its order of calls, following its source.

It asserts the duties of a plug-in: it gives references back, and raises nothing.
"""

from __future__ import annotations

import abc
import enum
import hashlib
import os
import select
import sys
import threading
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import vllm_double as model
from nodes import HOST

if TYPE_CHECKING:
    import pytest

    from hosts import Hosts
    from kvferry.lmcache import KvferryL2

# Tokens of a chunk, and bytes of a token.
CHUNK = model.CHUNK * model.BLOCK
TOKEN_BYTES = model.PAGE_BYTES // CHUNK


class MemoryFormat(enum.Enum):
    KV_2LTD = 1
    KV_MLA_FMT = 6


class StoragePluginInterface(abc.ABC):
    """The abstract methods are those of LMCache."""

    def __init__(
        self, dst_device: str, config: Any = None, metadata: Any = None, local_cpu_backend: Any = None, loop: Any = None
    ) -> None:
        self.dst_device, self.config, self.metadata = dst_device, config, metadata
        self.local_cpu_backend, self.loop = local_cpu_backend, loop

    @abc.abstractmethod
    def contains(self, key: Any, pin: bool = False) -> bool: ...
    @abc.abstractmethod
    def exists_in_put_tasks(self, key: Any) -> bool: ...
    @abc.abstractmethod
    def batched_submit_put_task(
        self, keys: Any, objs: Any, transfer_spec: Any = None, on_complete_callback: Any = None
    ) -> Any: ...
    @abc.abstractmethod
    def get_blocking(self, key: Any) -> Any: ...
    @abc.abstractmethod
    def pin(self, key: Any) -> bool: ...
    @abc.abstractmethod
    def unpin(self, key: Any) -> bool: ...
    @abc.abstractmethod
    def remove(self, key: Any, force: bool = True) -> bool: ...
    @abc.abstractmethod
    def get_allocator_backend(self) -> Any: ...
    @abc.abstractmethod
    def close(self) -> None: ...


class ZmqDouble(types.ModuleType):
    """The parts of pyzmq that are used. It records the messages that were sent, and where to."""

    PUSH, LINGER, NOBLOCK = 8, 17, 1

    class ZMQError(Exception):
        """The error of a socket that is closed or full."""

    def __init__(self) -> None:
        super().__init__("zmq")
        self.sent: list[tuple[str, bytes]] = []
        self.heard = threading.Condition()
        self.full = False
        zmq = self

        class Socket:
            def setsockopt(self, option: int, value: int) -> None:
                assert (option, value) == (zmq.LINGER, 1000)

            def connect(self, url: str) -> None:
                self.url = url

            def send(self, message: bytes, flags: int) -> None:
                assert flags == zmq.NOBLOCK
                if zmq.full:
                    raise zmq.ZMQError("Resource temporarily unavailable")
                with zmq.heard:
                    zmq.sent.append((self.url, message))
                    zmq.heard.notify_all()

            def close(self) -> None:
                pass

        class Context:
            @classmethod
            def instance(cls) -> Context:
                return cls()

            def socket(self, kind: int) -> Socket:
                assert kind == zmq.PUSH
                return Socket()

        self.Context = Context


def install(patch: pytest.MonkeyPatch) -> ZmqDouble:
    """Let imports of LMCache and pyzmq find the doubles."""
    parts: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.utils": {},
        "vllm.utils.hashing": {"get_hash_fn_by_name": hash_by_name},
        "lmcache": {},
        "lmcache.v1": {},
        "lmcache.v1.memory_management": {"MemoryFormat": MemoryFormat},
        "lmcache.v1.storage_backend": {},
        "lmcache.v1.storage_backend.abstract_backend": {"StoragePluginInterface": StoragePluginInterface},
    }
    for name, members in parts.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        patch.setitem(sys.modules, name, module)
    patch.delitem(sys.modules, "kvferry.lmcache.backend", raising=False)
    zmq = ZmqDouble()
    patch.setitem(sys.modules, "zmq", zmq)
    return zmq


def hash_by_name(name: str) -> Any:
    """vLLM's function from which LMCache takes its hashes."""
    if name not in ("sha256", "sha256_cbor"):
        raise ValueError(name)
    return hashlib.sha256


@dataclass(frozen=True)
class Key:
    """A CacheEngineKey."""

    chunk: int
    worker: int = 0

    def to_string(self) -> str:
        return f"m@1@{self.worker}@{hashlib.sha256(b'%d' % self.chunk).hexdigest()}@float"


@dataclass
class DisaggSpec:
    req_id: str
    receiver_host: str
    receiver_init_port: Any
    receiver_alloc_port: Any
    is_last_prefill: bool = False
    total_chunks: int = 0


class MemoryObj:
    """The bytes of so many tokens, freed with the last reference."""

    def __init__(self, owner: LocalBackend, tokens: int) -> None:
        self._owner = owner
        self._bytes = np.zeros(tokens * TOKEN_BYTES, np.uint8)
        self._references = 1
        self._lock = threading.Lock()

    @property
    def byte_array(self) -> memoryview:
        assert self._references > 0
        return memoryview(self._bytes)  # type: ignore[arg-type]

    def ref_count_up(self) -> None:
        with self._lock:
            self._references += 1

    def ref_count_down(self) -> None:
        with self._lock:
            self._references -= 1
            assert self._references >= 0
            if not self._references:
                self._bytes[:] = 0xEE
                self._owner.free_object()


class LocalBackend:
    """A LocalCPUBackend, which allocates objects."""

    def __init__(self, room: int = 1 << 20) -> None:
        self.live_objects, self._room, self._lock = 0, room, threading.Lock()

    def allocate(self, shapes: list[tuple[int, ...]], _: Any, fmt: MemoryFormat, busy_loop: bool) -> MemoryObj | None:
        assert not busy_loop
        assert fmt == MemoryFormat.KV_2LTD
        with self._lock:
            if self.live_objects == self._room:
                return None
            self.live_objects += 1
        return MemoryObj(self, shapes[0][2])

    def free_object(self) -> None:
        with self._lock:
            self.live_objects -= 1


@dataclass
class Type:
    itemsize: int = 4


@dataclass
class Metadata:
    worker_id: int = 0
    use_mla: bool = False
    groups: int = 1

    def get_shapes(self, tokens: int) -> list[tuple[int, ...]]:
        return [(2, model.LAYERS, tokens, model.HEADS * model.HEAD)] * self.groups

    def get_dtypes(self) -> list[Type]:
        return [Type()] * self.groups


@dataclass
class Config:
    extra_config: dict[str, Any]
    chunk_size: int = CHUNK
    enable_pd: bool = False
    use_layerwise: bool = False
    pd_proxy_host: str | None = None
    pd_proxy_port: int | None = None
    pd_skip_proxy_notification: bool = False
    pre_caching_hash_algorithm: str = "sha256_cbor"


@dataclass
class Engine:
    """LMCache of an engine with the plug-in, as its StorageManager uses it."""

    backend: Any
    local: LocalBackend

    @classmethod
    def create(cls, kvferry: dict[str, Any], *, loop: Any = None, room: int = 1 << 20, **config: Any) -> Engine:
        from kvferry.lmcache import KvferryBackend

        local, made = LocalBackend(room), Config({"kvferry": {"weights": "double", **kvferry}}, **config)
        backend = KvferryBackend(config=made, dst_device="cpu", metadata=Metadata(), local_cpu_backend=local, loop=loop)
        return cls(backend, local)

    def put(self, keys: list[Key], tokens: int, spec: DisaggSpec | None = None, done: Any = None) -> Any:
        """Put the chunks of so many tokens; the last one may be partial. Like batched_put, it keeps no reference."""
        objects = []
        for i, key in enumerate(keys):
            found = self.local.allocate([(0, 0, min(CHUNK, tokens - i * CHUNK))], None, MemoryFormat.KV_2LTD, False)
            assert found is not None
            found.byte_array[:] = chunk_content(key, len(found.byte_array))
            objects.append(found)
        futures = self.backend.batched_submit_put_task(keys, objects, transfer_spec=spec, on_complete_callback=done)
        for found in objects:
            found.ref_count_down()
        return futures

    def count_sent(self, futures: Any) -> int:
        """Wait for a put; count the chunks that were sent."""
        return sum(future.result(model.TIMEOUT) for future in futures or ())

    def count_loaded(self, keys: list[Key]) -> int:
        """Get chunks as batched_get does, verify them, and count those that were loaded."""
        return self.verify_chunks(keys, self.backend.batched_get_blocking(keys))

    def verify_chunks(self, keys: list[Key], objects: list[MemoryObj | None]) -> int:
        loaded = [found for found in objects if found is not None]
        assert loaded == objects[: len(loaded)]
        for key, found in zip(keys, loaded, strict=False):
            assert bytes(found.byte_array) == chunk_content(key, len(found.byte_array))
            found.ref_count_down()
        return len(loaded)


def make_pair(hosts: Hosts, **more: Any) -> tuple[Engine, Engine]:
    """Create the engines of a prefill and a decode host."""
    given: dict[str, Any] = {"grace": 0.2, "save_patience": 5}
    prefill = Engine.create({"socket": hosts.socket("prefill"), **given}, **more)
    return prefill, Engine.create({"socket": hosts.socket("decode"), **given})


def spec_of(hosts: Hosts, name: str) -> DisaggSpec:
    return DisaggSpec(name, HOST, [hosts.ports[0]], [hosts.ports[1]])


def chunk_content(key: Key, size: int) -> bytes:
    """Return the content of a chunk, derived from its key."""
    return np.random.default_rng(key.chunk).bytes(size)


@dataclass
class Server:
    """A multi-process server's NativeConnectorL2Adapter: tasks, and a wait on the eventfd."""

    adapter: KvferryL2
    _tasks: dict[int, tuple[bool, str, list[bool]]] = field(default_factory=dict)

    def wait(self, task: int) -> tuple[bool, str, list[bool]]:
        """Wait for a task, as the demux thread does."""
        poll = select.poll()
        poll.register(self.adapter.event_fd(), select.POLLIN)
        while task not in self._tasks:
            assert poll.poll(model.TIMEOUT * 1000)
            for number, ok, error, came in self.adapter.drain_completions():
                assert number not in self._tasks
                self._tasks[number] = (ok, error, came)
        return self._tasks.pop(task)


def make_l2_keys(count: int, ranks: int = 1) -> list[str]:
    """Return unique keys as the server writes them, rank by rank."""
    hashes = [os.urandom(32).hex() for _ in range(count)]
    return [f"org/m@{rank:08x}@0@{text}" for rank in range(ranks) for text in hashes]


def make_views(count: int, size: int = model.PAGE_BYTES) -> list[memoryview]:
    """Return memory of chunks with unique content."""
    return [memoryview(bytearray(os.urandom(size))) for _ in range(count)]
