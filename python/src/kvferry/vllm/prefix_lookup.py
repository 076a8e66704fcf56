"""Looks up which prefix of a prompt other engines have. The scheduler does not block: it gets the result in a later
step.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from kvferry.vllm.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvferry.values import Lookup
    from kvferry.vllm.chunk_names import ChunkNames
    from kvferry.vllm.step_work import Prompt

# Concurrent lookups. Others wait, and their requests with them.
_MAX_CONCURRENT = 4


class Client(Protocol):
    """The methods of kvferry.Client that lookups use."""

    def contains(self, keys: Sequence[str]) -> int:
        """Count the chunks that are here."""

    def lookup(self, keys: Sequence[str]) -> Lookup:
        """Count the chunks that are here, and those that one other node has."""

    def close(self) -> None:
        """Detach."""


class PrefixLookup:
    """Looks up prompts at one agent. Only its own threads block."""

    def __init__(self, attach: Callable[[], Client], names: ChunkNames) -> None:
        """Look up chunks with these names, at an agent to which the first lookup attaches."""
        self._attach, self._connection_lock = attach, Lock()
        self._connection: Client | None = None
        self._names = names
        self._lookups: dict[str, Future[int]] = {}
        self._threads = ThreadPoolExecutor(_MAX_CONCURRENT, "kvferry-find")

    def available_tokens(self, request: str, prompt: Prompt) -> int | None:
        """Return how many tokens of a request's prompt are available, in whole chunks; None while that is not known."""
        chunks = len(prompt.tokens) // self._names.chunk
        if not chunks:
            return 0
        if (lookup := self._lookups.get(request)) is None:
            lookup = self._lookups[request] = self._threads.submit(self._run_lookup, prompt, chunks)
        return lookup.result() if lookup.done() else None

    def forget_request(self, request: str) -> None:
        """Drop the lookup of a request."""
        if (lookup := self._lookups.pop(request, None)) is not None:
            lookup.cancel()

    def forget_all(self) -> None:
        """Drop all lookups, because the names of the chunks have changed."""
        for request in list(self._lookups):
            self.forget_request(request)

    def close(self) -> None:
        """Shut down."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._connection is not None:
            self._connection.close()

    @property
    def _client(self) -> Client:
        with self._connection_lock:
            if self._connection is None:
                self._connection = self._attach()
            return self._connection

    def _run_lookup(self, prompt: Prompt, chunks: int) -> int:
        """Look a prompt up. An unreachable directory hides the chunks of other engines, but not those of this agent."""
        found, keys = 0, self._names.chunk_keys(prompt)[:chunks]
        try:
            found = self._client.contains(keys)
            if found < chunks:
                found = max(found, self._client.lookup(keys).remote)
        except Exception as error:
            log.debug("a prompt could not be looked up: %s", error)
        return found * self._names.chunk
