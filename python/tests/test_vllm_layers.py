"""The connector of vLLM where agents push layer by layer, over doubles of both."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import vllm_double as double
from agents_double import Agent, Pair, Prefill, Wire, prompt
from gate import Gate
from kvferry import InvalidError, client
from kvferry.codes import Code
from kvferry.errors import error_of, lost
from kvferry.vllm.cache import Cache
from kvferry.vllm.pushes import Pushes
from kvferry.vllm.words import Part, Prompt, Push, Receiver, Work
from vllm_double import Status
from vllm_engine import Output, Request

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTHS = [1, 4, 15, 16, 17, 32, 50]


@pytest.fixture
def layered(wire: Wire) -> Wire:
    wire.layers = dict.fromkeys(wire.layers, double.LAYERS)
    return wire


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("decode_first", [False, True])
@pytest.mark.parametrize("budget", [1 << 20, 5, 16, 21])
def test_kv_comes(layered: Wire, length: int, decode_first: bool, budget: int) -> None:
    pair, tokens = Pair(layered, budget), prompt(length, length)
    if decode_first:
        request = pair.to_decode("r", tokens)
        pair.decode.step()
        pair.to_prefill("r", tokens)
    else:
        request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.worked == 1
    pair.settle()
    assert not layered.claims
    assert layered.layered == double.LAYERS * -(-length // 16)
    assert pair.prefill.counts["saved_requests"] == pair.decode.counts["loaded_requests"] == 1
    assert pair.prefill.counts["saved_bytes"] == pair.decode.counts["loaded_bytes"]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_decode_that_takes_whole_chunks(wire: Wire, length: int) -> None:
    """Its agent gets each chunk in one page, put together of the layers'."""
    wire.layers["kv_producer"] = double.LAYERS
    pair, tokens = Pair(wire), prompt(length, length)
    request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.settle()
    assert request.worked == 1


def test_a_layer_goes_before_the_next_one_is_computed(layered: Wire) -> None:
    pair, tokens = Pair(layered), prompt(1, 64)
    seen = []

    def between() -> None:
        with layered.changed:
            layered.changed.wait_for(lambda: layered.layered >= 4, double.PATIENCE)
        seen.append(layered.layered)

    pair.prefill.between = between
    pair.to_prefill("r", tokens)
    assert seen[0] == 4
    pair.to_decode("r", tokens)
    pair.settle()


def test_an_engine_that_says_nothing_of_its_layers(layered: Wire) -> None:
    pair, tokens = Pair(layered, 21), prompt(1, 50)
    pair.prefill.hooks = False
    request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.settle()
    assert request.worked == 1


@pytest.mark.parametrize("local", [1, 4, 6, 12])
@pytest.mark.parametrize("budget", [1 << 20, 7])
def test_what_the_prefill_has_from_before_goes_too(layered: Wire, local: int, budget: int) -> None:
    pair, tokens = Pair(layered, budget), prompt(1, 50)
    sent = pair.prefill.add(Request("r-0a", tokens, pair.params("r"), local=local))
    pair.prefill.run(lambda: not pair.prefill.requests)
    request = pair.to_decode("r", tokens, pair.prefill.outputs["r-0a"])
    pair.settle()
    assert (sent.worked, request.worked) == (50 - 4 * local, 1)


def test_several_requests_share_steps(layered: Wire) -> None:
    pair, drawn = Pair(layered, 37, blocks=128), random.Random(3)
    told = {f"r{i}": prompt(i, drawn.choice(LENGTHS)) for i in range(12)}
    made = [pair.to_decode(name, tokens) for name, tokens in told.items()]
    pair.decode.step()
    for name, tokens in told.items():
        pair.prefill.add(Request(f"{name}-0a", tokens, pair.params(name)))
    pair.settle()
    assert [request.worked for request in made] == [1] * 12


def test_blocks_are_kept_until_they_were_read_and_no_longer(layered: Wire) -> None:
    pair, tokens = Pair(layered), prompt(1, 33)
    with layered.changed:
        layered.holding = True
    pair.to_prefill("r", tokens)
    pair.prefill.run(lambda: not pair.prefill.requests)
    assert len(pair.prefill.free) == 63
    assert layered.held
    with layered.changed:
        layered.holding = False
        layered.changed.notify_all()
    pair.settle()


PLACES = [(Agent, "begin_prefill", 0), (Agent, "reserve", 0), (Cache, "gather_layer", 0), (Cache, "gather_layer", 1)]


