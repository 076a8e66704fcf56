"""The plug-ins of LMCache, below a double of it, over real agents.

Tests with agents run if KVFERRY_BIN names the command.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Any

import msgpack
import numpy as np
import pytest

import kvferry
import lmcache_double as double
import vllm_double
from hosts import MODES, SIDES, Hosts
from kvferry.lmcache import KvferryL2
from kvferry.lmcache.chunks import AgentChunks
from kvferry.lmcache.l2 import group_by_prompt
from kvferry.lmcache.naming import ChunkNaming
from kvferry.tenants import tenant_of_salt
from lmcache_double import CHUNK, Config, DisaggSpec, Engine, Key, Metadata, Server, make_pair, make_views, spec_of
from nodes import HOST, needs_binary

PAGE_BYTES = vllm_double.PAGE_BYTES


def notified_requests(zmq: double.ZmqDouble, count: int) -> list[str]:
    """Wait until the proxy was notified of so many requests; return them."""
    with zmq.heard:
        assert zmq.heard.wait_for(lambda: len(zmq.sent) >= count, vllm_double.TIMEOUT)
    messages = [msgpack.unpackb(message) for url, message in zmq.sent if url == f"tcp://{HOST}:7555"]
    assert all(message["type"] == "ProxyNotif" for message in messages)
    return [message["req_id"] for message in messages]


def wait_until_released(hosts: Hosts) -> None:
    """Wait until the agents have released all chunks."""
    wait_until_found(lambda: [hosts.count_held(side) for side in SIDES], [0, 0])


# ---- from a prefill to a decode ----


@needs_binary
@MODES
@pytest.mark.parametrize("killed", [None, "decode", "prefill"])
def test_prompts_go_to_the_decode(hosts: Hosts, zmq: double.ZmqDouble, killed: str | None) -> None:
    """Whatever agent is killed, loaded chunks are correct, the proxy is notified, and nothing stays held."""
    prefill, decode = make_pair(hosts, pd_proxy_host=HOST, pd_proxy_port=7555)
    drawn, came = random.Random(3), 0
    done: list[Key] = []
    lengths = [drawn.choice((1, 5, CHUNK - 1, CHUNK, 3 * CHUNK + 2, 20 * CHUNK + 7)) for _ in range(24)]
    wanted = 0
    for i, tokens in enumerate(lengths):
        keys = [Key(i << 20 | chunk) for chunk in range(-(-tokens // CHUNK))]
        spec = spec_of(hosts, f"r{i}")
        spec.total_chunks = len(keys)
        # As vLLM schedules parts of a prompt: whole chunks, and the rest when it is computed.
        cut = drawn.randrange(len(keys))
        futures = prefill.put(keys[:cut], cut * CHUNK, spec, done.append) or []
        spec.is_last_prefill = True
        futures += prefill.put(keys[cut:], tokens - cut * CHUNK, spec, done.append)
        spec.is_last_prefill = False  # It is LMCache's memory, and was read by then.
        if i == 12 and killed:
            hosts.agents[killed].kill()
            hosts.start(killed)
        sent = prefill.count_sent(futures)
        assert notified_requests(zmq, i + 1)[-1] == f"r{i}"
        assert not any(prefill.backend.exists_in_put_tasks(key) for key in keys)
        found = decode.backend.batched_contains(keys, pin=True)
        got = decode.count_loaded(keys)
        assert sent == len(keys) or killed
        assert got <= found
        came, wanted = came + got, wanted + len(keys)
        for key in keys[:found]:
            decode.backend.unpin(key)
        wait_until_found(lambda: decode.backend.batched_contains(keys), 0)  # noqa: B023 # It was for this request alone.
    if killed is None:
        assert came == wanted == len(done)
    else:
        assert came > wanted // 3
    for engine in (prefill, decode):
        engine.backend.close()
        assert engine.local.live_objects == 0
    wait_until_released(hosts)


@needs_binary
@MODES
def test_async_gets_and_room(hosts: Hosts, zmq: double.ZmqDouble) -> None:
    """A chunk without room in the engine is a miss, and nothing is kept for it."""
    del zmq

    async def play() -> None:
        prefill = Engine.create({"socket": hosts.socket("prefill")})
        loop = asyncio.get_running_loop()
        narrow = Engine.create({"socket": hosts.socket("decode")}, loop=loop, room=2)
        keys = [Key(chunk) for chunk in range(5)]
        prefill.count_sent(prefill.put(keys, 5 * CHUNK, spec_of(hosts, "r")))
        assert await narrow.backend.batched_async_contains("id", [*keys, Key(99)], pin=True) == 5
        got = await narrow.backend.batched_get_non_blocking("id", keys, {"cum_chunk_lengths": [0]})
        assert narrow.verify_chunks(keys, got) == 2
        wait_until_released(hosts)
        for engine in (prefill, narrow):
            engine.backend.close()
            assert engine.local.live_objects == 0
        assert await narrow.backend.batched_async_contains("id", keys) == 0  # Called late.
        assert await narrow.backend.batched_get_non_blocking("id", keys) == []

    asyncio.run(play())


@needs_binary
def test_a_proxy_that_takes_nothing_is_no_error(
    hosts: Hosts, zmq: double.ZmqDouble, caplog: pytest.LogCaptureFixture
) -> None:
    prefill, decode = make_pair(hosts, pd_proxy_host=HOST, pd_proxy_port=7555)
    zmq.full, spec = True, spec_of(hosts, "r")
    spec.is_last_prefill = True
    assert prefill.count_sent(prefill.put([Key(1)], CHUNK, spec)) == 1
    for engine in (prefill, decode):
        engine.backend.close()
    assert "the proxy could not be notified of the end of request r" in caplog.text
    assert not zmq.sent


@needs_binary
def test_pins_and_removes(hosts: Hosts, zmq: double.ZmqDouble) -> None:
    del zmq
    prefill, decode = make_pair(hosts)
    keys = [Key(chunk) for chunk in range(3)]
    prefill.count_sent(prefill.put(keys, 3 * CHUNK, spec_of(hosts, "r")))
    assert decode.backend.pin(keys[0])
    assert not decode.backend.pin(Key(99))
    assert decode.backend.remove(keys[0])
    assert decode.backend.contains(keys[0])  # It is pinned.
    assert decode.backend.unpin(keys[0])
    assert not decode.backend.unpin(keys[0])
    wait_until_found(lambda: decode.backend.contains(keys[0]), False)
    assert decode.backend.contains(keys[1], pin=True)
    assert decode.backend.remove(keys[1])
    assert decode.backend.remove(keys[2])
    assert not decode.backend.remove(keys[2])
    for engine in (prefill, decode):
        engine.backend.close()  # With a pin.
    wait_until_released(hosts)


@needs_binary
@pytest.mark.parametrize("hosts", [("delayed",)], indirect=True)
def test_removes_of_what_was_offered(hosts: Hosts, zmq: double.ZmqDouble) -> None:
    """It cannot be pinned, and its sender gets the memory back."""
    del zmq
    prefill, decode = make_pair(hosts)
    keys = [Key(chunk) for chunk in range(3)]
    prefill.count_sent(prefill.put(keys, 3 * CHUNK, spec_of(hosts, "r")))
    assert hosts.count_held("prefill") > 0
    assert decode.backend.batched_contains(keys, pin=True) == 3
    assert not decode.backend.pin(keys[0])
    assert not decode.backend.unpin(keys[0])
    assert [decode.backend.remove(key) for key in keys] == [True] * 3
    assert not decode.backend.remove(keys[0])
    assert decode.backend.batched_contains(keys) == 0
    for engine in (prefill, decode):
        engine.backend.close()
    wait_until_released(hosts)


@needs_binary
@pytest.mark.parametrize("hosts", [("delayed",)], indirect=True)
def test_what_another_engine_took_is_not_waited_for(
    hosts: Hosts, zmq: double.ZmqDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks before it are loaded nevertheless."""
    del zmq
    prefill, decode = make_pair(hosts)
    keys = [Key(chunk) for chunk in range(3)]
    prefill.count_sent(prefill.put(keys[:2], 2 * CHUNK, spec_of(hosts, "r")))
    contains, asked = kvferry.Client.contains, []

    def all_at_first(client: kvferry.Client, names: list[str]) -> int:
        asked.append(names)
        return len(names) if len(asked) == 1 else contains(client, names)

    monkeypatch.setattr(kvferry.Client, "contains", all_at_first)
    assert decode.count_loaded(keys) == 2  # Otherwise it is a miss after the timeout.
    for engine in (prefill, decode):
        engine.backend.close()
    wait_until_released(hosts)


