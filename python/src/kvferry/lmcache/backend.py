"""KvferryBackend: a storage plug-in for LMCache 0.5 in an engine's process. Only this module imports LMCache.

A prefill engine passes DisaggSpecs: its chunks go to the decode engine's agent, from which the decode engine's plug-in
loads them. Without a DisaggSpec, chunks go into the cache of an agent that shares.

After construction no method raises: a failure is a miss, and the engine computes the KV.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.storage_backend.abstract_backend import StoragePluginInterface

from kvferry.lmcache.batch_sender import Batch, BatchSender, Proxy, read_receiver
from kvferry.lmcache.chunks import AgentChunks, copy_chunk
from kvferry.lmcache.failure_log import FailureLog
from kvferry.lmcache.naming import make_naming
from kvferry.lmcache.pins import ChunkPins
from kvferry.lmcache.settings import OP, SECTION, Engine, Settings, attach_agent
from kvferry.settings_reader import read_settings

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Sequence

    from kvferry.lmcache.chunks import Bytes

T = TypeVar("T")

log = logging.getLogger("kvferry.lmcache")


class KvferryBackend(StoragePluginInterface):  # type: ignore[misc] # LMCache is not there where types are checked.
    """See the module. The members of extra_config.kvferry are its settings."""

    def __init__(
        self,
        dst_device: str = "cpu",
        config: Any = None,
        metadata: Any = None,
        local_cpu_backend: Any = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Attach to the agent.

        Raises:
            Error: the engine's configuration is not supported, or the agent was not reachable in time.
        """
        super().__init__(
            dst_device=dst_device, config=config, metadata=metadata, local_cpu_backend=local_cpu_backend, loop=loop
        )
        self._settings: Settings = read_settings(Settings, (config.extra_config or {}).get("kvferry", {}), SECTION, OP)
        self._engine = Engine.from_config(config, metadata)
        self._local = local_cpu_backend
        self._format = MemoryFormat.KV_MLA_FMT if metadata.use_mla else MemoryFormat.KV_2LTD
        naming = self._naming = make_naming(config, self._settings.weights)
        needed = ({"sender"}, {"receiver"}, {"sharing"})
        self._client = attach_agent(self._settings, OP, "lmcache", needed, self._engine.rank)
        try:
            self._engine.check_agent(self._client.info)
            proxy = None
            if config.pd_proxy_host and config.pd_proxy_port and not config.pd_skip_proxy_notification:
                proxy = Proxy(config.pd_proxy_host, config.pd_proxy_port)
        except BaseException:
            self._client.close()
            raise
        sides = self._client.info.sides
        self._is_sender, self._is_sharing = "sender" in sides, "sharing" in sides
        # The function that names a chunk, and whether peers are asked for chunks of that name, for each kind of lookup.
        self._lookups: list[tuple[Callable[[Any], str], bool]] = []
        if "receiver" in sides:
            self._lookups.append((naming.sent_name, False))
        if self._is_sharing:
            self._lookups.append((naming.shared_name, True))
        self._failures = FailureLog()
        self._chunks = AgentChunks(self._client, self._failures)
        self._pins = ChunkPins(self._client)
        tokens = self._engine.chunk_tokens
        self._sender = BatchSender(self._client, tokens, self._settings.saves, proxy, self._failures)
        self._load_threads = ThreadPoolExecutor(self._settings.loads, "kvferry-load")
        self._closing = threading.Event()
        log.info("kvferry: chunks of %d tokens, %d bytes; %s", tokens, self._engine.chunk_bytes, ", ".join(sides))

    def __str__(self) -> str:
        """Return the name for LMCache's logs."""
        return "KvferryBackend"

    # ---- storing ----

    def exists_in_put_tasks(self, key: Any) -> bool:
        """Report whether a chunk is being sent."""
        return self._sender.is_sending(self._naming.sent_name(key)) or self._sender.is_sending(
            self._naming.shared_name(key)
        )

    def batched_submit_put_task(
        self,
        keys: Sequence[Any],
        objs: list[Any],
        transfer_spec: Any = None,
        on_complete_callback: Callable[[Any], None] | None = None,
    ) -> list[Future[int]] | None:
        """Send chunks to the decode engine's agent that a DisaggSpec names; without one give them to the shared cache.

        It returns at once. The result of a future is the number of chunks that were sent; a future never raises.
        """
        try:
            return self._submit_chunks(keys, objs, transfer_spec, on_complete_callback)
        except Exception as error:
            self._failures.log_failure("put", "a miss at the receiver", error)
            if transfer_spec is not None and getattr(transfer_spec, "is_last_prefill", False):
                self._sender.notify_proxy(str(transfer_spec.req_id))
            return None

    def _submit_chunks(
        self, keys: Sequence[Any], objs: list[Any], spec: Any, on_complete: Callable[[Any], None] | None
    ) -> list[Future[int]] | None:
        if not keys or (spec is None and not self._is_sharing):
            return None
        peer, request, last = None, "", False
        if spec is not None:
            peer = read_receiver(spec, self._engine.rank)
            # LMCache changes the DisaggSpec later.
            request, last = str(spec.req_id), bool(spec.is_last_prefill)
        names = [self._naming.shared_name(key) if peer is None else self._naming.sent_name(key) for key in keys]
        for found in objs:
            found.ref_count_up()
        batch = Batch(
            keys=list(keys),
            names=names,
            objects=deque(objs),
            peer=peer,
            request=request,
            last=last,
            on_complete=on_complete,
            deadline=time.monotonic() + self._settings.save_patience,
        )
        return [self._sender.submit_batch(batch)]

    # ---- loading ----

    def contains(self, key: Any, pin: bool = False) -> bool:
        """Report whether a chunk is available here or at a peer."""
        return self.batched_contains([key], pin) == 1

    def batched_contains(self, keys: list[Any], pin: bool = False) -> int:
        """Count the available chunks, from the first key on. Chunks of this agent are pinned on request."""
        deadline = time.monotonic() + self._settings.load_patience

        def find() -> int:
            count = 0
            for name, shared in self._lookups:
                if count < len(keys):
                    count += self._chunks.count_available([name(key) for key in keys[count:]], deadline, shared=shared)
            if pin:
                self._pin_keys(keys[:count])
            return count

        return self._run_or_miss("find", find, 0)

    async def batched_async_contains(self, lookup_id: str, keys: list[Any], pin: bool = False) -> int:
        """Count the available chunks without blocking. Nothing is pinned: LMCache would unpin the loaded objects,
        not these.
        """
        del lookup_id, pin
        return await self._run_on_thread(0, self.batched_contains, keys)

    def get_blocking(self, key: Any) -> Any:
        """Return a chunk in a new object of LMCache's with one reference; None if it is missing."""
        return self.batched_get_blocking([key])[0]

    def batched_get_blocking(self, keys: list[Any]) -> list[Any]:
        """Return chunks. After the first missing chunk all results are None."""
        deadline, got = time.monotonic() + self._settings.load_patience, [None] * len(keys)
        count = 0

        def load() -> None:
            nonlocal count
            for name, shared in self._lookups:
                if count < len(keys):
                    take = self._make_taker(got, count)
                    count += self._chunks.load_chunks(
                        [name(key) for key in keys[count:]], take, deadline, shared=shared
                    )

        if self._local is not None:
            self._run_or_miss("load", load, None)
        for place in range(count, len(keys)):  # Copied, but not usable.
            found, got[place] = got[place], None
            if found is not None:
                found.ref_count_down()
        return got

    async def batched_get_non_blocking(self, lookup_id: str, keys: list[Any], transfer_spec: Any = None) -> list[Any]:
        """Return the available chunks, from the first key on."""
        del lookup_id, transfer_spec
        nothing: list[Any] = []
        got = await self._run_on_thread(nothing, self.batched_get_blocking, keys)
        return [found for found in got if found is not None]

    def _make_taker(self, got: list[Any], begin: int) -> Callable[[int, Bytes], bool]:
        """Return a function that copies a chunk to a new object of LMCache's."""
        token = self._engine.chunk_bytes // self._engine.chunk_tokens

        def take(place: int, chunk: Bytes) -> bool:
            former, got[begin + place] = got[begin + place], None
            if former is not None:  # The earlier copy did not count, and the chunk comes again.
                former.ref_count_down()
            tokens = chunk.nbytes // token
            shapes, types = self.metadata.get_shapes(tokens), self.metadata.get_dtypes()
            # Do not wait if LMCache has no room, because the engine's step would wait as well.
            found = self._local.allocate(shapes, types, self._format, busy_loop=False)
            if found is None:
                return False
            try:
                copy_chunk(chunk, found.byte_array)
            except BaseException:
                found.ref_count_down()
                raise
            got[begin + place] = found
            return True

        return take

    # ---- pins ----

    def pin(self, key: Any) -> bool:
        """Pin a chunk of this agent until it is unpinned; report whether it is here."""
        return self._run_or_miss("pin", lambda: self._pin_keys([key]), 0) == 1

    def unpin(self, key: Any) -> bool:
        """Remove one pin of a chunk; report whether there was one."""
        return self._run_or_miss(
            "unpin", lambda: any(self._pins.unpin_chunk(name) for name in self._names_of(key)), False
        )

    def remove(self, key: Any, force: bool = True) -> bool:
        """Consume a chunk that was sent to this engine; report whether there was one. Shared chunks stay for other
        engines.
        """
        del force
        deadline = time.monotonic() + self._settings.load_patience

        def consume() -> bool:
            return self._chunks.consume_chunk(self._naming.sent_name(key), deadline)

        return not self._is_sharing and bool(self._lookups) and self._run_or_miss("remove", consume, False)

    def _pin_keys(self, keys: list[Any]) -> int:
        count = 0
        for name, _ in self._lookups:
            if count < len(keys):
                count += self._pins.pin_chunks([name(key) for key in keys[count:]])
        return count

    def _names_of(self, key: Any) -> Iterator[str]:
        return (name(key) for name, _ in self._lookups)

    # ---- other methods of LMCache's interface ----

    def touch_cache(self) -> None:
        """Do nothing: the agent tracks the last use itself."""

    def get_allocator_backend(self) -> Any:
        """Return the backend that allocates the objects: LMCache's own backend for host memory."""
        return self._local

    def close(self) -> None:
        """Shut down. Submitted chunks are sent within their timeout; pending loads are misses."""
        self._closing.set()
        self._load_threads.shutdown(wait=True)
        self._sender.close()
        self._pins.close()
        self._client.close()

    def _run_or_miss(self, work: str, attempt: Callable[[], T], miss: T) -> T:
        """Run an action; an error is a miss."""
        try:
            return attempt()
        except Exception as error:
            self._failures.log_failure(work, "a miss", error)
            return miss

    async def _run_on_thread(self, miss: T, work: Callable[..., T], *arguments: Any) -> T:
        """Run a blocking action on a thread. After close, of which LMCache's loop may not know yet, the result is a
        miss.
        """
        assert self.loop is not None  # noqa: S101 # LMCache passes a loop to asynchronous plug-ins.

        def run() -> T:
            return miss if self._closing.is_set() else work(*arguments)

        try:
            future: asyncio.Future[T] = self.loop.run_in_executor(self._load_threads, run)
        except RuntimeError:
            return miss
        return await future