@pytest.mark.parametrize(("owner", "name", "skip"), PLACES)
@pytest.mark.parametrize("others", [False, True])
def test_a_request_that_is_preempted_half_way(
    layered: Wire, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, skip: int, others: bool
) -> None:
    """Steps go on while a copy is late; it reads blocks that are others' by then, and is never sent."""
    pair, tokens = Pair(layered, 16, blocks=16), prompt(1, 45)
    gate = Gate(monkeypatch, owner, name, skip)
    sent = pair.prefill.add(Request("r-0a", tokens, pair.params("r")))
    pair.prefill.step()
    assert gate.reached.wait(double.PATIENCE)
    pair.prefill.step()
    pair.prefill.preempt(sent)
    if others:
        other = pair.prefill.add(Request("other", prompt(2, 40)))
        pair.prefill._waiting.reverse()
        pair.prefill.run(lambda: other.worked == 40)
    pair.prefill.step()
    gate.go.set()
    pair.prefill.run(lambda: not pair.prefill.requests)
    request = pair.to_decode("r", tokens, pair.prefill.outputs["r-0a"])
    pair.settle()
    assert (sent.worked, request.worked) == (32 + 45, 1)


@pytest.mark.parametrize(("owner", "name", "skip"), PLACES)
def test_a_request_that_is_aborted_half_way(
    layered: Wire, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, skip: int
) -> None:
    pair, tokens = Pair(layered, 16, load_patience=600), prompt(1, 45)
    gate = Gate(monkeypatch, owner, name, skip)
    request = pair.to_decode("r", tokens)
    pair.decode.step()
    sent = pair.prefill.add(Request("r-0a", tokens, pair.params("r")))
    pair.prefill.step()
    assert gate.reached.wait(double.PATIENCE)
    pair.prefill.abort(sent)
    assert pair.prefill.outputs["r-0a"] is None
    assert len(pair.prefill.free) == 63
    pair.prefill.add(Request("other", prompt(2, 200)))
    pair.prefill.step()
    gate.go.set()
    pair.settle()
    assert request.worked > 1  # It was told.
    assert "saved_requests" not in pair.prefill.counts
    assert not layered.claims


def test_a_request_that_is_preempted_when_it_was_sent(layered: Wire) -> None:
    pair, tokens = Pair(layered), prompt(1, 45)
    sent = pair.prefill.add(Request("r-0a", tokens, pair.params("r")))
    pair.prefill.run(lambda: not layered.prefills and layered.layered == 3 * double.LAYERS, finish=False)
    pair.prefill.preempt(sent)
    pair.prefill.run(lambda: not pair.prefill.requests)
    request = pair.to_decode("r", tokens, pair.prefill.outputs["r-0a"])
    pair.settle()
    assert (sent.worked, request.worked) == (90, 1)
    assert pair.prefill.counts["saved_requests"] == 1


@pytest.mark.parametrize("came", [0, 1, 3, 4, 5])
@pytest.mark.parametrize("budget", [1 << 20, 20])
def test_what_does_not_come_is_computed(layered: Wire, came: int, budget: int) -> None:
    layered.refuse_after = came
    pair, tokens = Pair(layered, budget, load_patience=0.2), prompt(1, 45)
    request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.settle()
    assert 1 < request.worked <= 45
    assert pair.prefill.counts["failed_saves"] == pair.decode.counts["failed_loads"] == 1
    assert "r" in layered.abandoned


