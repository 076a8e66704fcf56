"""Sends the chunks of an engine of LMCache to a decode engine's agent or to the shared cache, on threads."""

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

from kvferry.errors import invalid_error
from kvferry.handles import release_without_wait
from kvferry.lmcache.chunks import BATCH, AgentChunks, check_in_time, remaining_time
from kvferry.values import Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvferry.client import Client
    from kvferry.lmcache.failure_log import FailureLog

log = logging.getLogger("kvferry.lmcache")

# How long a message to a proxy may still be sent after close, in milliseconds.
_LINGER = 1000


@dataclass(frozen=True)
class Batch:
    """Chunks that LMCache puts, in the order of a prompt.

    The batch holds one reference to each object. An object leaves the batch when its reference is dropped.
    """

    keys: list[Any]
    names: list[str]
    objects: deque[Any]
    # The receiver; None for the shared cache.
    peer: Peer | None
    # The request as the proxy knows it, and whether this is its last batch.
    request: str
    last: bool
    on_complete: Callable[[Any], None] | None
    deadline: float


def read_receiver(spec: Any, rank: int) -> Peer:
    """Read the receiver of a rank's chunks from LMCache's DisaggSpec, whose ports are lists with one port for each
    rank.
    """
    ports = []
    for name in ("receiver_init_port", "receiver_alloc_port"):
        port = getattr(spec, name, None)
        if isinstance(port, (list, tuple)):
            if rank >= len(port):
                raise invalid_error(
                    "put", f"disagg_spec.{name}", f"{len(port)} ports", f"one for rank {rank}", "add them"
                )
            port = port[rank]
        if not isinstance(port, int):
            raise invalid_error(
                "put", f"disagg_spec.{name}", repr(port)[:60], "ports", "give a list, a port for each rank"
            )
        ports.append(port)
    host = getattr(spec, "receiver_host", None)
    if not isinstance(host, str) or not host:
        raise invalid_error(
            "put", "disagg_spec.receiver_host", repr(host)[:60], "a host", "give the host of the decode engine's agent"
        )
    return Peer(host, ports[0], ports[1])


class Proxy:
    """LMCache's proxy. It is notified of each request after its last chunk, as LMCache's own backend does."""

    def __init__(self, host: str, port: int) -> None:
        """Start to connect. LMCache has pyzmq as a dependency."""
        self._zmq = importlib.import_module("zmq")
        self._lock = threading.Lock()
        self._socket = self._zmq.Context.instance().socket(self._zmq.PUSH)
        self._socket.setsockopt(self._zmq.LINGER, _LINGER)
        self._socket.connect(f"tcp://{host}:{port}")

    def notify_finished(self, request: str) -> None:
        """Notify the proxy of the end of a request. It does not block: a proxy that accepts nothing is not notified."""
        message = msgpack.packb({"type": "ProxyNotif", "req_id": request})
        try:
            with self._lock:
                self._socket.send(message, self._zmq.NOBLOCK)
        except self._zmq.ZMQError as error:
            log.warning("the proxy could not be notified of the end of request %s: %s", request, error)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._socket.close()


