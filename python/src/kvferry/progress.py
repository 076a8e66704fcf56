"""The combined result of an operation that is split into several calls because it has too many keys for one."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any

from kvferry.values import Lookup, Prefix

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kvferry.errors import Error

# The timeout in seconds of a part that starts after the deadline: it ends at once, with its own reason.
_MIN_TIMEOUT = 0.001


class LookupProgress:
    """The combined result of lookups. A count continues into the next part only if the part had all of its keys."""

    def __init__(self) -> None:
        """Start with zero counts."""
        self._local = self._remote = 0
        self._all_local = self._all_remote = True

    def add(self, found: Lookup, keys: int) -> bool:
        """Add the result of the next part, which has so many keys. Report whether the following part matters."""
        if self._all_local:
            self._local += found.local
        if self._all_remote:
            self._remote += found.remote
        self._all_local = self._all_local and found.local == keys
        self._all_remote = self._all_remote and found.remote == keys
        return self._all_local or self._all_remote

    def result(self) -> Lookup:
        """Return the combined result."""
        return Lookup(self._local, self._remote)


class FetchProgress:
    """The combined result of fetches within one timeout."""

    def __init__(self, scatter: Callable[[int, list[Any]], Any], timeout: float | None) -> None:
        """Start with zero chunks."""
        self._scatter = scatter
        self._until = None if timeout is None else time.monotonic() + timeout
        self._count = 0
        self._scatter_error: Exception | None = None
        self._short: Error | None = None
        # Whether the remaining parts are not fetched.
        self.is_finished = False

    def remaining_timeout(self) -> float | None:
        """Return the timeout of the next part."""
        return None if self._until is None else max(_MIN_TIMEOUT, self._until - time.monotonic())

    def scatter(self, first: int, chunks: list[Any]) -> Any:
        """Pass the chunks of the current part to the callback, with their indexes among all keys."""
        try:
            result = self._scatter(self._count + first, chunks)
        except Exception as error:
            self._scatter_error = error
            raise
        return self._await_scatter(result) if inspect.isawaitable(result) else result

    async def _await_scatter(self, scatter: Awaitable[None]) -> None:
        try:
            await scatter
        except Exception as error:
            self._scatter_error = error
            raise

    def add(self, prefix: Prefix, keys: int) -> None:
        """Add the result of the current part, which has so many keys."""
        self._count += prefix.count
        if prefix.count < keys:
            self._short, self.is_finished = prefix.shortfall, True

    def handle_error(self, error: Error) -> None:
        """End with the current part. The error is raised if nothing was fetched, or if the callback raised it."""
        if error is self._scatter_error or not self._count:
            raise error
        self._short, self.is_finished = error, True

    def result(self) -> Prefix:
        """Return the combined result."""
        return Prefix(self._count, self._short)