def test_a_call_that_fails_ends_its_request_alone(layered: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Agent.reserve
    fails = iter([True])

    def once(self: Agent, count: int, *, patience: float) -> Any:
        if next(fails, False):
            raise error_of("reserve", Code.EXPIRED)
        return reserve(self, count, patience=patience)

    monkeypatch.setattr(Agent, "reserve", once)
    pair = Pair(layered, load_patience=600)  # The decode engine hears of it.
    made = []
    for i in range(2):
        params = pair.to_prefill(f"r{i}", prompt(i, 45))
        made.append(pair.to_decode(f"r{i}", prompt(i, 45), params))
    pair.settle()
    assert [request.worked for request in made] == [45, 1]


def test_an_agent_that_is_gone(layered: Wire) -> None:
    pair, tokens = Pair(layered, 16), prompt(1, 45)
    sent = pair.prefill.add(Request("r-0a", tokens, pair.params("r")))
    pair.prefill.step()
    layered.dead = True
    pair.prefill.run(lambda: not pair.prefill.requests)
    request = pair.to_decode("r", tokens, pair.prefill.outputs["r-0a"])
    pair.decode.run(lambda: not pair.decode.requests)
    assert (sent.worked, request.worked) == (45, 45)
    pair.settle()


def test_an_agent_that_is_lost_when_all_was_sent(layered: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody says that it failed: it may all be there, and then nobody waits to hear that."""
    finish = Prefill.finish

    def lost_then(self: Prefill, patience: float) -> None:
        finish(self, patience)
        raise lost("finish_prefill")

    monkeypatch.setattr(Prefill, "finish", lost_then)
    pair, tokens = Pair(layered), prompt(1, 45)
    request = pair.to_decode("r", tokens, pair.to_prefill("r", tokens))
    pair.settle()
    assert request.worked == 1
    assert not layered.claims


def test_an_engine_that_ends_gives_up_what_is_half_done(layered: Wire) -> None:
    pair = Pair(layered, 16)
    request = pair.prefill.add(Request("r-0a", prompt(1, 45), pair.params("r")))
    pair.prefill.step()
    assert request.status == Status.RUNNING
    pair.prefill.worker.shutdown()
    assert not layered.prefills
    assert not layered.held


def test_an_agent_with_other_layers_is_refused(layered: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "connect", lambda path, **_: Agent(layered, path, 3))
    with pytest.raises(InvalidError, match="layers of the agent is 3, want 2"):
        Pair(layered)


# ---- which chunks a step makes whole ----


def parts(steps: list[tuple[int, int]], tokens: int, preempted: Callable[[int], bool] = lambda _: False) -> list[Work]:
    """Give the work of steps, each of tokens that are computed and of those that are computed now."""
    pushes, at, made = Pushes(double.BLOCK, 16), [0], []
    push = Push("r", "shared", Prompt(tuple(range(tokens))), Receiver("h", (1,), (2,)))
    pushes.add(push, lambda: at[0])
    for i, (computed, more) in enumerate(steps):
        at[0] = computed
        work = Work()
        output = Output({"r": more, "other": 1}, {"r"} if preempted(i) else set(), {"r": list(range(100, 200))})
        pushes.step(output, work)
        made.append(work)
    assert (pushes.end("r") is not None) == bool(steps)
    assert pushes.end("r") is None
    return made


def test_a_step_tells_of_chunks_that_became_whole() -> None:
    made = parts([(0, 10), (10, 10), (20, 3), (23, 20), (43, 7), (50, 1)], 50)
    assert [len(work.pushes) for work in made] == [1, 0, 0, 0, 0, 0]
    assert [work.parts for work in made] == [
        [],
        [Part("r", 0, (100, 101, 102, 103), 16, last=False)],
        [],
        [Part("r", 1, (104, 105, 106, 107), 32, last=False)],
        [Part("r", 2, (108, 109, 110, 111, 112), 52, last=True)],
        [],
    ]


def test_a_prompt_of_whole_chunks_ends_with_the_last_of_them() -> None:
    (work,) = parts([(0, 32)], 32)
    assert work.parts == [Part("r", 0, tuple(range(100, 108)), 32, last=True)]
    works = parts([(0, 30), (30, 40)], 32)
    assert [part.last for work in works for part in work.parts] == [False, True]


def test_what_was_there_before_is_told_with_the_first_step() -> None:
    (work,) = parts([(40, 5)], 45)
    assert work.parts == [Part("r", 0, tuple(range(100, 112)), 48, last=True)]


@pytest.mark.parametrize("told", [False, True])
def test_a_request_that_lost_tokens_begins_anew(told: bool) -> None:
    made = parts([(0, 20), (16, 20), (36, 14)], 50, lambda i: told and i == 1)
    assert [work.preempts for work in made] == [[], ["r"], []]
    assert [part.first for work in made for part in work.parts] == [0, 0, 2]
    assert [len(work.pushes) for work in made] == [1, 0, 0]


def test_who_may_be_computed_behind_a_load_that_failed_is_told_of_when_it_ends() -> None:
    """So those are that begin in a step with another connector's load, and in the one that is scheduled meanwhile."""
    pushes, tokens = Pushes(double.BLOCK, 16), tuple(range(40))
    for name in ("before", "within", "meanwhile", "later"):
        pushes.add(Push(name, name, Prompt(tokens), Receiver("h", (1,), (2,))), lambda: 0)

    def told(begins: str, *, loads: bool = False) -> list[str]:
        work = Work()
        pushes.step(Output({begins: 16}, set(), {begins: list(range(10))}, loads), work)
        return [part.ours for part in work.parts]

    assert told("before") == ["before"]
    assert told("within", loads=True) == []
    assert told("meanwhile") == []
    assert told("later") == ["later"]
