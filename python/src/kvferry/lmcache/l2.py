"""KvferryL2: an L2 adapter, of the type native_plugin, for the multi-process server of LMCache 0.5.

The server calls what is here while it holds a lock: all of it returns at once. The work is done on threads, and its end
is told by an eventfd. Chunks are stored in the cache of an agent that shares (enable_p2p), where other agents find them
by directories.

An agent that is gone is a miss. Nothing here raises once the adapter is made.
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

    # Of a task: its number, whether all went well, why not, and what became of each key.
    Completion = tuple[int, bool, str, list[bool]]
    Work = Callable[[list[str], Sequence[memoryview], float], list[bool]]

log = logging.getLogger("kvferry.lmcache")

OP = "start KvferryL2"

# Why a task fails that has not begun when the adapter ends.
_CLOSED = "the adapter is closed"


class KvferryL2:
    """See the module. It takes the fields of kvferry.lmcache.settings.Settings."""

    def __init__(self, **given: Any) -> None:
        """Attach to the agent. What cannot be served is refused, and so is an agent that is not there in time."""
        settings: Settings = read_settings(Settings, given, "adapter_params", OP)
        self._settings = settings
        self._naming = ChunkNaming.from_text(settings.weights)
        if not settings.weights:
            log.warning(
                "adapter_params.weights is empty: the server's keys have the name of a model and not its weights, so "
                "engines with other weights of one name take each other's KV. Set it, at all servers that share, to a "
                "text that is another one whenever the weights are"
            )
        self._client = attach_agent(settings, OP, "lmcache l2", ({"sharing"},))
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._last_task = 0
        self._completions: list[Completion] = []
        # Nothing begins any more; nothing is under way, and the eventfd is closed.
        self._is_closing = self._is_ended = False
        self._failures = FailureLog()
        self._chunks = AgentChunks(self._client, self._failures)
        self._store_threads = ThreadPoolExecutor(settings.saves, "kvferry-store")
        self._load_threads = ThreadPoolExecutor(settings.loads, "kvferry-load")
        self._find_threads = ThreadPoolExecutor(settings.loads, "kvferry-find")

    # ---- for the server ----

    def event_fd(self) -> int:
        """Give what is readable when there are completions. It stays the adapter's."""
        return self._event

    def submit_batch_set(self, keys: Sequence[str], views: Sequence[memoryview]) -> int:
        """Store chunks. The views are read until the task is done."""
        return self._submit_task(
            self._store_threads, "store", self._store_chunks, keys, views, self._settings.save_patience
        )

    def submit_batch_get(self, keys: Sequence[str], views: Sequence[memoryview]) -> int:
        """Load chunks. The views are written until the task is done; of a key that is not loaded they mean nothing."""
        return self._submit_task(
            self._load_threads, "load", self._load_chunks, keys, views, self._settings.load_patience
        )

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Look for chunks, here and at peers. It promises nothing for later."""
        return self._submit_task(self._find_threads, "find", self._find_chunks, keys, (), self._settings.load_patience)

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        """Delete nothing, and say so: other engines may need the chunks, and the agent makes room by itself."""
        return self._submit_task(self._find_threads, "delete", lambda names, *_: [False] * len(names), keys, (), 0)

    def drain_completions(self) -> list[Completion]:
        """Give what was done since the last time; after the end what was not given yet."""
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                if not self._is_ended:
                    os.eventfd_read(self._event)
            done, self._completions = self._completions, []
        return done

    def close(self) -> None:
        """End: what has begun ends within its patience, what waits is a miss. On return no view is touched."""
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
        """Say what became of a task, with the lock held."""
        self._completions.append(completion)
        if not self._is_ended:
            os.eventfd_write(self._event, 1)

    def _store_chunks(self, keys: list[str], views: Sequence[memoryview], deadline: float) -> list[bool]:
        """Store those that are not there. It raises where one is not stored."""
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
    """Part keys into prompts: the places of those that differ by their hash alone, in order.

    The server puts the keys of several ranks one after the other. Of each, a chunk is of use with those before it.
    """
    found: dict[tuple[str, ...], list[int]] = {}
    for place, key in enumerate(keys):
        parts = key.split("@")
        found.setdefault((*parts[:3], *parts[4:]), []).append(place)
    return list(found.values())
