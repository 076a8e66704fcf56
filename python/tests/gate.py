"""Blocks a thread at a chosen point, for tests."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

# How long a thread is blocked at most, in seconds.
TIMEOUT = 20.0

# Name prefixes of the threads that save, whole chunks or layer by layer.
SAVE_THREADS = ("kvferry-save", "kvferry-layers")


class Gate:
    """Blocks a thread in a call of a function until it is released, once."""

    def __init__(
        self, patch: pytest.MonkeyPatch, owner: Any, name: str, skip: int = 0, threads: tuple[str, ...] = SAVE_THREADS
    ) -> None:
        """Patch a function. Calls of threads with these name prefixes count; the first ones may be skipped."""
        self.reached, self.release = threading.Event(), threading.Event()
        original, remaining = getattr(owner, name), [skip]

        def gate(*args: Any, **more: Any) -> Any:
            remaining[0] -= threading.current_thread().name.startswith(threads)
            if remaining[0] == -1 and not self.reached.is_set():
                self.reached.set()
                assert self.release.wait(TIMEOUT)
            return original(*args, **more)

        patch.setattr(owner, name, gate)
