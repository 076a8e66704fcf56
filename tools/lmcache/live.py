"""Runs LMCache's own worker, P2P backend and controller for a test of kvferry, over real sockets.

usage: live.py controller HOST PULL REPLY HEARTBEAT
       live.py instance NAME HOST WORKER PULL REPLY INIT LOOKUP

The numbers are ports. An instance answers requests, one a line, until its input ends:

       admit KEY...     it has these chunks now: their hashes
       evict KEY...     and these no more
       lookup KEY...    what the controller says, as JSON
       get KEY...       it looks these up, asks the peer that is found, and says how many chunks came
       synced           how often it was asked for everything, and has told it

What stands between the files of LMCache's wheel and a machine without NPUs is made here: an engine that has chunks by
name alone, memory that is never touched, and a channel that introduces itself and can move nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import zmq
import zmq.asyncio

from lmcache_wheel import load

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTROLLER = "lmcache.v1.cache_controller."
REAL = (
    CONTROLLER + "commands",
    CONTROLLER + "commands.base",
    CONTROLLER + "commands.full_sync",
    CONTROLLER + "controller_manager",
    CONTROLLER + "controllers",
    CONTROLLER + "controllers.full_sync_tracker",
    CONTROLLER + "controllers.kv_controller",
    CONTROLLER + "controllers.registration_controller",
    CONTROLLER + "full_sync_sender",
    CONTROLLER + "locks",
    CONTROLLER + "message",
    CONTROLLER + "observability",
    CONTROLLER + "utils",
    CONTROLLER + "worker",
    "lmcache.logging",
    "lmcache.v1.rpc_utils",
    "lmcache.v1.storage_backend.abstract_backend",
    "lmcache.v1.storage_backend.batched_message_sender",
    "lmcache.v1.storage_backend.p2p_backend",
    "lmcache.v1.transfer_channel.abstract",
    "lmcache.v1.transfer_channel.transfer_utils",
    "lmcache.v1.utils.cache_utils",
)
STOOD_IN_FOR = ("lmcache", "torch", "prometheus_client")
LOCATION = "LocalCPUBackend"

# How long a request of ours may take, in seconds.
PATIENCE = 60


@dataclass(frozen=True)
class Key:
    """A key of one model, as LMCache writes it."""

    chunk_hash: int

    def to_string(self) -> str:
        """Write it."""
        return f"model@1@0@{self.chunk_hash:x}@bfloat16"


class Memory:
    """A chunk's memory, of which only the name is needed."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.references = 1

    def pin(self) -> None:
        """Keep it."""

    def unpin(self) -> None:
        """Keep it no more."""

    def ref_count_down(self) -> None:
        """Give it back."""
        self.references -= 1


class Allocator:
    """Stands for memory in pages."""

    cpu_allocator = SimpleNamespace(shapes=[], dtypes=[], buffer_ptr=0, buffer_size=0, align_bytes=4096)


@dataclass
class Engine:
    """What an engine has, and what it is asked to do."""

    held: set[int] = field(default_factory=set)
    memory: list[Memory] = field(default_factory=list)
    syncs: int = 0

    def __str__(self) -> str:
        """Name its cache as LMCache does."""
        return LOCATION

    def freeze(self, frozen: bool) -> None:
        """Begin or end a time in which nothing changes, which a full sync takes."""
        self.syncs += not frozen

    def get_keys(self) -> list[Key]:
        """Give everything."""
        return [Key(h) for h in sorted(self.held)]

    def get_memory_allocator(self) -> Allocator:
        """Give the memory."""
        return Allocator()

    def allocate(self, *_: object) -> Memory:
        """Give memory for one chunk."""
        self.memory.append(Memory(len(self.memory)))
        return self.memory[-1]

    async def batched_async_contains(self, lookup_id: str, keys: Sequence[Any], pin: bool) -> int:
        """Say that nothing is here: no channel could move it."""
        del lookup_id, keys, pin
        return 0

    async def batched_get_non_blocking(self, lookup_id: str, keys: Sequence[Any]) -> list[Memory]:
        """Give what is here."""
        del lookup_id, keys
        return []


def config(name: str, host: str, ports: Sequence[int]) -> Any:
    """Make what LMCache's configuration would be."""
    worker, pull, reply, init, lookup = ports
    extra = {
        "full_sync_startup_delay_s": 0.0,
        "full_sync_status_poll_interval_s": 0.1,
        "p2p_socket_recv_timeout_ms": 5000,
    }
    return SimpleNamespace(
        lmcache_instance_id=name,
        controller_pull_url=f"{host}:{pull}",
        controller_reply_url=f"{host}:{reply}",
        lmcache_worker_ports=[worker],
        lmcache_worker_heartbeat_time=1,
        lmcache_worker_heartbeat_delay_time=0,
        enable_p2p=True,
        p2p_host=host,
        p2p_init_ports=[init],
        p2p_lookup_ports=[lookup],
        chunk_size=16,
        save_unfull_chunk=False,
        nixl_buffer_device=None,
        nixl_backends=None,
        transfer_channel="none",
        get_extra_config_value=extra.get,
        get_lmcache_worker_ids=lambda _mla, _world: [],
    )


