"""How a decode engine hears that no more comes of a request: by a chunk whose name says so.

It goes as all chunks do, is kept for the request as they are, and has no bytes that mean anything. So nothing depends
on it: where it does not come, what is awaited is computed when the patience is over.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kvferry.vllm.agents import peer_of

if TYPE_CHECKING:
    from kvferry.values import Peer
    from kvferry.vllm.agents import Client
    from kvferry.vllm.keys import Names
    from kvferry.vllm.words import Receiver

log = logging.getLogger("kvferry.vllm")

# How long telling may take, in seconds: others wait to be saved.
_PATIENCE = 2.0


class Ends:
    """Tells, and asks, for one rank. Both wait for the agent."""

    def __init__(self, client: Client, names: Names, block_tokens: int, layers: int) -> None:
        """Use an agent whose chunks have a page for each of so many layers; 0: one page."""
        self._client = client
        self._names = names
        self._block_tokens = block_tokens
        self._layers = layers

    def tell(self, request: str, receiver: Receiver) -> None:
        """Tell a decode engine that no more comes of a request, if that can be told."""
        keys = [self._names.end(request)]
        try:
            peer = peer_of(receiver, self._names.rank)
            pages = self._client.reserve(max(1, self._layers), patience=_PATIENCE)
            try:
                for page in pages:
                    page.array()[:] = 0
                self._put(keys, request, peer, pages)
            finally:
                pages.release(0)
        except Exception as error:
            log.debug("request %s: its decode engine was not told that it failed: %s", request, error)

    def _put(self, keys: list[str], request: str, peer: Peer, pages: Any) -> None:
        if not self._layers:
            tokens = self._block_tokens % self._names.chunk
            self._client.put(
                peer=peer, keys=keys, pages=pages, request=request, tokens=tokens, last=True, patience=_PATIENCE
            )
            return
        with self._client.begin_prefill(keys=keys, request=request, peer=peer) as prefill:
            for layer in range(self._layers):
                prefill.save_layer(layer, self._block_tokens, pages)
            prefill.finish(patience=_PATIENCE)

    def told(self, request: str) -> bool:
        """Say whether a prefill engine told so of a request."""
        with self._client.get([self._names.end(request)], request=request, layered=self._layers > 0) as pages:
            return len(pages) > 0
