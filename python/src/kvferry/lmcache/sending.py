"""What goes out of an engine of LMCache: to a decode's agent, or into the cache that agents share. On threads."""

from __future__ import annotations

import importlib
import logging
import threading
import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np

from kvferry.errors import wrong
from kvferry.handles import briefly
from kvferry.lmcache.chunks import BATCH, Chunks, in_time, left
from kvferry.values import Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvferry.client import Client
    from kvferry.lmcache.complaints import Complaints

log = logging.getLogger("kvferry.lmcache")

# How long a message may still go to a proxy after the end, in milliseconds.
_LINGER = 1000


@dataclass(frozen=True)
class Batch:
    """Chunks that LMCache puts, in the order of a prompt.

    Their objects have a reference more. They leave the batch as those are given back.
    """

    keys: list[Any]
    names: list[str]
    objects: deque[Any]
    # Whom they are for; nobody: whoever shares.
    peer: Peer | None
    # The request, as the proxy knows it, and whether nothing of it follows.
    request: str
    last: bool
    done: Callable[[Any], None] | None
    until: float


def receiver_of(spec: Any, rank: int) -> Peer:
    """Read where a rank's chunks go: of LMCache's DisaggSpec, whose ports are lists, one for each rank."""
    ports = []
    for name in ("receiver_init_port", "receiver_alloc_port"):
        given = getattr(spec, name, None)
        if isinstance(given, (list, tuple)):
            if rank >= len(given):
                raise wrong("put", f"disagg_spec.{name}", f"{len(given)} ports", f"one for rank {rank}", "add them")
            given = given[rank]
        if not isinstance(given, int):
            raise wrong("put", f"disagg_spec.{name}", repr(given)[:60], "ports", "give a list, a port for each rank")
        ports.append(given)
    host = getattr(spec, "receiver_host", None)
    if not isinstance(host, str) or not host:
        raise wrong("put", "disagg_spec.receiver_host", repr(host)[:60], "a host", "name that of the decode's agent")
    return Peer(host, ports[0], ports[1])


class Proxy:
    """LMCache's proxy. It is told of each request when its last chunk has gone, as LMCache's own backend tells it."""

    def __init__(self, host: str, port: int) -> None:
        """Connect, sooner or later. LMCache has brought pyzmq."""
        self._zmq = importlib.import_module("zmq")
        self._lock = threading.Lock()
        self._socket = self._zmq.Context.instance().socket(self._zmq.PUSH)
        self._socket.setsockopt(self._zmq.LINGER, _LINGER)
        self._socket.connect(f"tcp://{host}:{port}")

    def tell(self, request: str) -> None:
        """Say that a request is over. It does not wait: a proxy that takes nothing is not told."""
        message = msgpack.packb({"type": "ProxyNotif", "req_id": request})
        try:
            with self._lock:
                self._socket.send(message, self._zmq.NOBLOCK)
        except self._zmq.ZMQError as error:
            log.warning("the proxy is not told that request %s is over: %s", request, error)

    def close(self) -> None:
        """End."""
        with self._lock:
            self._socket.close()


class Sending:
    """Sends batches, those of one request one after the other."""

    def __init__(
        self, client: Client, chunk_tokens: int, lanes: int, proxy: Proxy | None, complaints: Complaints
    ) -> None:
        """Send by an agent."""
        self._client = client
        self._chunks = Chunks(client, complaints)
        self._page_bytes = client.info.page_bytes
        self._token_bytes = self._page_bytes // chunk_tokens
        self._proxy = proxy
        self._complaints = complaints
        self._lock = threading.Lock()
        self._under_way: dict[str, int] = {}
        self._lanes = [ThreadPoolExecutor(1, "kvferry-send") for _ in range(lanes)]

    def submit(self, batch: Batch) -> Future[int]:
        """Have a batch sent. It comes to the number of chunks that went, and never to an error."""
        self._count(batch, 1)
        lane = zlib.crc32((batch.request or batch.names[0]).encode()) % len(self._lanes)
        try:
            return self._lanes[lane].submit(self._send, batch)
        except RuntimeError:  # It is closed.
            self._over(batch, 0)
            nothing: Future[int] = Future()
            nothing.set_result(0)
            return nothing

    def has(self, name: str) -> bool:
        """Say whether a chunk is on its way."""
        with self._lock:
            return name in self._under_way

    def tell(self, request: str) -> None:
        """Tell the proxy, if there is one, that nothing more of a request is sent, also where that failed: it waits."""
        if self._proxy is not None:
            self._proxy.tell(request)

    def close(self) -> None:
        """End, when what was submitted has gone."""
        for lane in self._lanes:
            lane.shutdown(wait=True)
        if self._proxy is not None:
            self._proxy.close()

    def _send(self, batch: Batch) -> int:
        sent = 0
        try:
            in_time("put", batch.until)
            sent = self._store(batch) if batch.peer is None else self._put(batch, batch.peer)
            self._complaints.well("put")
        except Exception as error:
            self._complaints.say("put", "a miss for who needs it", error)
        finally:
            self._over(batch, sent)
        return sent

    def _put(self, batch: Batch, peer: Peer) -> int:
        """Push to the decode's agent.

        The chunks name no request: there LMCache asks for keys, and knows nothing of requests.
        """
        for begin in range(0, len(batch.names), BATCH):
            names = batch.names[begin : begin + BATCH]
            with briefly(self._client.reserve(len(names), patience=left(batch.until))) as pages:
                for page in pages:
                    size = self._copy(page, batch.objects[0], end=len(batch.objects) == 1)
                    batch.objects.popleft().ref_count_down()
                tokens = size // self._token_bytes if size < self._page_bytes else 0
                self._client.put(peer=peer, keys=names, pages=pages, tokens=tokens, patience=left(batch.until))
        return len(batch.names)

    def _store(self, batch: Batch) -> int:
        """Give the cache whole chunks. The last one may be a part of one."""
        views = [found.byte_array for found in batch.objects]
        if len(views[-1]) < self._page_bytes:
            views.pop()
        if views:
            self._chunks.store(batch.names[: len(views)], views, batch.until)
        return len(views)

    def _copy(self, page: Any, found: Any, *, end: bool) -> int:
        """Copy a chunk; give its bytes. One that ends a prompt may have fewer tokens."""
        view = found.byte_array
        size = len(view)
        if size > self._page_bytes or size % self._token_bytes or (size < self._page_bytes and not end):
            remedy = "mend layout and chunk_size of the agent's file"
            raise wrong("put", "size of a chunk", f"{size} bytes", f"the agent's {self._page_bytes}", remedy)
        page.array()[:size] = np.frombuffer(view, np.uint8)
        return size

    def _over(self, batch: Batch, sent: int) -> None:
        """Give references back, and tell who waits. What others do with that is theirs: it ends nothing here."""
        while batch.objects:
            batch.objects.popleft().ref_count_down()
        self._count(batch, -1)
        try:
            if batch.done is not None:
                for key in batch.keys[:sent]:
                    batch.done(key)
            if batch.last:
                self.tell(batch.request)
        except Exception as error:
            self._complaints.say("tell", "who waits is not told", error)

    def _count(self, batch: Batch, by: int) -> None:
        with self._lock:
            for name in batch.names:
                count = self._under_way.get(name, 0) + by
                if count:
                    self._under_way[name] = count
                else:
                    self._under_way.pop(name, None)
