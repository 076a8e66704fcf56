"""The log of failed work."""

from __future__ import annotations

import logging
import threading

from kvferry.errors import Error

log = logging.getLogger("kvferry.lmcache")


class FailureLog:
    """Logs each kind of failure once, until the same work succeeds: an agent that is gone fails every batch."""

    def __init__(self) -> None:
        """Start with nothing logged."""
        self._lock = threading.Lock()
        self._logged: set[tuple[str, object]] = set()

    def log_failure(self, work: str, miss: str, error: Exception) -> None:
        """Log a failure and its consequence. Bugs are logged with their traceback, other errors in one line."""
        if not isinstance(error, Error):
            log.error("BUG: %s: %s", work, miss, exc_info=error)
            return
        kind = (work, error.code)
        with self._lock:
            is_repeated = kind in self._logged
            self._logged.add(kind)
        log.log(logging.DEBUG if is_repeated else logging.WARNING, "%s: %s: %s", work, miss, error)

    def clear_failures(self, work: str) -> None:
        """Log failures of this work again, because it succeeded."""
        with self._lock:
            self._logged = {kind for kind in self._logged if kind[0] != work}
