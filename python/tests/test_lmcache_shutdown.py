"""The plug-ins of LMCache when they, or their agents, shut down during work: over real agents.

These tests run if KVFERRY_BIN names the command.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

import lmcache_double as double
from gate import TIMEOUT, Gate
from hosts import MODES
from kvferry.lmcache import KvferryL2, chunks
from kvferry.lmcache.chunks import AgentChunks
from lmcache_double import CHUNK, DisaggSpec, Engine, Key, make_l2_keys, make_pair, make_views, spec_of
from nodes import HOST, needs_binary

if TYPE_CHECKING:
    from hosts import Hosts

pytestmark = needs_binary


def test_tasks_of_an_adapter_that_ends_are_misses(alone: tuple[Any, str], monkeypatch: pytest.MonkeyPatch) -> None:
    start, path = alone
    start()
    adapter, gate = (
        KvferryL2(socket=path, loads=1),
        Gate(monkeypatch, AgentChunks, "load_chunks", threads=("kvferry-load",)),
    )
    keys, into = make_l2_keys(2), make_views(2)
    tasks = [adapter.submit_batch_get(keys, into) for _ in range(3)]
    assert gate.reached.wait(TIMEOUT)
    closing = threading.Thread(target=adapter.close)
    closing.start()
    until = time.monotonic() + TIMEOUT
    while not adapter._is_closing:
        assert time.monotonic() < until
    gate.release.set()
    closing.join(TIMEOUT)
    tasks.append(adapter.submit_batch_exists(keys))  # Called late.
    none, closed = [False, False], "the adapter is closed"
    said = {task: rest for task, *rest in adapter.drain_completions()}
    assert said == dict(zip(tasks, [[True, "", none], *([[False, closed, none]] * 3)], strict=True))
    assert adapter.drain_completions() == []


def test_what_waits_for_a_backend_that_ends_is_a_miss(
    hosts: Hosts, zmq: double.ZmqDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    del zmq

    async def play() -> None:
        prefill = Engine.create({"socket": hosts.socket("prefill")})
        keys = [Key(chunk) for chunk in range(3)]
        prefill.count_sent(prefill.put(keys, 3 * CHUNK, spec_of(hosts, "r")))
        loop = asyncio.get_running_loop()
        decode = Engine.create({"socket": hosts.socket("decode"), "loads": 1}, loop=loop)
        gate = Gate(monkeypatch, AgentChunks, "count_available", threads=("kvferry-load",))
        begun = asyncio.ensure_future(decode.backend.batched_async_contains("id", keys))
        assert await asyncio.to_thread(gate.reached.wait, TIMEOUT)
        waits = [
            asyncio.ensure_future(decode.backend.batched_async_contains("id", keys)),
            asyncio.ensure_future(decode.backend.batched_get_non_blocking("id", keys)),
        ]
        await asyncio.sleep(0)  # Both are requested.
        closing = asyncio.ensure_future(asyncio.to_thread(decode.backend.close))
        assert await asyncio.to_thread(decode.backend._closing.wait, TIMEOUT)
        gate.release.set()
        assert await begun == 3
        assert await asyncio.gather(*waits) == [0, []]
        await closing
        prefill.backend.close()
        assert decode.local.live_objects == prefill.local.live_objects == 0

    asyncio.run(play())


@MODES
def test_what_came_of_an_agent_that_was_another_at_the_end_is_a_miss(
    hosts: Hosts, zmq: double.ZmqDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMCache gets its memory back."""
    del zmq
    prefill, decode = make_pair(hosts)
    keys, drained = [Key(chunk) for chunk in range(3)], []
    prefill.count_sent(prefill.put(keys, 3 * CHUNK, spec_of(hosts, "r")))
    same_size = chunks.check_same_size

    def last(given: int, size: int) -> None:
        same_size(given, size)
        drained.append(given)
        if len(drained) == 3:  # It was checked in time.
            hosts.restart_agent("decode", decode.backend._client)

    monkeypatch.setattr(chunks, "check_same_size", last)
    assert decode.count_loaded(keys) == 0
    for engine in (prefill, decode):
        engine.backend.close()
        assert engine.local.live_objects == 0


@MODES
def test_a_prefill_that_ends_early_costs_its_decode_no_patience(hosts: Hosts, zmq: double.ZmqDouble) -> None:
    """LMCache does not tell plug-ins about failed requests, so no end is reported. The decode loads what arrived, and
    misses.

    The decode's timeout is much longer than the test's. The proxy, which waits for the last batch, is notified even if
    nothing of the batch was sent.
    """
    decode = Engine.create({"socket": hosts.socket("decode"), "load_patience": 3600})
    prefill = Engine.create(
        {"socket": hosts.socket("prefill"), "save_patience": 0.3}, pd_proxy_host="10.0.0.9", pd_proxy_port=7500
    )
    ready = Engine.create({"socket": hosts.socket("prefill")})
    keys = [Key(chunk) for chunk in range(4)]
    assert ready.count_sent(ready.put(keys[:2], 2 * CHUNK, spec_of(hosts, "r"))) == 2
    nobody = DisaggSpec("r", HOST, [1], [1], is_last_prefill=True)
    assert prefill.count_sent(prefill.put(keys[2:], 2 * CHUNK, nobody)) == 0
    unusable = DisaggSpec("s", HOST, [], [], is_last_prefill=True)
    assert prefill.put(keys[2:], 2 * CHUNK, unusable) is None
    with zmq.heard:
        assert zmq.heard.wait_for(lambda: len(zmq.sent) == 2, TIMEOUT)
    assert [msgpack.unpackb(message)["req_id"] for _, message in zmq.sent] == ["r", "s"]
    found: list[int] = []
    loads = threading.Thread(
        target=lambda: found.extend([decode.backend.batched_contains(keys), decode.count_loaded(keys)]), daemon=True
    )
    loads.start()
    loads.join(TIMEOUT)
    assert found == [2, 2], "the decode waits for chunks that nobody sends"
    for engine in (decode, prefill, ready):
        engine.backend.close()
        assert engine.local.live_objects == 0