class BatchSender:
    """Sends batches; the batches of one request are sent in order."""

    def __init__(
        self, client: Client, chunk_tokens: int, lanes: int, proxy: Proxy | None, failures: FailureLog
    ) -> None:
        """Send through an agent.

        Args:
            client: the agent.
            chunk_tokens: tokens of a chunk.
            lanes: how many batches are sent at the same time.
            proxy: the proxy to notify, if any.
            failures: the log of failures.
        """
        self._client = client
        self._chunks = AgentChunks(client, failures)
        self._page_bytes = client.info.page_bytes
        self._token_bytes = self._page_bytes // chunk_tokens
        self._proxy = proxy
        self._failures = failures
        self._lock = threading.Lock()
        self._in_flight: dict[str, int] = {}
        self._lanes = [ThreadPoolExecutor(1, "kvferry-send") for _ in range(lanes)]

    def submit_batch(self, batch: Batch) -> Future[int]:
        """Send a batch on a thread. The result is the number of chunks that were sent; the future never raises."""
        self._count_in_flight(batch, 1)
        lane = zlib.crc32((batch.request or batch.names[0]).encode()) % len(self._lanes)
        try:
            return self._lanes[lane].submit(self._send_batch, batch)
        except RuntimeError:  # The sender is closed.
            self._finish_batch(batch, 0)
            nothing: Future[int] = Future()
            nothing.set_result(0)
            return nothing

    def is_sending(self, name: str) -> bool:
        """Report whether a chunk is being sent."""
        with self._lock:
            return name in self._in_flight

    def notify_proxy(self, request: str) -> None:
        """Notify the proxy, if any, that no more of a request is sent. Failed requests are included, because the
        proxy waits.
        """
        if self._proxy is not None:
            self._proxy.notify_finished(request)

    def close(self) -> None:
        """Shut down after all submitted batches."""
        for lane in self._lanes:
            lane.shutdown(wait=True)
        if self._proxy is not None:
            self._proxy.close()

    def _send_batch(self, batch: Batch) -> int:
        sent = 0
        try:
            check_in_time("put", batch.deadline)
            sent = self._store_batch(batch) if batch.peer is None else self._put_batch(batch, batch.peer)
            self._failures.clear_failures("put")
        except Exception as error:
            self._failures.log_failure("put", "a miss at the receiver", error)
        finally:
            self._finish_batch(batch, sent)
        return sent

    def _put_batch(self, batch: Batch, peer: Peer) -> int:
        """Push a batch to the decode engine's agent.

        The chunks carry no request id, because LMCache at the receiver asks for keys and knows no requests.
        """
        for begin in range(0, len(batch.names), BATCH):
            names = batch.names[begin : begin + BATCH]
            with release_without_wait(
                self._client.reserve(len(names), key=names[0], timeout=remaining_time(batch.deadline))
            ) as pages:
                for page in pages:
                    size = self._copy_chunk(page, batch.objects[0], end=len(batch.objects) == 1)
                    batch.objects.popleft().ref_count_down()
                tokens = size // self._token_bytes if size < self._page_bytes else 0
                self._client.put(
                    peer=peer, keys=names, pages=pages, last_chunk_tokens=tokens, timeout=remaining_time(batch.deadline)
                )
        return len(batch.names)

    def _store_batch(self, batch: Batch) -> int:
        """Store whole chunks in the cache. A last chunk that is not full is skipped."""
        views = [found.byte_array for found in batch.objects]
        if len(views[-1]) < self._page_bytes:
            views.pop()
        if views:
            self._chunks.store_chunks(batch.names[: len(views)], views, batch.deadline)
        return len(views)

    def _copy_chunk(self, page: Any, found: Any, *, end: bool) -> int:
        """Copy a chunk to a page, and return its bytes. Only the last chunk of a prompt may have fewer tokens."""
        view = found.byte_array
        size = len(view)
        if size > self._page_bytes or size % self._token_bytes or (size < self._page_bytes and not end):
            remedy = "correct layout and chunk_size of the agent's file"
            raise invalid_error("put", "size of a chunk", f"{size} bytes", f"the agent's {self._page_bytes}", remedy)
        page.write(view)
        return size

    def _finish_batch(self, batch: Batch, sent: int) -> None:
        """Give back all references, and call the callbacks. Errors of callbacks are logged and affect nothing here."""
        while batch.objects:
            batch.objects.popleft().ref_count_down()
        self._count_in_flight(batch, -1)
        try:
            if batch.on_complete is not None:
                for key in batch.keys[:sent]:
                    batch.on_complete(key)
            if batch.last:
                self.notify_proxy(batch.request)
        except Exception as error:
            self._failures.log_failure("notify", "a callback failed", error)

    def _count_in_flight(self, batch: Batch, by: int) -> None:
        with self._lock:
            for name in batch.names:
                count = self._in_flight.get(name, 0) + by
                if count:
                    self._in_flight[name] = count
                else:
                    self._in_flight.pop(name, None)
