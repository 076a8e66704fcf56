"""When an engine's cache was reset, which happens when its weights change."""

from __future__ import annotations

import time
import uuid


class CacheResets:
    """The last reset of an engine. It outlives what the scheduler's side makes anew when workers have started."""

    def __init__(self) -> None:
        """Begin with none: the engine has the weights that it was started with."""
        # What names of shared chunks have in addition. No other engine has the same: which weights this one has since
        # the reset is not known.
        self.epoch = ""
        # When it was, as vLLM says when a request came.
        self.last_time = float("-inf")

    def record_reset(self) -> None:
        """Reset the cache once more."""
        self.epoch, self.last_time = uuid.uuid4().hex, time.time()
