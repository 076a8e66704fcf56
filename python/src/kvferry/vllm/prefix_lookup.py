"""What other engines have of a prompt, for the scheduler: it asks without waiting, and is answered at a later step."""

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

# Questions that are asked at a time. Others wait, and their requests with them.
_MAX_CONCURRENT = 4


class Client(Protocol):
    """What is used of kvferry.Client."""

    def contains(self, keys: Sequence[str]) -> int:
        """Say how many chunks are here."""

    def lookup(self, keys: Sequence[str]) -> Lookup:
        """Say how many chunks are here, and elsewhere."""

    def close(self) -> None:
        """Detach."""


class PrefixLookup:
    """Looks prompts up at one agent. Only its own threads wait."""

    def __init__(self, attach: Callable[[], Client], names: ChunkNames) -> None:
        """Ask for chunks of these names, at an agent to which the first question attaches."""
        self._attach, self._connection_lock = attach, Lock()
        self._connection: Client | None = None
        self._names = names
        self._lookups: dict[str, Future[int]] = {}
        self._threads = ThreadPoolExecutor(_MAX_CONCURRENT, "kvferry-find")

    def available_tokens(self, request: str, prompt: Prompt) -> int | None:
        """Say how many tokens of a request's prompt are to be had, in whole chunks; None while that is not known."""
        chunks = len(prompt.tokens) // self._names.chunk
        if not chunks:
            return 0
        if (lookup := self._lookups.get(request)) is None:
            lookup = self._lookups[request] = self._threads.submit(self._run_lookup, prompt, chunks)
        return lookup.result() if lookup.done() else None

    def forget_request(self, request: str) -> None:
        """Know that a request is not asked about any more."""
        if (lookup := self._lookups.pop(request, None)) is not None:
            lookup.cancel()

    def forget_all(self) -> None:
        """Know that no request is asked about any more by the names that it had."""
        for request in list(self._lookups):
            self.forget_request(request)

    def close(self) -> None:
        """End."""
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
        """Ask. A directory that is down hides what others have, and not what is here."""
        found, keys = 0, self._names.chunk_keys(prompt)[:chunks]
        try:
            found = self._client.contains(keys)
            if found < chunks:
                found = max(found, self._client.lookup(keys).remote)
        except Exception as error:
            log.debug("a prompt could not be looked up: %s", error)
        return found * self._names.chunk
