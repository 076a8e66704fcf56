"""KvferryL2: an L2 adapter, of the type native_plugin, for the multi-process server of LMCache 0.5.

The server calls the adapter with a lock held, so all methods return at once. The work is done on threads, and an
eventfd signals its end. Chunks are stored in the cache of an agent that shares (enable_p2p), where other agents find
them through directories.

An unreachable agent is a miss. After construction no method raises.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kvferry.lmcache.chunks import AgentChunks, check_in_time, copy_chunk
from kvferry.lmcache.failure_log import FailureLog
from kvferry.lmcache.naming import ChunkNaming
from kvferry.lmcache.settings import Settings, attach_agent
from kvferry.settings_reader import read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvferry.lmcache.chunks import Bytes

    # The number of a task, whether it succeeded, why not, and the result of each key.
    Completion = tuple[int, bool, str, list[bool]]
    Work = Callable[[list[str], Sequence[memoryview], float], list[bool]]

log = logging.getLogger("kvferry.lmcache")

OP = "start KvferryL2"

# The error of tasks that have not started when the adapter closes.
_CLOSED = "the adapter is closed"


class KvferryL2:
    """See the module. It takes the fields of kvferry.lmcache.settings.Settings."""

    def __init__(self, **values: Any) -> None:
        """Attach to the agent.

        Raises:
            Error: a setting is wrong, or the agent was not reachable in time.
        """
        settings: Settings = read_settings(Settings, values, "adapter_params", OP)
        self._settings = settings
        self._naming = ChunkNaming.from_text(settings.weights)
        if not settings.weights:
            log.warning(
                "adapter_params.weights is empty: the server's keys contain a model's name and not its weights, so "
                "engines with different weights under one name use each other's KV. At all sharing servers, set it to "
                "a text that changes whenever the weights change"
            )
        self._client = attach_agent(settings, OP, "lmcache l2", ({"sharing"},))
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._last_task = 0
        self._completions: list[Completion] = []
        # Whether new tasks are refused, and whether all tasks have ended and the eventfd is closed.
        self._is_closing = self._is_ended = False
        self._failures = FailureLog()
        self._chunks = AgentChunks(self._client, self._failures)
        self._store_threads = ThreadPoolExecutor(settings.saves, "kvferry-store")
        self._load_threads = ThreadPoolExecutor(settings.loads, "kvferry-load")
        self._find_threads = ThreadPoolExecutor(settings.loads, "kvferry-find")

    # ---- for the server ----

    def event_fd(self) -> int:
        """Return the eventfd that is readable while there are completions. The adapter owns it."""
        return self._event

    def submit_batch_set(self, keys: Sequence[str], views: Sequence[memoryview]) -> int:
        """Store chunks. The views are read until the task is done."""
        return self._submit_task(
            self._store_threads, "store", self._store_chunks, keys, views, self._settings.save_patience
        )

    def submit_batch_get(self, keys: Sequence[str], views: Sequence[memoryview]) -> int:
        """Load chunks. The views are written until the task is done; views of failed keys have undefined content."""
        return self._submit_task(
            self._load_threads, "load", self._load_chunks, keys, views, self._settings.load_patience
        )

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Look chunks up, here and at peers. The result is no promise."""
        return self._submit_task(self._find_threads, "find", self._find_chunks, keys, (), self._settings.load_patience)

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        """Delete nothing and report that: other engines may need the chunks, and the agent evicts chunks itself."""
        return self._submit_task(self._find_threads, "delete", lambda names, *_: [False] * len(names), keys, (), 0)

    def drain_completions(self) -> list[Completion]:
        """Return the completions since the last call, even after close."""
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                if not self._is_ended:
                    os.eventfd_read(self._event)
            completions, self._completions = self._completions, []
        return completions

    def close(self) -> None:
        """Shut down: running tasks end within their timeout, waiting tasks are misses. No view is accessed
        afterwards.
        """
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
        for threads in (self._find_threads, self._load_threads, self._store_threads):
            threads.shutdown(wait=True)
        self._client.close()
        with self._lock:
            self._is_ended = True
            os.close(self._event)

    # ---- on threads ----

    def _submit_task(
        self,
        threads: ThreadPoolExecutor,
        name: str,
        work: Work,
        keys: Sequence[str],
        views: Sequence[memoryview],
        timeout: float,
    ) -> int:
        with self._lock:
            self._last_task += 1
            if self._is_closing:
                self._complete_task((self._last_task, False, _CLOSED, [False] * len(keys)))
            else:
                deadline = time.monotonic() + timeout
                threads.submit(self._run_task, self._last_task, name, work, list(keys), list(views), deadline)
            return self._last_task

    def _run_task(
        self, task: int, name: str, work: Work, keys: list[str], views: list[memoryview], deadline: float
    ) -> None:
        succeeded, reason, results = True, "", [False] * len(keys)
        if self._is_closing:
            succeeded, reason = False, _CLOSED
        else:
            try:
                results = work(keys, views, deadline)
            except Exception as error:
                self._failures.log_failure(name, "a miss", error)
                succeeded, reason = False, str(error)
        with self._lock:
            self._complete_task((task, succeeded, reason, results))

    def _complete_task(self, completion: Completion) -> None:
        """Add a completion; the caller holds the lock."""
        self._completions.append(completion)
        if not self._is_ended:
            os.eventfd_write(self._event, 1)

    def _store_chunks(self, keys: list[str], views: Sequence[memoryview], deadline: float) -> list[bool]:
        """Store the chunks that are missing. It raises if one cannot be stored."""
        for places in group_by_prompt(keys):
            names = [self._naming.server_name(keys[place]) for place in places]
            self._chunks.store_chunks(names, [views[place] for place in places], deadline)
        self._failures.clear_failures("store")
        return [True] * len(keys)

    def _find_chunks(self, keys: list[str], _: Sequence[memoryview], deadline: float) -> list[bool]:
        found = [False] * len(keys)
        check_in_time("find", deadline)
        for places in group_by_prompt(keys):
            count = self._chunks.count_available([self._naming.server_name(keys[place]) for place in places], deadline)
            for place in places[:count]:
                found[place] = True
        self._failures.clear_failures("find")
        return found

    def _load_chunks(self, keys: list[str], views: Sequence[memoryview], deadline: float) -> list[bool]:
        loaded = [False] * len(keys)
        for places in group_by_prompt(keys):

            def take(at: int, chunk: Bytes, places: list[int] = places) -> bool:
                copy_chunk(chunk, views[places[at]])
                return True

            count = self._chunks.load_chunks(
                [self._naming.server_name(keys[place]) for place in places], take, deadline
            )
            for place in places[:count]:
                loaded[place] = True
        return loaded


def group_by_prompt(keys: Sequence[str]) -> list[list[int]]:
    """Group keys by prompt: lists of the indexes of keys that differ only by their hash, in order.

    The server passes the keys of several ranks one after the other. Within a rank a chunk is usable only with all
    earlier ones.
    """
    found: dict[tuple[str, ...], list[int]] = {}
    for place, key in enumerate(keys):
        parts = key.split("@")
        found.setdefault((*parts[:3], *parts[4:]), []).append(place)
    return list(found.values())
