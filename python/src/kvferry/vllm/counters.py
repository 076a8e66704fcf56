"""The counters of the connector, for vLLM's log and metrics."""

from __future__ import annotations

import threading

# Each counter only grows within one report of vLLM.
COUNTERS = {
    "saved_requests": "Requests whose KV was sent to the decode engine's agent",
    "saved_bytes": "Bytes of KV that were sent",
    "failed_saves": "Requests whose KV did not reach the decode engine's agent",
    "stored_bytes": "Bytes of KV that were stored in the shared cache",
    "failed_stores": "Requests with chunks that were not stored",
    "loaded_requests": "Requests whose KV was loaded completely",
    "loaded_bytes": "Bytes of KV that were copied into blocks",
    "copied_bytes": "Bytes of KV that the engine copied between its blocks and the agent's pool",
    "failed_loads": "Requests with KV that did not arrive in time and was computed",
    "cancelled_loads": "Requests that ended while their KV was being loaded",
    "load_seconds": "Total time of complete loads",
    "failed_load_seconds": "Total time of incomplete loads",
}


class Counters:
    """Thread-safe counters."""

    def __init__(self) -> None:
        """Start with zero."""
        self._lock = threading.Lock()
        self._values: dict[str, float] = {}

    def add(self, **increments: float) -> None:
        """Increase counters."""
        with self._lock:
            for name, increment in increments.items():
                self._values[name] = self._values.get(name, 0) + increment

    def take_counts(self) -> dict[str, float]:
        """Return the counts since the last call."""
        with self._lock:
            counts, self._values = self._values, {}
        return counts


def merge_counts(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    """Add up two reports."""
    return {name: first.get(name, 0) + second.get(name, 0) for name in (*first, *(w for w in second if w not in first))}