@needs_binary
def test_what_comes_again_is_held_once(hosts: Hosts, zmq: double.ZmqDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    del zmq
    _, decode = engines = make_pair(hosts)

    def load(_: AgentChunks, names: list[str], take: Any, until: float, *, shared: bool) -> int:
        del names, until, shared
        assert all(take(0, np.zeros(PAGE_BYTES, np.uint8)) for _ in range(2))
        return 0

    monkeypatch.setattr(AgentChunks, "load_chunks", load)
    assert decode.backend.get_blocking(Key(1)) is None
    for engine in engines:
        engine.backend.close()
        assert engine.local.live_objects == 0


@needs_binary
def test_puts_that_cannot_be_are_said_by_name(
    hosts: Hosts, zmq: double.ZmqDouble, caplog: pytest.LogCaptureFixture
) -> None:
    del zmq
    prefill, decode = make_pair(hosts)
    caplog.set_level(logging.WARNING, "kvferry.lmcache")
    for field, spec in {
        "disagg_spec.receiver_init_port": DisaggSpec("r", HOST, [], [1]),
        "disagg_spec.receiver_alloc_port": DisaggSpec("r", HOST, [1], None),
        "disagg_spec.receiver_host": DisaggSpec("r", "", [1], [1]),
    }.items():
        caplog.clear()
        prefill.backend._failures.clear_failures("put")
        assert prefill.put([Key(1)], CHUNK, spec) is None
        assert field in caplog.text
    assert prefill.put([Key(1)], CHUNK) is None  # No request needs it.
    caplog.clear()
    assert decode.count_sent(decode.put([Key(1)], CHUNK, spec_of(hosts, "r"))) == 0
    assert "pd_role" in caplog.text
    for engine in (prefill, decode):
        engine.backend.close()
        assert engine.local.live_objects == 0
        assert not engine.backend.contains(Key(1))  # Called late.
        assert engine.count_sent(engine.put([Key(1)], CHUNK, spec_of(hosts, "r"))) == 0


@needs_binary
@pytest.mark.parametrize("hosts", [("prefill", "decode")], indirect=True)
def test_agents_whose_chunks_go_layer_by_layer_are_refused(hosts: Hosts, zmq: double.ZmqDouble) -> None:
    del zmq
    for side in SIDES:
        with pytest.raises(kvferry.InvalidError, match=r"layers of the agent is 2.*use_layerwise"):
            Engine.create({"socket": hosts.socket(side)})


@needs_binary
def test_agents_that_do_not_fit_are_refused(hosts: Hosts, zmq: double.ZmqDouble) -> None:
    del zmq
    with pytest.raises(kvferry.InvalidError, match=r"page of the agent is .* want .* a chunk of 32 tokens"):
        Engine.create({"socket": hosts.socket("prefill")}, chunk_size=2 * CHUNK)
    with pytest.raises(kvferry.InvalidError, match="sides of the agent is sender, want sharing"):
        KvferryL2(socket=hosts.socket("prefill"))


@pytest.mark.parametrize(
    ("field", "config", "metadata"),
    [
        ("enable_pd", {"enable_pd": True}, {}),
        ("use_layerwise", {"use_layerwise": True}, {}),
        ("groups of layers", {}, {"groups": 2}),
        ("extra_config.kvferry.sockets", {"extra_config": {"kvferry": {"sockets": "x"}}}, {}),
        ("extra_config.kvferry.loads", {"extra_config": {"kvferry": {"socket": "x", "loads": 0}}}, {}),
        ("extra_config.kvferry.grace", {"extra_config": {"kvferry": {"socket": "x", "grace": True}}}, {}),
        ("extra_config.kvferry.socket", {"extra_config": {}}, {}),
    ],
)
def test_engines_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, zmq: double.ZmqDouble, field: str, config: dict[str, Any], metadata: dict[str, Any]
) -> None:
    from kvferry.lmcache import KvferryBackend

    del zmq
    monkeypatch.delenv("KVFERRY_SOCKET", raising=False)
    given = Config(**{"extra_config": {"kvferry": {"socket": "/nowhere"}}, **config})
    with pytest.raises(kvferry.InvalidError) as raised:
        KvferryBackend(config=given, metadata=Metadata(**metadata))
    assert raised.value.field == field
    assert raised.value.remedy


