"""What other engines have of a prompt, for the scheduler: it asks without waiting, and is answered at a later step."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from kvferry.vllm.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvferry.values import Lookup
    from kvferry.vllm.keys import Names
    from kvferry.vllm.words import Prompt

# Questions that are asked at a time. Others wait, and their requests with them.
_ABREAST = 4


class Client(Protocol):
    """What is used of kvferry.Client."""

    def contains(self, keys: Sequence[str]) -> int:
        """Say how many chunks are here."""

    def lookup(self, keys: Sequence[str]) -> Lookup:
        """Say how many chunks are here, and elsewhere."""

    def close(self) -> None:
        """Detach."""


class Finding:
    """Looks prompts up at one agent. Only its own threads wait."""

    def __init__(self, attach: Callable[[], Client], names: Names) -> None:
        """Ask for chunks of these names, at an agent to which the first question attaches."""
        self._attach, self._attaching = attach, Lock()
        self._attached: Client | None = None
        self._names = names
        self._asked: dict[str, Future[int]] = {}
        self._asking = ThreadPoolExecutor(_ABREAST, "kvferry-find")

    def tokens(self, request: str, prompt: Prompt) -> int | None:
        """Say how many tokens of a request's prompt are to be had, in whole chunks; None while that is not known."""
        whole = len(prompt.tokens) // self._names.chunk
        if not whole:
            return 0
        if (asked := self._asked.get(request)) is None:
            asked = self._asked[request] = self._asking.submit(self._find, prompt, whole)
        return asked.result() if asked.done() else None

    def forget(self, request: str) -> None:
        """Know that a request is not asked about any more."""
        if (asked := self._asked.pop(request, None)) is not None:
            asked.cancel()

    def forget_all(self) -> None:
        """Know that no request is asked about any more by the names that it had."""
        for request in list(self._asked):
            self.forget(request)

    def close(self) -> None:
        """End."""
        self._asking.shutdown(wait=True, cancel_futures=True)
        if self._attached is not None:
            self._attached.close()

    @property
    def _client(self) -> Client:
        with self._attaching:
            if self._attached is None:
                self._attached = self._attach()
            return self._attached

    def _find(self, prompt: Prompt, whole: int) -> int:
        """Ask. A directory that is down hides what others have, and not what is here."""
        found, keys = 0, self._names.keys(prompt)[:whole]
        try:
            found = self._client.contains(keys)
            if found < whole:
                found = max(found, self._client.lookup(keys).elsewhere)
        except Exception as error:
            log.debug("a prompt could not be looked up: %s", error)
        return found * self._names.chunk
