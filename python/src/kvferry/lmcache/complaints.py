"""What is said of work that did not end well."""

from __future__ import annotations

import logging
import threading

from kvferry.errors import Error

log = logging.getLogger("kvferry.lmcache")


class Complaints:
    """Says each kind of trouble once, until the same work succeeds: an agent that is gone fails every batch."""

    def __init__(self) -> None:
        """Begin with nothing said."""
        self._lock = threading.Lock()
        self._said: set[tuple[str, object]] = set()

    def say(self, work: str, miss: str, error: Exception) -> None:
        """Say how some work failed, and what that means: a defect of ours with its trace, the rest in one line."""
        if not isinstance(error, Error):
            log.error("BUG: %s: %s", work, miss, exc_info=error)
            return
        kind = (work, error.code)
        with self._lock:
            known = kind in self._said
            self._said.add(kind)
        log.log(logging.DEBUG if known else logging.WARNING, "%s: %s: %s", work, miss, error)

    def well(self, work: str) -> None:
        """Know that it succeeded: the next trouble is news."""
        with self._lock:
            self._said = {kind for kind in self._said if kind[0] != work}