def test_an_agent_that_is_not_there_is_said(zmq: double.ZmqDouble) -> None:
    del zmq
    with pytest.raises(kvferry.Error, match="/nowhere"):
        Engine.create({"socket": "/nowhere", "start_patience": 0.1})


# ---- between those who share ----


def wait_until_found(find: Any, wanted: Any) -> None:
    """Wait until a directory or an agent has the chunks."""
    until = time.monotonic() + vllm_double.TIMEOUT
    while find() != wanted:
        assert time.monotonic() < until
        time.sleep(0.01)


@needs_binary
def test_engines_share(sharers: list[str], zmq: double.ZmqDouble) -> None:
    del zmq
    first, away = (Engine.create({"socket": path, "grace": 0.2}) for path in sharers)
    drawn = random.Random(1)
    keys = [Key(drawn.getrandbits(60)) for _ in range(20)]
    assert first.count_sent(first.put(keys, 19 * CHUNK + 3)) == 19  # The cache contains whole chunks only.
    assert first.count_sent(first.put(keys, 19 * CHUNK + 3)) == 19
    assert first.backend.batched_contains(keys) == first.count_loaded(keys) == 19
    wait_until_found(lambda: away.backend.batched_contains(keys), 19)
    assert away.count_loaded(keys) == 19
    assert away.backend.pin(keys[0])
    assert not away.backend.remove(keys[0])
    others = [Key(drawn.getrandbits(60)) for _ in range(64)]  # As many as there are pages.
    for begin in range(0, 64, 16):
        away.count_sent(away.put(others[begin : begin + 16], 16 * CHUNK))
    with kvferry.connect(sharers[1]) as client:
        naming = ChunkNaming.from_text("double")
        assert client.contains([naming.shared_name(keys[0])]) == 1
        assert client.contains([naming.shared_name(keys[1])]) == 0
    for engine in (first, away):
        engine.backend.close()
        assert engine.local.live_objects == 0
    for path in sharers:
        with kvferry.connect(path) as client:
            node = client.stats()["node"]
        assert node["pinned"] == node["pages_leased"] == node["claims"] == 0


