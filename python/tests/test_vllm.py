"""The connector of vLLM, below doubles of its scheduler and worker and over a double of the agents: successful
loads.
"""

from __future__ import annotations

import time

import pytest

import vllm_double as double
from agents_double import AgentsDouble, EnginePair, prompt
from kvferry.traces import parse_traceparent
from vllm_double import Status
from vllm_engine import Request

LENGTHS = [1, 3, 4, 5, 15, 16, 17, 31, 32, 50]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("decode_first", [False, True])
@pytest.mark.parametrize("delayed", [False, True])
def test_kv_comes(wire: AgentsDouble, length: int, decode_first: bool, delayed: bool) -> None:
    pair, tokens = EnginePair(wire, delayed=delayed), prompt(length, length)
    if decode_first:
        request = pair.add_decode("r", tokens)
        pair.decode.step()
        assert request.status == Status.WAITING_FOR_REMOTE_KVS
        pair.run_prefill("r", tokens)
    else:
        request = pair.add_decode("r", tokens, pair.run_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.computed_tokens == 1  # The last token, which is recomputed: everything else was loaded.
    pair.close_all()
    assert not wire.claims
    assert pair.prefill.counts["saved_requests"] == pair.decode.counts["loaded_requests"] == 1
    assert "failed_loads" not in pair.decode.counts


@pytest.mark.parametrize("delayed", [False, True])
def test_traces_go_on(wire: AgentsDouble, delayed: bool) -> None:
    """The span that a traced request comes with goes to the agents, with the put and with the get or fetch."""
    parents = {name: f"00-4bf92f3577b34da6a3ce929d0e0e4736-{name * 16}-01" for name in "ab"}
    pair, tokens = EnginePair(wire, delayed=delayed), prompt(1, 20)
    params = pair.run_prefill("r", tokens, trace_headers={"traceparent": parents["a"], "tracestate": "x=y"})
    pair.decode.add(Request("r-0b", tokens, params, trace_headers={"traceparent": parents["b"]}))
    pair.decode.run(lambda: not pair.decode.requests)
    pair.close_all()
    assert set(wire.traces) == {parse_traceparent(parent) for parent in parents.values()}


@pytest.mark.parametrize("local", [1, 4, 6, 14])
@pytest.mark.parametrize("came", [None, 2])
def test_what_is_there_already_is_left_as_it_is(wire: AgentsDouble, local: int, came: int | None) -> None:
    wire.refuse_after = came
    pair, tokens = EnginePair(wire, load_patience=20 if came is None else 0.2), prompt(1, 60)
    params = pair.run_prefill("r", tokens)
    request = pair.decode.add(Request("r-0b", tokens, params, prefix_blocks=local))
    pair.close_all()
    assert request.computed_tokens == (1 if came is None else 60 - max(32, local * double.BLOCK))
    assert pair.decode.counts["loaded_bytes"] == double.LAYERS * double.BLOCK_BYTES * (
        15 - local if came is None else max(0, 8 - local)
    )
    assert not wire.claims


def test_all_that_was_sent_may_be_there_already(wire: AgentsDouble) -> None:
    pair, tokens = EnginePair(wire), prompt(1, 16)
    params = pair.run_prefill("r", tokens)
    request = pair.decode.add(Request("r-0b", [*tokens, 7], params, prefix_blocks=4))
    pair.close_all()
    assert request.computed_tokens == 1
    assert "r" in wire.abandoned_requests


def test_prompts_that_begin_alike(wire: AgentsDouble) -> None:
    pair, stem = EnginePair(wire), prompt(1, 40)
    told = {f"r{i}": (stem[: 8 * i] + prompt(i + 2, 9), i) for i in range(1, 5)}
    given = {name: pair.run_prefill(name, tokens) for name, (tokens, _) in told.items()}
    made = [pair.add_decode(name, tokens, given[name]) for name, (tokens, _) in told.items()]
    pair.decode.run(lambda: not pair.decode.requests)
    assert [request.computed_tokens for request in made] == [1] * 4
    pair.close_all()


def test_a_prompt_that_is_longer_at_the_decode(wire: AgentsDouble) -> None:
    """A proxy may append the first token: the KV of all other tokens is loaded."""
    pair, tokens = EnginePair(wire), prompt(1, 16)
    params = pair.run_prefill("r", tokens)
    request = pair.add_decode("r", [*tokens, 7], params)
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.computed_tokens == 1
    pair.close_all()


def test_a_request_that_is_preempted_is_computed_the_second_time(wire: AgentsDouble) -> None:
    pair, tokens = EnginePair(wire), prompt(1, 33)
    request = pair.add_decode("r", tokens, pair.run_prefill("r", tokens))
    pair.decode.run(lambda: request.status == Status.RUNNING, finish=False)
    pair.decode.preempt(request)
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.computed_tokens == 1 + 33
    pair.close_all()


def test_blocks_are_kept_until_they_were_read_and_no_longer(wire: AgentsDouble) -> None:
    """The put holds pages, not blocks, and the engine continues meanwhile."""
    pair, tokens = EnginePair(wire), prompt(1, 33)
    with wire.changed:
        wire.is_holding = True
    pair.run_prefill("r", tokens)
    pair.prefill.run(lambda: not pair.prefill.requests)
    assert len(pair.prefill.free) == 63
    assert wire.held_pages == 1
    with wire.changed:
        wire.is_holding = False
        wire.changed.notify_all()
    pair.close_all()


def test_a_request_waits_for_blocks(wire: AgentsDouble) -> None:
    """vLLM asks again, and loads once."""
    pair = EnginePair(wire)
    long = [prompt(i, 200) for i in range(2)]
    first, second = (pair.add_decode(f"r{i}", tokens) for i, tokens in enumerate(long))
    pair.decode.run(lambda: first.status == Status.WAITING_FOR_REMOTE_KVS)
    assert second.status == Status.WAITING
    for i, tokens in enumerate(long):
        pair.run_prefill(f"r{i}", tokens)
        pair.prefill.run(lambda: not pair.prefill.requests)
    pair.decode.run(lambda: not pair.decode.requests)
    assert first.computed_tokens == second.computed_tokens == 1
    pair.close_all()


def test_requests_of_others_are_left_alone(wire: AgentsDouble) -> None:
    pair, tokens = EnginePair(wire), prompt(1, 9)
    for engine in (pair.prefill, pair.decode):
        plain = engine.add(Request("plain", tokens))
        other = engine.add(Request("other", tokens, {"do_remote_decode": True}))
        engine.run(engine.is_idle)
        assert plain.computed_tokens == other.computed_tokens == 9
        assert set(engine.outputs.values()) == {None}
    pair.close_all()


def test_counts_come_to_vllm(wire: AgentsDouble) -> None:
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


def test_closing_ends_loads_that_wait(wire: AgentsDouble) -> None:
    pair = EnginePair(wire, load_patience=600)
    pair.add_decode("r", prompt(1, 9))
    pair.decode.step()
    begun = time.monotonic()
    pair.decode.worker.shutdown()
    assert time.monotonic() - begun < double.TIMEOUT
    assert wire.held_pages == 0
