"""Resets of an engine's cache, which happen when its weights change."""

from __future__ import annotations

import time
import uuid


class CacheResets:
    """The last reset of an engine's cache. It survives the reconfiguration of the scheduler after the start of the
    workers.
    """

    def __init__(self) -> None:
        """Start without a reset: the engine has its initial weights."""
        # Part of the names of shared chunks. It is unique to this engine, because the weights since the reset are
        # unknown.
        self.epoch = ""
        # The time of the reset, on the clock of request.arrival_time.
        self.last_time = float("-inf")

    def record_reset(self) -> None:
        """Record a reset."""
        self.epoch, self.last_time = uuid.uuid4().hex, time.time()