# ---- the multi-process server ----


def test_names_of_chunks() -> None:
    keys = double.make_l2_keys(3, ranks=2)
    assert group_by_prompt(keys) == [[0, 1, 2], [3, 4, 5]]
    assert group_by_prompt([keys[0] + "@salt", keys[0], keys[1] + "@salt"]) == [[0, 2], [1]]
    names = {ChunkNaming("").server_name(key) for key in [*keys, keys[0] + "@salt"]}
    assert len(names) == 7
    assert len({name.split("@")[3] for name in names}) == 7
    assert all(name.startswith("org/m@1@0@") and len(name.split("@")[3]) == 16 for name in names)
    # LMCache's salt is a tenant of agents.
    assert ChunkNaming("").server_name(keys[0] + "@salt").endswith("@kvft%" + tenant_of_salt("salt"))
    assert not any("kvft" in ChunkNaming("").server_name(key) for key in keys)


@needs_binary
def test_servers_share(sharers: list[str], tmp_path: Any) -> None:
    """Two ranks of one server store, both servers load, and then the agents stop."""
    here, away = (Server(KvferryL2(socket=path, grace=0.2, load_patience=5)) for path in sharers)
    keys, stored = double.make_l2_keys(9, ranks=2), make_views(18)
    none, all_ = [False] * 18, [True] * 18
    assert here.wait(here.adapter.submit_batch_exists(keys)) == (True, "", none)
    assert here.wait(here.adapter.submit_batch_get(keys, make_views(18))) == (True, "", none)
    assert here.wait(here.adapter.submit_batch_set(keys, stored)) == (True, "", all_)
    assert here.wait(here.adapter.submit_batch_set(keys, stored)) == (True, "", all_)
    wait_until_found(lambda: sum(away.wait(away.adapter.submit_batch_exists(keys))[2]), 18)
    for server in (here, away):
        into = make_views(18)
        assert server.wait(server.adapter.submit_batch_get(keys, into)) == (True, "", all_)
        assert into == stored
    # After a missing chunk no chunk of its rank is usable; those of the other rank are.
    holed = [*keys[:2], *double.make_l2_keys(1), *keys[3:]]
    some = [True] * 2 + [False] * 7 + [True] * 9
    assert away.wait(away.adapter.submit_batch_exists(holed))[2] == some
    assert away.wait(away.adapter.submit_batch_get(holed, make_views(18)))[2] == some
    # Nothing is deleted.
    assert here.wait(here.adapter.submit_batch_delete(keys)) == (True, "", none)
    assert here.wait(here.adapter.submit_batch_exists(keys))[2] == all_
    # Chunks of other sizes are refused, and are misses.
    ok, error, came = here.wait(here.adapter.submit_batch_set(double.make_l2_keys(1), make_views(1, PAGE_BYTES // 2)))
    assert (ok, came) == (False, [False])
    assert "size of a chunk is 1024 bytes, want the agent's 2048" in error
    assert here.wait(here.adapter.submit_batch_get(keys[:1], make_views(1, PAGE_BYTES // 2)))[2] == [False]
    tasks = [away.adapter.submit_batch_get(keys, make_views(18)) for _ in range(20)]
    assert len(set(tasks)) == 20
    for server in (here, away):
        server.adapter.close()
        server.adapter.close()
    for path in sharers:
        with kvferry.connect(path) as client:
            node = client.stats()["node"]
        assert node["pinned"] == node["pages_leased"] == node["claims"] == 0


@needs_binary
def test_an_agent_that_is_gone_is_a_miss(alone: tuple[Any, str], caplog: pytest.LogCaptureFixture) -> None:
    start, path = alone
    first = start()
    server = Server(KvferryL2(socket=path, grace=0.1))
    keys, stored = double.make_l2_keys(3), make_views(3)

    def tried() -> list[int]:
        into = make_views(3)
        came = [
            server.wait(server.adapter.submit_batch_set(keys, stored))[2],
            server.wait(server.adapter.submit_batch_exists(keys))[2],
            server.wait(server.adapter.submit_batch_get(keys, into))[2],
        ]
        assert [got for got, is_ in zip(into, came[2], strict=True) if is_] == stored[: sum(came[2])]
        return [sum(some) for some in came]

    assert tried() == [3, 3, 3]
    first.kill()
    caplog.set_level(logging.WARNING, "kvferry.lmcache")
    for _ in range(3):
        assert tried() == [0, 0, 0]
    assert sum("store: a miss" in record.message for record in caplog.records) == 1
    start()
    wait_until_found(lambda: sum(tried()), 9)
    server.adapter.close()
