"""The connector of vLLM, over doubles of it and of the agents: missing KV, and requests that end early."""

from __future__ import annotations

from typing import Any

import pytest

import vllm_double as double
from agents_double import Agent, AgentsDouble, EnginePair, prompt
from kvferry.codes import Code
from kvferry.errors import lost_error, make_error
from vllm_engine import Request


@pytest.mark.parametrize("came", [0, 1, 2, 3])
@pytest.mark.parametrize("delayed", [False, True])
def test_what_does_not_come_is_computed(wire: AgentsDouble, came: int, delayed: bool) -> None:
    wire.refuse_after = came
    pair, tokens = EnginePair(wire, load_patience=0.2, delayed=delayed), prompt(1, 60)
    request = pair.add_decode("r", tokens, pair.run_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.computed_tokens == 60 - 16 * came
    pair.close_all()
    assert "r" in wire.abandoned_requests
    assert pair.prefill.counts["failed_saves"] == pair.decode.counts["failed_loads"] == 1


def test_other_tokens_are_a_miss(wire: AgentsDouble) -> None:
    pair, tokens = EnginePair(wire, load_patience=0.2), prompt(1, 60)
    params = pair.run_prefill("r", tokens)
    request = pair.add_decode("r", [*tokens[:20], 1, *tokens[21:]], params)
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.computed_tokens == 60 - 16
    pair.close_all()


def test_agents_that_are_gone(wire: AgentsDouble) -> None:
    pair, tokens = EnginePair(wire), prompt(1, 33)
    waiting = pair.add_decode("waits", tokens)
    pair.decode.step()
    wire.is_dead = True
    with wire.changed:
        wire.changed.notify_all()
    later = pair.add_decode("later", tokens)
    for i in range(2):  # While the agent is known to be unreachable, nothing is promised.
        sends = pair.prefill.add(Request(f"sends{i}-0a", tokens, pair.transfer_params(f"sends{i}")))
        pair.prefill.run(lambda name=sends.request_id: name not in pair.prefill.requests)  # type: ignore[misc]
    assert pair.prefill.outputs["sends1-0a"] is None
    pair.decode.run(lambda: not pair.decode.requests)
    assert waiting.computed_tokens == later.computed_tokens == 33
    wire.is_dead = False
    pair.prefill.run(lambda: {"sends0", "sends1"} <= set(wire.request_ends))
    assert wire.request_ends["sends0"][0] in (Code.PEER_LOST, Code.CANCELLED)
    assert wire.request_ends["sends1"][0] == Code.CANCELLED
    pair.close_all()
    assert pair.prefill.counts["failed_saves"] == 2


def test_an_agent_that_comes_back_with_other_pages(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, tokens = EnginePair(wire, load_patience=600), prompt(1, 33)
    monkeypatch.setattr(pair.prefill.worker._worker._client, "page_bytes", 2 * double.PAGE_BYTES)
    request = pair.add_decode("r", tokens, pair.run_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.computed_tokens == 33
    pair.close_all()
    assert not wire.claims


def test_an_agent_that_is_lost_when_all_was_sent(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    put = Agent.put

    def lost_then(self: Agent, **more: Any) -> None:
        put(self, **more)
        more["pages"].put = False
        raise lost_error("put")

    monkeypatch.setattr(Agent, "put", lost_then)
    pair, tokens = EnginePair(wire), prompt(1, 45)
    request = pair.add_decode("r", tokens, pair.run_prefill("r", tokens))
    pair.close_all()
    assert request.computed_tokens == 1
    assert not wire.claims


@pytest.mark.parametrize("when", ["before", "while", "after"])
def test_an_abort_at_the_decode(wire: AgentsDouble, when: str) -> None:
    pair, tokens = EnginePair(wire, load_patience=600), prompt(1, 33)
    request = pair.add_decode("r", tokens)
    if when == "while":
        pair.decode.step()
    elif when == "after":
        pair.run_prefill("r", tokens)
        pair.decode.run(lambda: request.is_ready, finish=False)
    pair.decode.abort(request)
    if when == "while":  # vLLM keeps the blocks until the load is reported as ended.
        assert request.blocks
    pair.close_all()
    assert "r" in wire.abandoned_requests
    assert not wire.claims


def test_an_abort_at_the_prefill(wire: AgentsDouble) -> None:
    """The decode engine is notified; otherwise it would wait for long."""
    pair = EnginePair(wire, load_patience=600)
    request = pair.prefill.add(Request("r-0a", prompt(1, 9), pair.transfer_params("r")))
    waiting = pair.add_decode("r", prompt(1, 9))
    pair.decode.step()
    pair.prefill.step(finish=False)
    pair.prefill.abort(request)
    assert pair.prefill.outputs["r-0a"] is None
    pair.close_all()
    assert waiting.computed_tokens == 9
    assert "r" in wire.abandoned_requests
    assert not wire.claims


@pytest.mark.parametrize("decode_first", [False, True])
@pytest.mark.parametrize("came", [0, 1])
def test_a_save_that_fails_is_told(
    wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch, decode_first: bool, came: int
) -> None:
    """Chunks that arrived before are used."""
    put, calls = Agent.put, []

    def once(self: Agent, **more: Any) -> None:
        calls.append(more)
        if len(calls) == came + 1:
            raise make_error("put", Code.EXPIRED)
        put(self, **more)

    monkeypatch.setattr(Agent, "put", once)
    pair, tokens = EnginePair(wire, blocks=128, load_patience=600), prompt(1, 300)
    if decode_first:
        request = pair.add_decode("r", tokens)
        pair.decode.step()
        pair.run_prefill("r", tokens)
    else:
        request = pair.add_decode("r", tokens, pair.run_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.computed_tokens == 300 - 256 * came
    pair.close_all()
    assert pair.prefill.counts["failed_saves"] == 1
    assert not wire.claims
