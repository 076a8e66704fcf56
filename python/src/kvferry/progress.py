"""The one result of what is asked in several calls, because it has more keys than an agent takes in one."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any

from kvferry.values import Lookup, Prefix

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kvferry.errors import Error

# What a part is given whose patience is over, in seconds: it ends at once, with its own reason.
_SOON = 0.001


class Found:
    """What lookups of one part after the other come to: a count goes on where a part has all of its keys."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._here = self._elsewhere = 0
        self._all_here = self._all_elsewhere = True

    def add(self, found: Lookup, keys: int) -> bool:
        """Add what comes of the next part, which has so many keys. Say whether the part after it matters."""
        if self._all_here:
            self._here += found.here
        if self._all_elsewhere:
            self._elsewhere += found.elsewhere
        self._all_here = self._all_here and found.here == keys
        self._all_elsewhere = self._all_elsewhere and found.elsewhere == keys
        return self._all_here or self._all_elsewhere

    def lookup(self) -> Lookup:
        """Give what it is in all."""
        return Lookup(self._here, self._elsewhere)


class Progress:
    """How far fetches of one part after the other came, within one patience."""

    def __init__(self, scatter: Callable[[int, list[Any]], Any], patience: float | None) -> None:
        """Begin with nothing."""
        self._scatter = scatter
        self._until = None if patience is None else time.monotonic() + patience
        self._count = 0
        self._raised: Exception | None = None
        self._short: Error | None = None
        # Whether the parts that follow are not fetched.
        self.over = False

    def left(self) -> float | None:
        """Give the patience that the next part has."""
        return None if self._until is None else max(_SOON, self._until - time.monotonic())

    def scatter(self, first: int, chunks: list[Any]) -> Any:
        """Hand on chunks of the present part, by their places among all keys."""
        try:
            ended = self._scatter(self._count + first, chunks)
        except Exception as error:
            self._raised = error
            raise
        return self._watched(ended) if inspect.isawaitable(ended) else ended

    async def _watched(self, scatter: Awaitable[None]) -> None:
        try:
            await scatter
        except Exception as error:
            self._raised = error
            raise

    def add(self, prefix: Prefix, keys: int) -> None:
        """Add what came of the present part, which has so many keys."""
        self._count += prefix.count
        if prefix.count < keys:
            self._short, self.over = prefix.short, True

    def fail(self, error: Error) -> None:
        """End with the present part. Where nothing came, or the program itself raised this, it is raised again."""
        if error is self._raised or not self._count:
            raise error
        self._short, self.over = error, True

    def prefix(self) -> Prefix:
        """Give what it is in all."""
        return Prefix(self._count, self._short)