def channels(modules: dict[str, Any]) -> Any:
    """Make the class of a channel: LMCache's own, but for what would need hardware."""

    class Channel(modules["abstract"].BaseTransferChannel):  # type: ignore[misc]
        """Introduces an instance by LMCache's side messages. It moves no bytes."""

        def __init__(self, peer_init_url: str, peer_lookup_url: str, event_loop: Any) -> None:
            self.peer_init_url = peer_init_url
            self.peer_lookup_url = peer_lookup_url
            asyncio.run_coroutine_threadsafe(self.answer(), event_loop)

        async def answer(self) -> None:
            """Answer who introduces itself. LMCache's channels say nothing to what they do not know."""
            socket = zmq.asyncio.Context.instance().socket(zmq.ROUTER)
            socket.bind(f"tcp://{self.peer_init_url}")
            side = modules["transfer_utils"].SideMsg
            while True:
                *envelope, payload = await socket.recv_multipart()
                try:
                    asked = modules["transfer_utils"].msgspec.msgpack.decode(payload, type=side)
                except modules["transfer_utils"].msgspec.DecodeError:
                    continue
                told = modules["transfer_utils"].msgspec.msgpack.encode(self.handle_init_side_msg(asked))
                await socket.send_multipart([*envelope, told])

        async def async_lazy_init_peer_connection(
            self, local_id: str, peer_id: str, peer_init_url: str, init_side_msg: Any
        ) -> Any:
            """Introduce this instance to a peer."""
            del local_id, peer_id
            socket = zmq.asyncio.Context.instance().socket(zmq.REQ)
            try:
                socket.connect(f"tcp://{peer_init_url}")
                return await self.async_send_init_side_msg(socket, init_side_msg)
            finally:
                socket.close(linger=0)

        def get_local_mem_indices(self, objects: Sequence[Memory]) -> list[int]:
            """Say where memory is."""
            return [m.index for m in objects]

        def remote_xfer_handler_exists(self, receiver_or_sender_id: str) -> bool:
            """Say that nobody has introduced itself: side messages alone let nobody move anything."""
            del receiver_or_sender_id
            return False

    Channel.__abstractmethods__ = frozenset()
    return Channel


class Instance:
    """One instance of LMCache with one worker."""

    def __init__(self, name: str, host: str, ports: Sequence[int]) -> None:
        modules = load(REAL, STOOD_IN_FOR)
        self.messages = modules["message"]
        self.engine = Engine()
        settings, metadata = config(name, host, ports), SimpleNamespace(worker_id=0, world_size=1, use_mla=False)
        engine = SimpleNamespace(freeze=self.engine.freeze)
        engine.storage_manager = SimpleNamespace(local_cpu_backend=self.engine)
        self.worker = modules["worker"].LMCacheWorker(settings, metadata, engine)
        self.sender = modules["batched_message_sender"].BatchedMessageSender(metadata, settings, LOCATION, self.worker)
        p2p, channel = modules["p2p_backend"], channels(modules)
        p2p.PagedCpuGpuMemoryAllocator = Allocator
        p2p.CreateTransferChannel = lambda peer_init_url, peer_lookup_url, event_loop, **_: channel(
            peer_init_url, peer_lookup_url, event_loop
        )
        self.backend = p2p.P2PBackend(settings, metadata, self.worker.loop, self.engine, self.worker)
        self.name = name
        self.gets = 0

    def wait(self, work: Any) -> Any:
        """Wait for what the worker's loop does."""
        return asyncio.run_coroutine_threadsafe(work, self.worker.loop).result(PATIENCE)

    def get(self, keys: Sequence[int]) -> str:
        """Look chunks up and get them, as LMCache's engine does with its backend."""
        self.gets += 1
        lookup, wanted = f"{self.name}-{self.gets}", [Key(k) for k in keys]
        found = self.wait(self.backend.batched_async_contains(lookup, wanted))
        if not found:
            return "0 found"
        lengths = {"cum_chunk_lengths": [16 * i for i in range(found + 1)]}
        came = self.wait(self.backend.batched_get_non_blocking(lookup, wanted[:found], lengths))
        left = sum(m.references for m in self.engine.memory) - len(came)
        return f"{found} found, {len(came)} came, {left} left"

    def do(self, request: str, keys: Sequence[int]) -> str:
        """Do what one line asks for."""
        ops = self.messages.OpType
        match request:
            case "admit" | "evict":
                for key in keys:
                    self.sender.add_kv_op(ops.ADMIT if request == "admit" else ops.EVICT, key)
                self.engine.held = self.engine.held.union(keys) if request == "admit" else self.engine.held - {*keys}
                self.sender.flush()
                return "told"
            case "lookup":
                asked = self.messages.BatchedP2PLookupMsg(instance_id=self.name, worker_id=0, hashes=list(keys))
                return json.dumps(self.wait(self.worker.async_put_and_wait_msg(asked)).layout_info)
            case "get":
                return self.get(keys)
            case "synced":
                return str(self.engine.syncs)
        raise ValueError(f"{request!r} is no request")


def control(host: str, ports: Sequence[str]) -> None:
    """Be LMCache's controller until the input ends."""
    urls = dict(zip(("pull", "reply", "heartbeat"), (f"{host}:{p}" for p in ports), strict=True))
    manager = load(REAL, STOOD_IN_FOR)["controller_manager"].LMCacheControllerManager(urls, 0, 60)

    async def serve() -> None:
        work = asyncio.ensure_future(manager.start_all())
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        work.cancel()

    asyncio.run(serve())


def main() -> None:
    """Do what the command line says."""
    os.environ.setdefault("LMCACHE_LOG_LEVEL", "CRITICAL")  # What goes wrong on purpose is no news.
    match sys.argv[1:]:
        case ["controller", host, *ports] if len(ports) == 3:
            control(host, ports)
        case ["instance", name, host, *ports] if len(ports) == 5:
            instance = Instance(name, host, [int(p) for p in ports])
            print("ready", flush=True)
            for line in sys.stdin:
                request, *keys = line.split()
                print(instance.do(request, [int(k) for k in keys]), flush=True)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
