"""How requests end between engines. A decode engine hears that no more comes of one by a chunk whose name says so.

It goes as all chunks do, and has no bytes that mean anything. So nothing depends on it: where it does not come, what is
awaited is computed when the patience is over. Agents take nothing more of a request that had its last batch, be it
that this failed: then the chunk is of a request of its own. Else it is that request's last one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kvferry.codes import Code
from kvferry.errors import Error, LostError
from kvferry.handles import briefly
from kvferry.vllm.agents import left, peer_of
from kvferry.vllm.log import log

if TYPE_CHECKING:
    from kvferry.values import Peer
    from kvferry.vllm.agents import Client
    from kvferry.vllm.keys import Names
    from kvferry.vllm.words import Receiver

# How long one of the calls that tell may take, in seconds, and how many requests are served at a time.
_PATIENCE = 2.0
_THREADS = 2
# Until an agent that is away is asked again to give something up, in seconds.
_AGAIN = 0.1


class Ends:
    """Tells, asks and forgets, for one rank. It has threads of its own: saves and loads do not wait for that."""

    def __init__(self, client: Client, names: Names, block_tokens: int, layers: int, patience: float) -> None:
        """Use an agent whose chunks have a page for each of so many layers; 0: one page.

        What is not done within the patience, in seconds, is not done at all.
        """
        self._client = client
        self._names = names
        self._block_tokens = block_tokens
        self._layers = layers
        self._patience = patience
        self._closing = float("inf")
        self._over = threading.Event()
        self._threads = ThreadPoolExecutor(_THREADS, "kvferry-end")

    def tell(self, request: str, receiver: Receiver) -> None:
        """Have a decode engine told that no more comes of a request, if that can be told. It returns at once."""
        with contextlib.suppress(RuntimeError):  # It is closed.
            self._threads.submit(self._tell, request, receiver, time.monotonic() + self._patience)

    def abandon(self, request: str) -> None:
        """Have all given up that is kept of a request, and what comes of it soon. It returns at once."""
        with contextlib.suppress(RuntimeError):
            self._threads.submit(self._abandon, request, time.monotonic() + self._patience)

    def close(self) -> None:
        """End. What is not told soon is not told."""
        self._closing = time.monotonic() + _PATIENCE
        self._over.set()
        self._threads.shutdown(wait=True)

    def _tell(self, request: str, receiver: Receiver, until: float) -> None:
        keys = [self._names.end(request)]
        try:
            peer = peer_of(receiver, self._names.rank)
            patience = self._left("reserve", until)
            with briefly(self._client.reserve(max(1, self._layers), patience=patience)) as pages:
                for page in pages:
                    page.array()[:] = 0
                try:
                    self._put(keys, request, peer, pages, until)
                except Error as error:
                    if error.code != Code.ENDED:
                        raise
                    self._put(keys, self._name(request), peer, pages, until)
        except Exception as error:
            log.debug("request %s: its decode engine was not told that it failed: %s", request, error)

    def _abandon(self, request: str, until: float) -> None:
        try:
            for name in (request, self._name(request)):
                self._give_up(name, until)
        except Exception as error:
            log.debug("request %s could not be abandoned: %s", request, error)

    def _give_up(self, name: str, until: float) -> None:
        """Abandon a name, be it that its agent comes back first: what is sent by then is kept by that one."""
        while True:
            self._left("abandon", until)
            try:
                return self._client.abandon(name)
            except LostError:
                if self._over.wait(_AGAIN):
                    raise

    def _left(self, op: str, until: float) -> float:
        return min(_PATIENCE, left(op, min(until, self._closing)))

    def _put(self, keys: list[str], name: str, peer: Peer, pages: Any, until: float) -> None:
        if not self._layers:
            tokens = self._block_tokens % self._names.chunk
            patience = self._left("put", until)
            self._client.put(
                peer=peer, keys=keys, pages=pages, request=name, tokens=tokens, last=True, patience=patience
            )
            return
        self._left("begin_prefill", until)
        with self._client.begin_prefill(keys=keys, request=name, peer=peer) as prefill:
            for layer in range(self._layers):
                self._left("save_layer", until)
                prefill.save_layer(layer, self._block_tokens, pages)
            prefill.finish(patience=self._left("finish_prefill", until))

    def told(self, request: str, *, delayed: bool = False) -> bool:
        """Say whether a prefill engine told so of a request; delayed: its chunk may be with its sender."""
        key = self._names.end(request)
        if delayed:
            return self._client.contains([key]) > 0
        with briefly(self._client.get([key], request=self._name(request), layered=self._layers > 0)) as pages:
            return len(pages) > 0

    def _name(self, request: str) -> str:
        """Give the name of a request of its own."""
        return self._names.end_request(request)
