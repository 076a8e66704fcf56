"""The plug-ins of LMCache that end, or whose agent does, while something is under way: over real agents.

It runs where KVFERRY_BIN names the command.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

import pytest

import lmcache_double as double
import test_lmcache
import test_vllm_agents as vllm_agents
import vllm_double
from kvferry import agent
from kvferry.lmcache import KvferryL2, chunks
from kvferry.lmcache.chunks import Chunks
from lmcache_double import CHUNK, Engine, Key, l2_keys
from test_vllm_agents import Hosts

pytestmark = pytest.mark.skipif(agent.BINARY_VARIABLE not in os.environ, reason="KVFERRY_BIN is not set")

hosts, zmq, alone = vllm_agents.hosts, test_lmcache.zmq, test_lmcache.alone


class Gate:
    """Holds up a method of Chunks, on whichever thread, until it is told to go on."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        former = getattr(Chunks, name)

        def gate(*args: Any, **more: Any) -> Any:
            self.reached.set()
            assert self.go.wait(vllm_double.PATIENCE)
            return former(*args, **more)

        patch.setattr(Chunks, name, gate)


def test_tasks_of_an_adapter_that_ends_are_misses(alone: tuple[Any, str], monkeypatch: pytest.MonkeyPatch) -> None:
    start, path = alone
    start()
    adapter, gate = KvferryL2(socket=path, loads=1), Gate(monkeypatch, "load")
    keys, views = l2_keys(2), test_lmcache.views(2)
    tasks = [adapter.submit_batch_get(keys, views) for _ in range(3)]
    assert gate.reached.wait(vllm_double.PATIENCE)
    closing = threading.Thread(target=adapter.close)
    closing.start()
    until = time.monotonic() + vllm_double.PATIENCE
    while not adapter._closed:
        assert time.monotonic() < until
    gate.go.set()
    closing.join(vllm_double.PATIENCE)
    tasks.append(adapter.submit_batch_exists(keys))  # As late as that.
    none, closed = [False, False], "the adapter is closed"
    said = {task: rest for task, *rest in adapter.drain_completions()}
    assert said == dict(zip(tasks, [[True, "", none], *([[False, closed, none]] * 3)], strict=True))
    assert adapter.drain_completions() == []


def test_what_waits_for_a_backend_that_ends_is_a_miss(
    hosts: Hosts, zmq: double.Zmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    del zmq

    async def play() -> None:
        prefill = Engine.of({"socket": hosts.socket("prefill")})
        keys = [Key(chunk) for chunk in range(3)]
        prefill.sent(prefill.put(keys, 3 * CHUNK, test_lmcache.spec_of(hosts, "r")))
        loop = asyncio.get_running_loop()
        decode = Engine.of({"socket": hosts.socket("decode"), "loads": 1}, loop=loop)
        gate = Gate(monkeypatch, "find")
        begun = asyncio.ensure_future(decode.backend.batched_async_contains("id", keys))
        await asyncio.to_thread(gate.reached.wait, vllm_double.PATIENCE)
        waits = [
            asyncio.ensure_future(decode.backend.batched_async_contains("id", keys)),
            asyncio.ensure_future(decode.backend.batched_get_non_blocking("id", keys)),
        ]
        await asyncio.sleep(0)  # Both are asked for.
        closing = asyncio.ensure_future(asyncio.to_thread(decode.backend.close))
        await asyncio.to_thread(decode.backend._closing.wait, vllm_double.PATIENCE)
        gate.go.set()
        assert await begun == 3
        assert await asyncio.gather(*waits) == [0, []]
        await closing
        prefill.backend.close()
        assert decode.local.live == prefill.local.live == 0

    asyncio.run(play())


def test_what_came_of_an_agent_that_was_another_at_the_end_is_a_miss(
    hosts: Hosts, zmq: double.Zmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And LMCache has its memory back."""
    del zmq
    prefill, decode = test_lmcache.pair(hosts)
    keys, drained = [Key(chunk) for chunk in range(3)], []
    prefill.sent(prefill.put(keys, 3 * CHUNK, test_lmcache.spec_of(hosts, "r")))
    same_size = chunks.same_size

    def last(page: Any, size: int) -> None:
        same_size(page, size)
        drained.append(page.array())
        if len(drained) == 3:
            monkeypatch.setattr(type(page), "array", lambda self: drained[-1])  # It was looked at in time.
            hosts.anew("decode", decode.backend._client)

    monkeypatch.setattr(chunks, "same_size", last)
    assert decode.got(keys) == 0
    for engine in (prefill, decode):
        engine.backend.close()
        assert engine.local.live == 0
