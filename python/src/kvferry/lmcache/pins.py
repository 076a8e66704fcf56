"""Chunks that LMCache has found and pinned until it has loaded them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kvferry.errors import Error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvferry.client import Client, Pages

# Pins use at most this fraction of the pool. Chunks beyond it are not pinned, and may be evicted before they are
# loaded.
_POOL_FRACTION = 4


class _PinnedPages:
    """Pages of one lookup, until the last of them is unpinned."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.pin_count = len(pages)


class ChunkPins:
    """Pins of chunks at an agent, by name. It is thread-safe."""

    def __init__(self, client: Client) -> None:
        """Pin at an agent."""
        self._client = client
        self._lock = threading.Lock()
        self._pin_count = 0
        self._holds: dict[str, list[_PinnedPages]] = {}

    def pin_chunks(self, names: Sequence[str]) -> int:
        """Pin the chunks that are here, from the first one on, and count them. Each pin must be removed once."""
        limit = self._client.info.pages // _POOL_FRACTION
        with self._lock:
            names = names[: max(0, limit - self._pin_count)]
            self._pin_count += len(names)  # Counted before the call, because other threads pin at the same time.
        hold = None
        try:
            if names:
                hold = _PinnedPages(self._client.get(names))
        finally:
            count = 0 if hold is None else hold.pin_count
            with self._lock:
                self._pin_count -= len(names) - count
                for name in names[:count]:
                    if hold is not None:
                        self._holds.setdefault(name, []).append(hold)
        if hold is not None and not count:
            hold.pages.release()
        return count

    def unpin_chunk(self, name: str) -> bool:
        """Remove one pin; report whether there was one. It does not wait for the agent, because the engine's step
        would wait.
        """
        with self._lock:
            holds = self._holds.get(name)
            if not holds:
                return False
            hold = holds.pop()
            if not holds:
                del self._holds[name]
            self._pin_count -= 1
            hold.pin_count -= 1
            over = not hold.pin_count
        if over:
            hold.pages.release(0)
        return True

    def close(self) -> None:
        """Remove all pins."""
        with self._lock:
            handles = {id(hold): hold for holds in self._holds.values() for hold in holds}
            self._holds.clear()
            self._pin_count = 0
        for hold in handles.values():
            try:
                hold.pages.release(0)
            except Error:  # The agent releases them at the end of the session.
                return
