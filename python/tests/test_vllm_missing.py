"""The connector of vLLM, over doubles of it and of the agents: KV that does not come, and requests that end early."""

from __future__ import annotations

from typing import Any

import pytest

import vllm_double as double
from agents_double import Agent, Pair, Wire, prompt
from kvferry.codes import Code
from kvferry.errors import error_of, lost
from vllm_engine import Request


@pytest.mark.parametrize("came", [0, 1, 2, 3])
@pytest.mark.parametrize("delayed", [False, True])
def test_what_does_not_come_is_computed(wire: Wire, came: int, delayed: bool) -> None:
    wire.refuse_after = came
    pair, tokens = Pair(wire, load_patience=0.2, delayed=delayed), prompt(1, 60)
    request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.worked == 60 - 16 * came
    pair.settle()
    assert "r" in wire.abandoned
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
    for i in range(2):  # As it is known that the agent is away, nothing is promised.
        sends = pair.prefill.add(Request(f"sends{i}-0a", tokens, pair.params(f"sends{i}")))
        pair.prefill.run(lambda name=sends.request_id: name not in pair.prefill.requests)  # type: ignore[misc]
    assert pair.prefill.outputs["sends1-0a"] is None
    pair.decode.run(lambda: not pair.decode.requests)
    assert waiting.worked == later.worked == 33
    wire.dead = False
    pair.prefill.run(lambda: {"sends0", "sends1"} <= set(wire.ended))
    assert wire.ended["sends0"][0] in (Code.PEER_LOST, Code.CANCELLED)
    assert wire.ended["sends1"][0] == Code.CANCELLED
    pair.settle()
    assert pair.prefill.counts["failed_saves"] == 2


def test_an_agent_that_comes_back_with_other_pages(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, tokens = Pair(wire, load_patience=600), prompt(1, 33)
    monkeypatch.setattr(pair.prefill.worker._working._client, "page_bytes", 2 * double.PAGE_BYTES)
    request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.worked == 33
    pair.settle()
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
    assert "r" in wire.abandoned
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
    assert "r" in wire.abandoned
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
