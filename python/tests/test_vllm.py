"""The connector of vLLM, below a double of its scheduler and worker, over a double of the agents."""

from __future__ import annotations

import pickle
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import vllm_double as double
from agents_double import Agent, Pair, Wire, prompt
from kvferry import InvalidError, client
from kvferry.codes import Code
from kvferry.errors import error_of, lost
from kvferry.values import Lookup
from kvferry.vllm import working
from vllm_double import Engine, Gate, Request, Status

if TYPE_CHECKING:
    from collections.abc import Callable


LENGTHS = [1, 3, 4, 5, 15, 16, 17, 31, 32, 50]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("decode_first", [False, True])
@pytest.mark.parametrize("delayed", [False, True])
def test_kv_comes(wire: Wire, length: int, decode_first: bool, delayed: bool) -> None:
    pair, tokens = Pair(wire, delayed=delayed), prompt(length, length)
    if decode_first:
        request = pair.to_decode("r", tokens)
        pair.decode.step()
        assert request.status == Status.WAITING_FOR_REMOTE_KVS
        pair.to_prefill("r", tokens)
    else:
        request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.worked == 1  # The last token, which is computed again: the rest came.
    pair.settle()
    assert not wire.claims
    assert pair.prefill.counts["saved_requests"] == pair.decode.counts["loaded_requests"] == 1
    assert "failed_loads" not in pair.decode.counts


@pytest.mark.parametrize("local", [1, 4, 6, 14])
@pytest.mark.parametrize("came", [None, 2])
def test_what_is_there_already_is_left_as_it_is(wire: Wire, local: int, came: int | None) -> None:
    wire.refuse_after = came
    pair, tokens = Pair(wire, load_patience=20 if came is None else 0.2), prompt(1, 60)
    params = pair.to_prefill("r", tokens)
    request = pair.decode.add(Request("r-0b", tokens, params, local=local))
    pair.settle()
    assert request.worked == (1 if came is None else 60 - max(32, local * double.BLOCK))
    assert pair.decode.counts["loaded_bytes"] == double.LAYERS * double.BLOCK_BYTES * (
        15 - local if came is None else max(0, 8 - local)
    )
    assert not wire.claims


def test_all_that_was_sent_may_be_there_already(wire: Wire) -> None:
    pair, tokens = Pair(wire), prompt(1, 16)
    params = pair.to_prefill("r", tokens)
    request = pair.decode.add(Request("r-0b", [*tokens, 7], params, local=4))
    pair.settle()
    assert request.worked == 1
    assert wire.abandoned == ["r"]


def test_prompts_that_begin_alike(wire: Wire) -> None:
    pair, stem = Pair(wire), prompt(1, 40)
    told = {f"r{i}": (stem[: 8 * i] + prompt(i + 2, 9), i) for i in range(1, 5)}
    given = {name: pair.to_prefill(name, tokens) for name, (tokens, _) in told.items()}
    made = [pair.to_decode(name, tokens, given[name]) for name, (tokens, _) in told.items()]
    pair.decode.run(lambda: not pair.decode.requests)
    assert [request.worked for request in made] == [1] * 4
    pair.settle()


def test_a_prompt_that_is_longer_at_the_decode(wire: Wire) -> None:
    """A proxy may append the first token: of all others the KV comes."""
    pair, tokens = Pair(wire), prompt(1, 16)
    params = pair.to_prefill("r", tokens)
    request = pair.to_decode("r", [*tokens, 7], params)
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.worked == 1
    pair.settle()


@pytest.mark.parametrize("came", [0, 1, 2, 3])
@pytest.mark.parametrize("delayed", [False, True])
def test_what_does_not_come_is_computed(wire: Wire, came: int, delayed: bool) -> None:
    wire.refuse_after = came
    pair, tokens = Pair(wire, load_patience=0.2, delayed=delayed), prompt(1, 60)
    request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.worked == 60 - 16 * came
    pair.settle()
    assert wire.abandoned == ["r"]
    assert pair.prefill.counts["failed_saves"] == pair.decode.counts["failed_loads"] == 1


def test_other_tokens_are_a_miss(wire: Wire) -> None:
    pair, tokens = Pair(wire, load_patience=0.2), prompt(1, 60)
    params = pair.to_prefill("r", tokens)
    request = pair.to_decode("r", [*tokens[:20], 1, *tokens[21:]], params)
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.worked == 60 - 16
    pair.settle()


