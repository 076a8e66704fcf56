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

from kvferry.given import read
from kvferry.lmcache.chunks import Chunks, drain, in_time
from kvferry.lmcache.complaints import Complaints
from kvferry.lmcache.naming import Naming
from kvferry.lmcache.settings import Settings, attach

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
        settings: Settings = read(Settings, given, "adapter_params", OP)
        self._settings = settings
        self._naming = Naming.of_text(settings.weights)
        if not settings.weights:
            log.warning(
                "adapter_params.weights is empty: the server's keys have the name of a model and not its weights, so "
                "engines with other weights of one name take each other's KV. Set it, at all servers that share, to a "
                "text that is another one whenever the weights are"
            )
        self._client = attach(settings, OP, "lmcache l2", ({"sharing"},))
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._tasks = 0
        self._done: list[Completion] = []
        # Nothing begins any more; nothing is under way, and the eventfd is closed.
        self._closed = self._ended = False
        self._complaints = Complaints()
        self._chunks = Chunks(self._client, self._complaints)
        self._storing = ThreadPoolExecutor(settings.saves, "kvferry-store")
        self._loading = ThreadPoolExecutor(settings.loads, "kvferry-load")
        self._finding = ThreadPoolExecutor(settings.loads, "kvferry-find")

    # ---- for the server ----

    def event_fd(self) -> int:
        """Give what is readable when there are completions. It stays the adapter's."""
        return self._event

    def submit_batch_set(self, keys: Sequence[str], views: Sequence[memoryview]) -> int:
        """Store chunks. The views are read until the task is done."""
        return self._submit(self._storing, "store", self._set, keys, views, self._settings.save_patience)

    def submit_batch_get(self, keys: Sequence[str], views: Sequence[memoryview]) -> int:
        """Load chunks. The views are written until the task is done; of a key that is not loaded they mean nothing."""
        return self._submit(self._loading, "load", self._get, keys, views, self._settings.load_patience)

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Look for chunks, here and at peers. It promises nothing for later."""
        return self._submit(self._finding, "find", self._exists, keys, (), self._settings.load_patience)

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        """Delete nothing, and say so: other engines may need the chunks, and the agent makes room by itself."""
        return self._submit(self._finding, "delete", lambda names, *_: [False] * len(names), keys, (), 0)

    def drain_completions(self) -> list[Completion]:
        """Give what was done since the last time; after the end what was not given yet."""
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                if not self._ended:
                    os.eventfd_read(self._event)
            done, self._done = self._done, []
        return done

    def close(self) -> None:
        """End: what has begun ends within its patience, what waits is a miss. On return no view is touched."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for some in (self._finding, self._loading, self._storing):
            some.shutdown(wait=True)
        self._client.close()
        with self._lock:
            self._ended = True
            os.close(self._event)

    # ---- on threads ----

    def _submit(
        self,
        threads: ThreadPoolExecutor,
        name: str,
        work: Work,
        keys: Sequence[str],
        views: Sequence[memoryview],
        patience: float,
    ) -> int:
        with self._lock:
            self._tasks += 1
            if self._closed:
                self._end((self._tasks, False, _CLOSED, [False] * len(keys)))
            else:
                until = time.monotonic() + patience
                threads.submit(self._run, self._tasks, name, work, list(keys), list(views), until)
            return self._tasks

    def _run(self, task: int, name: str, work: Work, keys: list[str], views: list[memoryview], until: float) -> None:
        well, why, came = True, "", [False] * len(keys)
        if self._closed:
            well, why = False, _CLOSED
        else:
            try:
                came = work(keys, views, until)
            except Exception as error:
                self._complaints.say(name, "a miss", error)
                well, why = False, str(error)
        with self._lock:
            self._end((task, well, why, came))

    def _end(self, completion: Completion) -> None:
        """Say what became of a task, with the lock held."""
        self._done.append(completion)
        if not self._ended:
            os.eventfd_write(self._event, 1)

    def _set(self, keys: list[str], views: Sequence[memoryview], until: float) -> list[bool]:
        """Store those that are not there. It raises where one is not stored."""
        for places in chains(keys):
            names = [self._naming.served(keys[place]) for place in places]
            self._chunks.store(names, [views[place] for place in places], until)
        self._complaints.well("store")
        return [True] * len(keys)

    def _exists(self, keys: list[str], _: Sequence[memoryview], until: float) -> list[bool]:
        found = [False] * len(keys)
        in_time("find", until)
        for places in chains(keys):
            count = self._chunks.find([self._naming.served(keys[place]) for place in places], until)
            for place in places[:count]:
                found[place] = True
        self._complaints.well("find")
        return found

    def _get(self, keys: list[str], views: Sequence[memoryview], until: float) -> list[bool]:
        came = [False] * len(keys)
        for places in chains(keys):

            def take(at: int, chunk: Bytes, places: list[int] = places) -> bool:
                drain(chunk, views[places[at]])
                return True

            count = self._chunks.load([self._naming.served(keys[place]) for place in places], take, until)
            for place in places[:count]:
                came[place] = True
        return came


def chains(keys: Sequence[str]) -> list[list[int]]:
    """Part keys into prompts: the places of those that differ by their hash alone, in order.

    The server puts the keys of several ranks one after the other. Of each, a chunk is of use with those before it.
    """
    found: dict[tuple[str, ...], list[int]] = {}
    for place, key in enumerate(keys):
        parts = key.split("@")
        found.setdefault((*parts[:3], *parts[4:]), []).append(place)
    return list(found.values())
