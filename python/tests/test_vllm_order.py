"""The connector under each order in which vLLM may call it: what is sent was computed before."""

from __future__ import annotations

from typing import Any

import pytest

import vllm_double as double
import vllm_engine
from agents_double import Agent, Pair, Wire, prompt
from gate import Gate
from vllm_engine import Request

LENGTHS = [15, 32, 50]


@pytest.fixture(params=[False, True], ids=["whole", "layered"])
def either(wire: Wire, request: pytest.FixtureRequest) -> Wire:
    if request.param:
        wire.layers = dict.fromkeys(wire.layers, double.LAYERS)
    return wire


@pytest.fixture
def layered(wire: Wire) -> Wire:
    wire.layers = dict.fromkeys(wire.layers, double.LAYERS)
    return wire


def sent_and_taken(pair: Pair, tokens: list[int]) -> Request:
    """Send a prompt's KV. The double compares each block with what it would have computed."""
    request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    pair.settle()
    return request


def drained(pair: Pair) -> Any:
    """Give what has the prefill's threads do all that they were given, so that nothing is late by chance."""
    return lambda: _drain(pair)


def _drain(pair: Pair) -> None:
    layers = pair.prefill.worker._working._pushing
    if layers is not None:
        vllm_engine.wait_until(lambda: not any(run.busy for run in list(layers._runs.values())))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("budget", [1 << 20, 20])
@pytest.mark.parametrize("hooks", [True, False])
def test_loads_may_begin_before_the_forward_pass(either: Wire, length: int, budget: int, hooks: bool) -> None:
    """Where another connector of MultiConnector loads what the step needs, vLLM has all begin before it."""
    pair = Pair(either, budget)
    for engine in (pair.prefill, pair.decode):
        engine.loads_first, engine.hooks = True, hooks
    pair.prefill.between = drained(pair)
    assert sent_and_taken(pair, prompt(length, length)).worked == 1


@pytest.mark.parametrize("loads_first", [False, True])
def test_a_draft_model_computes_its_layers_last(either: Wire, loads_first: bool) -> None:
    pair = Pair(either, 20)
    pair.prefill.draft, pair.prefill.loads_first = 1, loads_first
    pair.prefill.between = drained(pair)
    assert sent_and_taken(pair, prompt(1, 50)).worked == 1


def test_a_step_in_several_batches_says_of_a_layer_more_than_once(
    either: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = double.config

    def config(role: str, **extra: Any) -> Any:
        vllm = made(role, **extra)
        vllm.parallel_config.use_ubatching = True
        return vllm

    monkeypatch.setattr("vllm_engine.config", config)
    pair, tokens = Pair(either), prompt(1, 50)
    pair.prefill.batches = 2
    pair.prefill.between = drained(pair)
    pair.prefill.add(Request("first", prompt(2, 20)))  # The first batch has this one alone.
    assert sent_and_taken(pair, tokens).worked == 1


def test_a_preemption_is_known_before_the_step_writes(layered: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it that vLLM says nothing of it but with the work that it binds."""
    pair, tokens = Pair(layered, 16, blocks=16), prompt(1, 45)
    pair.prefill.announces = False
    gate = Gate(monkeypatch, Agent, "reserve")
    sent = pair.prefill.add(Request("r-0a", tokens, pair.params("r")))
    pair.prefill.step()
    assert gate.reached.wait(double.PATIENCE)
    pair.prefill.step()
    pair.prefill.preempt(sent)
    other = pair.prefill.add(Request("other", prompt(2, 40)))
    pair.prefill._waiting.reverse()

    def late() -> None:  # The copy runs while the blocks are written that it reads.
        gate.go.set()
        _drain(pair)

    pair.prefill.between = late
    pair.prefill.run(lambda: other.worked == 40)
    pair.prefill.run(lambda: not pair.prefill.requests)
    request = pair.to_decode("r", tokens, pair.prefill.outputs["r-0a"])
    pair.settle()
    assert request.worked == 1


class ForwardError(Exception):
    """The model failed."""


@pytest.mark.parametrize("loads_first", [False, True])
@pytest.mark.parametrize("hooks", [False, True])
def test_nothing_of_a_step_that_failed_is_sent(layered: Wire, loads_first: bool, hooks: bool) -> None:
    """vLLM ends such a step as if it were over, and the engine soon after."""
    pair, tokens = Pair(layered, load_patience=600), prompt(1, 32)
    request = pair.to_decode("r", tokens)
    pair.decode.step()
    pair.prefill.loads_first, pair.prefill.hooks = loads_first, hooks
    pair.prefill.add(Request("r-0a", tokens, pair.params("r")))

    def fail() -> None:
        raise ForwardError

    pair.prefill.between = fail
    with pytest.raises(ForwardError):
        pair.prefill.step()
    _drain(pair)
    pair.prefill.worker.shutdown()
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.worked > 1  # It was told.


def test_an_exception_that_is_handled_meanwhile_is_none_of_the_step(layered: Wire) -> None:
    pair, tokens = Pair(layered), prompt(1, 32)
    pair.prefill.hooks = False
    try:
        raise ForwardError
    except ForwardError:
        params = pair.to_prefill("r", tokens)
    assert pair.to_decode("r", tokens, params)
    pair.settle()
    assert pair.prefill.counts["saved_requests"] == 1


def test_a_step_without_an_end_sends_nothing(layered: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, tokens = Pair(layered, load_patience=600), prompt(1, 32)
    pair.prefill.hooks = False
    monkeypatch.setattr(pair.prefill.worker, "wait_for_save", lambda: None)
    sent = pair.prefill.add(Request("r-0a", tokens, pair.params("r")))
    pair.prefill.step()
    monkeypatch.undo()
    pair.prefill.run(lambda: not pair.prefill.requests)
    request = pair.to_decode("r", tokens, pair.prefill.outputs["r-0a"])
    pair.settle()
    assert (sent.worked, request.worked) == (32, 32)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("wrong", [4, 16])
@pytest.mark.parametrize("budget", [1 << 20, 20])
def test_what_another_connector_did_not_load_is_not_sent(either: Wire, length: int, wrong: int, budget: int) -> None:
    """Its load is of the very step that computes behind it, and vLLM has it computed anew when the step is over."""
    pair, tokens = Pair(either, budget), prompt(length, length)
    decode = pair.to_decode("r", tokens)  # It waits, and takes what comes.
    pair.decode.step()
    pair.prefill.loads_first = pair.prefill.sync_loads = True
    pair.prefill.sync_wrong = min(wrong, length // double.BLOCK * double.BLOCK)
    pair.prefill.between = drained(pair)
    pair.to_prefill("r", tokens)
    pair.decode.run(lambda: not pair.decode.requests)
    pair.settle()
    assert decode.worked == 1


def test_what_another_connector_loaded_is_sent(layered: Wire) -> None:
    pair = Pair(layered, 20)
    pair.prefill.loads_first = pair.prefill.sync_loads = True
    assert sent_and_taken(pair, prompt(1, 50)).worked == 1
