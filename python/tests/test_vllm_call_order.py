"""The connector under each order in which vLLM may call it: only computed KV is sent."""

from __future__ import annotations

from typing import Any

import pytest

import vllm_double as double
import vllm_engine
from agents_double import Agent, AgentsDouble, EnginePair, prompt
from gate import Gate
from vllm_engine import Request

LENGTHS = [15, 32, 50]


@pytest.fixture(params=[False, True], ids=["whole", "layered"])
def either(wire: AgentsDouble, request: pytest.FixtureRequest) -> AgentsDouble:
    if request.param:
        wire.layers = dict.fromkeys(wire.layers, double.LAYERS)
    return wire


@pytest.fixture
def layered(wire: AgentsDouble) -> AgentsDouble:
    wire.layers = dict.fromkeys(wire.layers, double.LAYERS)
    return wire


def send_and_check(pair: EnginePair, tokens: list[int]) -> Request:
    """Send a prompt's KV. The double compares each block with the expected KV."""
    request = pair.add_decode("r", tokens, pair.run_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    pair.close_all()
    return request


def make_drain(pair: EnginePair) -> Any:
    """Return a function that waits until the prefill's threads are idle, so that nothing is late by chance."""
    return lambda: _drain(pair)


def _drain(pair: EnginePair) -> None:
    layers = pair.prefill.worker._worker._layer_pusher
    if layers is not None:
        vllm_engine.wait_until(lambda: not any(run.is_running for run in list(layers._pushes.values())))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("budget", [1 << 20, 20])
@pytest.mark.parametrize("hooks", [True, False])
def test_loads_may_begin_before_the_forward_pass(either: AgentsDouble, length: int, budget: int, hooks: bool) -> None:
    """If another connector of MultiConnector loads what the step needs, vLLM starts all loads before the pass."""
    pair = EnginePair(either, budget)
    for engine in (pair.prefill, pair.decode):
        engine.loads_before_forward, engine.calls_layer_hooks = True, hooks
    pair.prefill.between_layers = make_drain(pair)
    assert send_and_check(pair, prompt(length, length)).computed_tokens == 1


@pytest.mark.parametrize("loads_first", [False, True])
def test_a_draft_model_computes_its_layers_last(either: AgentsDouble, loads_first: bool) -> None:
    pair = EnginePair(either, 20)
    pair.prefill.draft_layers, pair.prefill.loads_before_forward = 1, loads_first
    pair.prefill.between_layers = make_drain(pair)
    assert send_and_check(pair, prompt(1, 50)).computed_tokens == 1


def test_a_step_in_several_batches_says_of_a_layer_more_than_once(
    either: AgentsDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = double.config

    def config(role: str, **extra: Any) -> Any:
        vllm = made(role, **extra)
        vllm.parallel_config.use_ubatching = True
        return vllm

    monkeypatch.setattr("vllm_engine.config", config)
    pair, tokens = EnginePair(either), prompt(1, 50)
    pair.prefill.batches_per_step = 2
    pair.prefill.between_layers = make_drain(pair)
    pair.prefill.add(Request("first", prompt(2, 20)))  # The first batch consists of this request.
    assert send_and_check(pair, tokens).computed_tokens == 1


def test_a_preemption_is_known_before_the_step_writes(layered: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if vLLM reports it only with the work that it binds."""
    pair, tokens = EnginePair(layered, 16, blocks=16), prompt(1, 45)
    pair.prefill.announces_preemptions = False
    gate = Gate(monkeypatch, Agent, "reserve")
    sent = pair.prefill.add(Request("r-0a", tokens, pair.transfer_params("r")))
    pair.prefill.step()
    assert gate.reached.wait(double.TIMEOUT)
    pair.prefill.step()
    pair.prefill.preempt(sent)
    other = pair.prefill.add(Request("other", prompt(2, 40)))
    pair.prefill._waiting.reverse()

    def late() -> None:  # The copy runs while the blocks that it reads are overwritten.
        gate.release.set()
        _drain(pair)

    pair.prefill.between_layers = late
    pair.prefill.run(lambda: other.computed_tokens == 40)
    pair.prefill.run(lambda: not pair.prefill.requests)
    request = pair.add_decode("r", tokens, pair.prefill.outputs["r-0a"])
    pair.close_all()
    assert request.computed_tokens == 1


class ForwardError(Exception):
    """The model failed."""


@pytest.mark.parametrize("loads_first", [False, True])
@pytest.mark.parametrize("hooks", [False, True])
def test_nothing_of_a_step_that_failed_is_sent(layered: AgentsDouble, loads_first: bool, hooks: bool) -> None:
    """vLLM ends such a step as if it had succeeded, and stops the engine soon after."""
    pair, tokens = EnginePair(layered, load_patience=600), prompt(1, 32)
    request = pair.add_decode("r", tokens)
    pair.decode.step()
    pair.prefill.loads_before_forward, pair.prefill.calls_layer_hooks = loads_first, hooks
    pair.prefill.add(Request("r-0a", tokens, pair.transfer_params("r")))

    def fail() -> None:
        raise ForwardError

    pair.prefill.between_layers = fail
    with pytest.raises(ForwardError):
        pair.prefill.step()
    _drain(pair)
    pair.prefill.worker.shutdown()
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.computed_tokens > 1  # It was reported.


def test_an_exception_that_is_handled_meanwhile_is_none_of_the_step(layered: AgentsDouble) -> None:
    pair, tokens = EnginePair(layered), prompt(1, 32)
    pair.prefill.calls_layer_hooks = False
    try:
        raise ForwardError
    except ForwardError:
        params = pair.run_prefill("r", tokens)
    assert pair.add_decode("r", tokens, params)
    pair.close_all()
    assert pair.prefill.counts["saved_requests"] == 1


def test_a_step_without_an_end_sends_nothing(layered: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, tokens = EnginePair(layered, load_patience=600), prompt(1, 32)
    pair.prefill.calls_layer_hooks = False
    monkeypatch.setattr(pair.prefill.worker, "wait_for_save", lambda: None)
    sent = pair.prefill.add(Request("r-0a", tokens, pair.transfer_params("r")))
    pair.prefill.step()
    monkeypatch.undo()
    pair.prefill.run(lambda: not pair.prefill.requests)
    request = pair.add_decode("r", tokens, pair.prefill.outputs["r-0a"])
    pair.close_all()
    assert (sent.computed_tokens, request.computed_tokens) == (32, 32)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("wrong", [4, 16])
@pytest.mark.parametrize("budget", [1 << 20, 20])
def test_what_another_connector_did_not_load_is_not_sent(
    either: AgentsDouble, length: int, wrong: int, budget: int
) -> None:
    """Its load is in the same step as the dependent computation, and vLLM recomputes it after the step."""
    pair, tokens = EnginePair(either, budget), prompt(length, length)
    decode = pair.add_decode("r", tokens)  # It waits, and loads what arrives.
    pair.decode.step()
    pair.prefill.loads_before_forward = pair.prefill.sync_loads = True
    pair.prefill.wrong_sync_tokens = min(wrong, length // double.BLOCK * double.BLOCK)
    pair.prefill.between_layers = make_drain(pair)
    pair.run_prefill("r", tokens)
    pair.decode.run(lambda: not pair.decode.requests)
    pair.close_all()
    assert decode.computed_tokens == 1


def test_what_another_connector_loaded_is_sent(layered: AgentsDouble) -> None:
    pair = EnginePair(layered, 20)
    pair.prefill.loads_before_forward = pair.prefill.sync_loads = True
    assert send_and_check(pair, prompt(1, 50)).computed_tokens == 1
