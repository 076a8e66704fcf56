"""What the connector counts, for vLLM's log and its metrics."""

from __future__ import annotations

import threading

# Each is a number that only grows, within one report of vLLM's.
WORDS = {
    "saved_requests": "Requests whose KV the decode's agent has",
    "saved_bytes": "Bytes of KV that were put",
    "failed_saves": "Requests whose KV did not get to the decode's agent",
    "stored_bytes": "Bytes of KV that were given to the shared cache",
    "failed_stores": "Requests of which something was not stored",
    "loaded_requests": "Requests all of whose KV came",
    "loaded_bytes": "Bytes of KV that were copied into blocks",
    "copied_bytes": "Bytes of KV that the engine copied between its blocks and the agent's pool",
    "failed_loads": "Requests of which something did not come in time, and is computed",
    "cancelled_loads": "Requests that ended while their KV was awaited",
    "load_seconds": "Time from a request's load to its end, summed, where all of its KV came",
    "failed_load_seconds": "Time that was spent on loads of which something did not come, summed",
}


class Counts:
    """Counts from any thread."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._found: dict[str, float] = {}

    def add(self, **more: float) -> None:
        """Count."""
        with self._lock:
            for word, by in more.items():
                self._found[word] = self._found.get(word, 0) + by

    def take(self) -> dict[str, float]:
        """Give what was counted since this was called last."""
        with self._lock:
            found, self._found = self._found, {}
        return found


def together(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    """Add up two reports."""
    return {word: one.get(word, 0) + other.get(word, 0) for word in (*one, *(w for w in other if w not in one))}