def test_agents_that_are_gone(wire: Wire) -> None:
    pair, tokens = Pair(wire), prompt(1, 33)
    waiting = pair.to_decode("waits", tokens)
    pair.decode.step()
    wire.dead = True
    with wire.changed:
        wire.changed.notify_all()
    later = pair.to_decode("later", tokens)
    pair.to_prefill("sends", tokens)
    pair.decode.run(lambda: not pair.decode.requests)
    assert waiting.worked == later.worked == 33
    pair.settle()


def test_an_agent_that_comes_back_with_other_pages(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, tokens = Pair(wire, load_patience=600), prompt(1, 33)
    monkeypatch.setattr(pair.prefill.worker._working._client, "page_bytes", 2 * double.PAGE_BYTES)
    request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.worked == 33
    pair.settle()
    assert not wire.claims


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_an_abort_at_the_decode(wire: Wire, when: str) -> None:
    pair, tokens = Pair(wire, load_patience=600), prompt(1, 33)
    request = pair.to_decode("r", tokens)
    if when == "while":
        pair.decode.step()
    elif when == "after":
        pair.to_prefill("r", tokens)
        pair.decode.run(lambda: request.ready, finish=False)
    pair.decode.abort(request)
    if when == "while":  # vLLM keeps the blocks until it is told that nobody writes them.
        assert request.blocks
    pair.settle()
    assert wire.abandoned == ([] if when == "after" else ["r"])
    assert not wire.claims


def test_an_abort_at_the_prefill(wire: Wire) -> None:
    """The decode engine hears of it: it would wait for long."""
    pair = Pair(wire, load_patience=600)
    request = pair.prefill.add(Request("r-0a", prompt(1, 9), pair.params("r")))
    waiting = pair.to_decode("r", prompt(1, 9))
    pair.decode.step()
    pair.prefill.step(finish=False)
    pair.prefill.abort(request)
    assert pair.prefill.outputs["r-0a"] is None
    pair.settle()
    assert waiting.worked == 9
    assert wire.abandoned == ["r"]
    assert not wire.claims


@pytest.mark.parametrize("decode_first", [False, True])
@pytest.mark.parametrize("came", [0, 1])
def test_a_save_that_fails_is_told(wire: Wire, monkeypatch: pytest.MonkeyPatch, decode_first: bool, came: int) -> None:
    """What came before it is used."""
    put, calls = Agent.put, []

    def once(self: Agent, **more: Any) -> None:
        calls.append(more)
        if len(calls) == came + 1:
            raise error_of("put", Code.EXPIRED)
        put(self, **more)

    monkeypatch.setattr(Agent, "put", once)
    pair, tokens = Pair(wire, blocks=128, load_patience=600), prompt(1, 300)
    if decode_first:
        request = pair.to_decode("r", tokens)
        pair.decode.step()
        pair.to_prefill("r", tokens)
    else:
        request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.worked == 300 - 256 * came
    pair.settle()
    assert pair.prefill.counts["failed_saves"] == 1
    assert not wire.claims


def test_a_request_that_is_preempted_is_computed_the_second_time(wire: Wire) -> None:
    pair, tokens = Pair(wire), prompt(1, 33)
    request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.decode.run(lambda: request.status == Status.RUNNING, finish=False)
    pair.decode.preempt(request)
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.worked == 1 + 33
    pair.settle()


def test_blocks_are_kept_until_they_were_read_and_no_longer(wire: Wire) -> None:
    """The put itself holds pages, not blocks; and the engine goes on meanwhile."""
    pair, tokens = Pair(wire), prompt(1, 33)
    with wire.changed:
        wire.holding = True
    pair.to_prefill("r", tokens)
    pair.prefill.run(lambda: not pair.prefill.requests)
    assert len(pair.prefill.free) == 63
    assert wire.held == 1
    with wire.changed:
        wire.holding = False
        wire.changed.notify_all()
    pair.settle()


def test_a_request_waits_for_blocks(wire: Wire) -> None:
    """vLLM asks again, and loads once."""
    pair = Pair(wire)
    long = [prompt(i, 200) for i in range(2)]
    first, second = (pair.to_decode(f"r{i}", tokens) for i, tokens in enumerate(long))
    pair.decode.run(lambda: first.status == Status.WAITING_FOR_REMOTE_KVS)
    assert second.status == Status.WAITING
    for i, tokens in enumerate(long):
        pair.to_prefill(f"r{i}", tokens)
        pair.prefill.run(lambda: not pair.prefill.requests)
    pair.decode.run(lambda: not pair.decode.requests)
    assert first.worked == second.worked == 1
    pair.settle()


@pytest.mark.parametrize(
    "spec",
    [
        None,
        "r",
        {},
        {"req_id": ""},
        {"req_id": "r" * 129},
        {"req_id": "r", "receiver_host": 5},
        {"req_id": "r", "receiver_host": "d", "receiver_init_port": [], "receiver_alloc_port": []},
        {"req_id": "r", "receiver_host": "d", "receiver_init_port": [1, 2], "receiver_alloc_port": [1]},
        {"req_id": "r", "receiver_host": "d", "receiver_init_port": 0, "receiver_alloc_port": 70000},
    ],
)
def test_parameters_of_no_use_end_no_engine(wire: Wire, spec: Any, caplog: pytest.LogCaptureFixture) -> None:
    pair, tokens = Pair(wire, load_patience=0.1), prompt(1, 9)
    sent = pair.prefill.add(Request("p", tokens, {"disagg_spec": spec}))
    wanted = pair.decode.add(Request("d", tokens, {"disagg_spec": spec, "do_remote_prefill": True}))
    pair.settle()
    assert sent.worked == wanted.worked == 9
    assert pair.prefill.outputs["p"] is None
    assert "disagg_spec" in caplog.text or "port" in caplog.text
    assert not wire.chunks


@pytest.mark.parametrize("params", ["do_remote_prefill", 1, ["disagg_spec"]])
def test_parameters_that_are_no_object_are_none(wire: Wire, params: Any) -> None:
    pair, tokens = Pair(wire), prompt(1, 9)
    for engine in (pair.prefill, pair.decode):
        request = engine.add(Request("r", tokens, params))
        engine.run(engine.idle)
        assert request.worked == 9
        assert engine.outputs["r"] is None
    pair.settle()


def test_requests_of_others_are_left_alone(wire: Wire) -> None:
    pair, tokens = Pair(wire), prompt(1, 9)
    for engine in (pair.prefill, pair.decode):
        plain = engine.add(Request("plain", tokens))
        other = engine.add(Request("other", tokens, {"do_remote_decode": True}))
        engine.run(engine.idle)
        assert plain.worked == other.worked == 9
        assert set(engine.outputs.values()) == {None}
    pair.settle()


def test_engines_that_are_not_supported_are_refused_by_name(wire: Wire) -> None:
    from kvferry.vllm.connector import KvferryConnector

    def made(change: Callable[[Any, Any], None], role: str = "kv_producer") -> None:
        vllm, cache = double.config(role), double.cache_config(8)
        change(vllm, cache)
        KvferryConnector(vllm, double.Role.SCHEDULER, cache)

    group = double.cache_config(8).kv_cache_groups[0]
    sliding = SimpleNamespace(kv_cache_spec=type("SlidingWindowSpec", (double.FullAttentionSpec,), {})())
    for field_, change in (
        ("kv_cache_groups", lambda _, c: c.kv_cache_groups.append(group)),
        ("kv_cache_groups", lambda _, c: c.kv_cache_groups.clear()),
        ("SlidingWindowSpec", lambda _, c: c.kv_cache_groups.__setitem__(0, sliding)),
        ("pipeline_parallel_size", lambda v, _: setattr(v.parallel_config, "pipeline_parallel_size", 2)),
        ("kv_role", lambda v, _: setattr(v.kv_transfer_config, "kv_role", "kv_none")),
        ("model", lambda v, _: setattr(v.model_config, "model", "a@b")),
        ("loadpatience", lambda v, _: v.kv_transfer_config.kv_connector_extra_config.update(loadpatience=1)),
        ("load_patience", lambda v, _: v.kv_transfer_config.kv_connector_extra_config.update(load_patience="1")),
        ("delayed", lambda v, _: v.kv_transfer_config.kv_connector_extra_config.update(delayed=1)),
        ("loads", lambda v, _: v.kv_transfer_config.kv_connector_extra_config.update(loads=True)),
        ("hash_bits", lambda v, _: v.kv_transfer_config.kv_connector_extra_config.update(hash_bits=128)),
        ("saves", lambda v, _: v.kv_transfer_config.kv_connector_extra_config.update(saves=0)),
    ):
        with pytest.raises(InvalidError, match=field_):
            made(change)


def test_caches_that_are_not_supported_are_refused_by_name(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvferry.vllm.connector import KvferryConnector

    whole = np.zeros((2, 8, double.HEADS, double.BLOCK, 2 * double.HEAD), np.float32)

    def registered(layers: dict[str, double.Tensor]) -> None:
        vllm, cache = double.config("kv_producer"), double.cache_config(8)
        KvferryConnector(vllm, double.Role.WORKER, cache).register_kv_caches(layers)

    good = {"a": double.Tensor(whole[0]), "b": double.Tensor(whole[1])}
    registered(good)
    registered({**good, "c": double.Tensor(whole[0])})  # A layer that has another one's.
    registered({**good, "b": double.Tensor(whole[1].swapaxes(1, 2))})  # Tokens first: without gaps all the same.
    for field_, tensor in (
        ("device of b", double.Tensor(whole[1], "cuda:0")),
        ("shape of b", double.Tensor(whole[1].swapaxes(0, 1))),
        ("strides of b", double.Tensor(whole.repeat(2, 4)[1][..., ::2])),
        ("bytes of a block of b", double.Tensor(np.zeros((8, 3), np.float32))),
    ):
        with pytest.raises(InvalidError, match=field_):
            registered({**good, "b": tensor})
    with pytest.raises(InvalidError, match="page of the agent"):
        registered({**good, "c": double.Tensor(whole[0] + 0)})
    for change, field_ in (
        ({"sides": ("receiver",)}, "sides of the agent"),
        ({"shape": (2, 2, 32, 4)}, "chunk_size of the agent"),
    ):
        agent = Agent(wire)
        vars(agent.info).update(change)
        monkeypatch.setattr(client, "connect", lambda *_, agent=agent, **__: agent)
        with pytest.raises(InvalidError, match=field_):
            registered(good)


def test_names_are_the_same_in_every_process_and_differ_where_kv_does() -> None:
    from dataclasses import replace

    from kvferry.vllm.keys import Names
    from kvferry.vllm.words import Prompt

    names = Names("m", 2, 1, "bfloat16", "layout", 4)
    plain = Prompt((1, 2, 3, 4, 5))
    keys = names.keys(plain)
    assert keys == [
        "m@2@1@e2827dae77fa07b89faa5c0aafc305ac33ad17bbd16a50e2a751db193c187d8f@bfloat16",
        "m@2@1@99fa6a3ab25a67f850b293dbeb7b2bb10891d9883c88f9982dec07fe69518cbc@bfloat16",
    ]
    assert names.keys(Prompt((1, 2, 3, 4)))[0] == keys[0]
    assert names.keys(Prompt((1, 2, 3, 4, 5, 6)))[1] != keys[1]
    others = [names.keys(Prompt(plain.tokens, "x")), replace(names, layout="other").keys(plain)]
    assert all(other[0] != keys[0] and other[1] != keys[1] for other in others)


def test_what_beside_tokens_changes_kv_changes_names() -> None:
    from kvferry.vllm.scheduling import beside_of

    position = SimpleNamespace(offset=3, length=4)
    found = {
        beside_of(SimpleNamespace(**given))
        for given in (
            {},
            {"cache_salt": "s"},
            {"lora_request": SimpleNamespace(lora_name="a")},
            {"mm_features": [SimpleNamespace(identifier="i", mm_position=position)]},
        )
    }
    assert len(found) == 4


def test_counts_come_to_vllm(wire: Wire) -> None:
    from kvferry.vllm.connector import KvferryConnector

    made: dict[str, float] = {}

    class Counter:
        def __init__(self, name: str, documentation: str, labelnames: list[str]) -> None:
            assert documentation
            assert labelnames == ["engine"]
            self._name = name

        def labels(self, *_: object) -> Counter:
            return self

        def inc(self, by: float) -> None:
            made[self._name] = made.get(self._name, 0) + by

    metrics = KvferryConnector.build_prom_metrics(None, {"counter": Counter}, ["engine"], {0: ["0"]})
    one = KvferryConnector.build_kv_connector_stats({"loaded_requests": 2, "load_seconds": 0.5})
    both = one.aggregate(KvferryConnector.build_kv_connector_stats({"loaded_requests": 1}))
    assert both.reduce() == {"loaded_requests": 3, "load_seconds": 0.5}
    metrics.observe(both.data)
    assert made == {"kvferry:loaded_requests": 3, "kvferry:load_seconds": 0.5}
    both.reset()
    assert both.is_empty()


def test_closing_ends_loads_that_wait(wire: Wire) -> None:
    pair = Pair(wire, load_patience=600)
    pair.to_decode("r", prompt(1, 9))
    pair.decode.step()
    begun = time.monotonic()
    pair.decode.worker.shutdown()
    assert time.monotonic() - begun < double.PATIENCE
    assert wire.held == 0


# ---- engines that share ----


def sharing(hosts: int, **extra: Any) -> list[Engine]:
    from kvferry.vllm import KvferryConnector

    return [Engine(KvferryConnector, "kv_both", socket=f"{i % hosts}.sock", **extra) for i in range(2)]


def run(engine: Engine, name: str, tokens: list[int]) -> Request:
    request = engine.add(Request(name, tokens))
    engine.run(engine.idle)
    return request


def ended(engines: list[Engine], wire: Wire) -> None:
    for engine in engines:
        engine.close()
    assert wire.held == 0


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize(
    ("length", "same", "worked"), [(60, 50, 12), (64, 64, 1), (16, 16, 1), (15, 15, 15), (60, 9, 60)]
)
def test_whole_chunks_of_a_prompt_are_shared(wire: Wire, hosts: int, length: int, same: int, worked: int) -> None:
    engines, tokens = sharing(hosts), prompt(1, length)
    assert run(engines[0], "one", tokens).worked == length
    assert run(engines[1], "two", tokens[:same] + prompt(2, length - same)).worked == worked
    ended(engines, wire)


def test_what_is_there_is_not_stored_again(wire: Wire) -> None:
    """The double of an agent asserts it."""
    engines = sharing(1)
    for name in ("one", "two"):
        run(engines[0], name, prompt(1, 60))
    ended(engines, wire)
    assert engines[0].counts["stored_bytes"] == 3 * double.PAGE_BYTES


def test_a_directory_that_is_down_hides_what_others_have_alone(wire: Wire) -> None:
    engines, tokens = sharing(2), prompt(1, 60)
    run(engines[0], "one", tokens)
    wire.directory = False
    assert run(engines[1], "two", tokens).worked == 60
    assert run(engines[0], "three", [*tokens[:48], 1]).worked == 1
    ended(engines, wire)


def test_what_a_hint_promised_and_is_gone_is_computed(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    engines, tokens = sharing(2), prompt(1, 60)
    run(engines[0], "one", tokens)
    gone = wire.shared["0.sock"]
    key = list(gone)[1]
    monkeypatch.setattr(Agent, "lookup", lambda *_: Lookup(0, 3))
    del gone[key]
    assert run(engines[1], "two", tokens).worked == 60 - 16
    ended(engines, wire)
    assert engines[1].counts["failed_loads"] == 1


def test_an_engine_whose_agent_is_gone_computes(wire: Wire) -> None:
    engines, tokens = sharing(1), prompt(1, 60)
    run(engines[0], "one", tokens)
    wire.dead = True
    assert run(engines[0], "two", tokens).worked == 60
    ended(engines, wire)


def test_the_scheduler_does_not_wait_for_an_answer(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    engines, tokens = sharing(1), prompt(1, 60)
    go = threading.Event()
    monkeypatch.setattr(Agent, "contains", lambda *_: int(not go.wait(double.PATIENCE)))
    slow, short = Request("slow", tokens), Request("short", tokens[:9])
    engines[0].add(slow)
    engines[0].add(short)
    engines[0].run(lambda: "short" in engines[0].outputs)
    assert slow.status == Status.WAITING
    engines[0].abort(slow)
    go.set()
    ended(engines, wire)


def test_an_abort_while_shared_kv_is_read(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    engines, tokens = sharing(1), prompt(1, 60)
    run(engines[0], "one", tokens)
    go, get = threading.Event(), Agent.shared_get
    monkeypatch.setattr(Agent, "shared_get", lambda *a, **k: get(*a, **k) if go.wait(double.PATIENCE) else None)
    request = engines[1].add(Request("two", tokens))
    engines[1].run(lambda: request.status == Status.WAITING_FOR_REMOTE_KVS)
    engines[1].step()
    engines[1].abort(request)
    assert request.blocks
    go.set()
    ended(engines, wire)
    assert not wire.abandoned


def test_a_request_that_names_a_receiver_is_sent_also_by_who_shares(wire: Wire) -> None:
    engines, tokens = sharing(1), prompt(1, 60)
    spec = {"req_id": "r", "receiver_host": "d", "receiver_init_port": [1], "receiver_alloc_port": [2]}
    engines[0].add(Request("p", tokens, {"disagg_spec": spec}))
    engines[0].run(engines[0].idle)
    request = engines[1].add(Request("d", tokens, engines[0].outputs["p"]))
    engines[1].run(engines[1].idle)
    assert request.worked == 1
    assert run(engines[1], "another", [*tokens[:48], 1, 2]).worked == 2  # It was stored as well.
    ended(engines, wire)
    assert not wire.claims


def test_an_agent_that_is_lost_when_all_was_sent(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    put = Agent.put

    def lost_then(self: Agent, **more: Any) -> None:
        put(self, **more)
        more["pages"].put = False
        raise lost("put")

    monkeypatch.setattr(Agent, "put", lost_then)
    pair, tokens = Pair(wire), prompt(1, 45)
    request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.settle()
    assert request.worked == 1
    assert not wire.claims


@pytest.mark.parametrize("late", ["put", "store"])
def test_blocks_are_kept_until_all_have_read_them(wire: Wire, monkeypatch: pytest.MonkeyPatch, late: str) -> None:
    engines, tokens = sharing(1), prompt(1, 60)
    gate = Gate(monkeypatch, *((working, "peer_of") if late == "put" else (Agent, "contains")))
    spec = {"req_id": "r", "receiver_host": "d", "receiver_init_port": [1], "receiver_alloc_port": [2]}
    request = engines[0].add(Request("p", tokens, {"disagg_spec": spec}))
    word = "stored_bytes" if late == "put" else "saved_requests"
    engines[0].run(lambda: gate.reached.is_set() and word in engines[0].counts)
    engines[0].step()
    assert request.blocks
    gate.go.set()
    ended(engines, wire)
    assert not request.blocks


@pytest.mark.parametrize("patience", [20, 0.1])
def test_a_source_that_has_enough_others_is_asked_again(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    engines, tokens = sharing(2, load_patience=patience), prompt(1, 60)
    run(engines[0], "one", tokens)
    get, asked = Agent.shared_get, []

    def crowded(self: Agent, keys: list[str], **rest: Any) -> Any:
        asked.append(len(keys))
        pages = get(self, keys[: len(asked) % 2 if patience > 1 else 0], **rest)  # Each second time one chunk comes.
        pages.short = error_of("shared_get", Code.TOO_MANY) if len(pages) < len(keys) else None
        return pages

    monkeypatch.setattr(Agent, "shared_get", crowded)
    assert run(engines[1], "two", tokens).worked == (60 - 48 if patience > 1 else 60)
    assert asked[:5] == ([3, 2, 2, 1, 1] if patience > 1 else [3, 3, 3, 3, 3][: len(asked)])
    ended(engines, wire)


def test_short_names_for_directories() -> None:
    from kvferry.vllm.keys import Names
    from kvferry.vllm.words import Prompt

    some = Prompt(tuple(range(9)))
    long, short = (Names("m", 1, 0, "half", "l", 4, bits).keys(some) for bits in (256, 64))
    assert [key.split("@")[3] for key in short] == [key.split("@")[3][:16] for key in long]


def test_what_goes_between_processes_can_be_pickled(wire: Wire) -> None:
    """Scheduler and workers may be processes of their own."""
    from kvferry.vllm import connector
    from kvferry.vllm.keys import Names
    from kvferry.vllm.settings import Duties
    from kvferry.vllm.words import Gone, Load, Part, Prompt, Push, Receiver, Save, Store, Work

    some = Prompt((1, 2), "beside")
    to = Receiver("h", (1,), (2,))
    work = Work(
        saves=[Save("a", "b", some, (1,), to)],
        loads=[Load("a", "b", some, (1,), 0, shared=True)],
        stores=[Store("a", some, (1,))],
        pushes=[Push("a", "b", some, to)],
        parts=[Part("a", 0, (1,), 2, last=True)],
        preempts=["a"],
        gone=[Gone("b", to)],
        cancels=["a"],
        abandons=["b"],
    )
    metadata = pickle.loads(pickle.dumps(connector.Metadata(work)))  # noqa: S301
    assert metadata.work == work
    told = connector.Handshake(Names("m", 1, 0, "half", "l", 4), Duties(shares=True))
    assert pickle.loads(pickle.dumps(told)) == told  # noqa: S301
