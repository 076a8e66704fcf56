"""The connector of vLLM with agents that push layer by layer, over doubles of both."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

import vllm_double as double
from agents_double import Agent, AgentsDouble, EnginePair, Prefill, prompt
from gate import Gate
from kvferry import InvalidError, client
from kvferry.codes import Code
from kvferry.errors import lost_error, make_error
from kvferry.traces import parse_traceparent
from kvferry.vllm.cache import Cache
from kvferry.vllm.push_tracker import PushTracker
from kvferry.vllm.step_work import Part, Prompt, Push, Receiver, Work
from vllm_double import Status
from vllm_engine import Output, Request

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTHS = [1, 4, 15, 16, 17, 32, 50]


@pytest.fixture
def layered(wire: AgentsDouble) -> AgentsDouble:
    wire.layers = dict.fromkeys(wire.layers, double.LAYERS)
    return wire


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("decode_first", [False, True])
@pytest.mark.parametrize("budget", [1 << 20, 5, 16, 21])
def test_kv_comes(layered: AgentsDouble, length: int, decode_first: bool, budget: int) -> None:
    pair, tokens = EnginePair(layered, budget), prompt(length, length)
    if decode_first:
        request = pair.add_decode("r", tokens)
        pair.decode.step()
        pair.run_prefill("r", tokens)
    else:
        request = pair.add_decode("r", tokens, pair.run_prefill("r", tokens))
    pair.decode.run(lambda: not pair.decode.requests)
    assert request.computed_tokens == 1
    pair.close_all()
    assert not layered.claims
    assert layered.layered_saves == double.LAYERS * -(-length // 16)
    assert pair.prefill.counts["saved_requests"] == pair.decode.counts["loaded_requests"] == 1
    assert pair.prefill.counts["saved_bytes"] == pair.decode.counts["loaded_bytes"]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_decode_that_takes_whole_chunks(wire: AgentsDouble, length: int) -> None:
    """Its agent gets each chunk in one page, assembled from the layers."""
    wire.layers["kv_producer"] = double.LAYERS
    pair, tokens = EnginePair(wire), prompt(length, length)
    request = pair.add_decode("r", tokens, pair.run_prefill("r", tokens))
    pair.close_all()
    assert request.computed_tokens == 1


def test_traces_go_on(layered: AgentsDouble) -> None:
    """The span that a traced request comes with goes to the agent with the prefill that is begun."""
    parent = f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'a' * 16}-01"
    pair = EnginePair(layered)
    pair.run_prefill("r", prompt(1, 64), trace_headers={"traceparent": parent})
    pair.close_all()
    assert layered.traces == [parse_traceparent(parent)]


def test_a_layer_goes_before_the_next_one_is_computed(layered: AgentsDouble) -> None:
    pair, tokens = EnginePair(layered), prompt(1, 64)
    seen = []

    def between() -> None:
        with layered.changed:
            layered.changed.wait_for(lambda: layered.layered_saves >= 4, double.TIMEOUT)
        seen.append(layered.layered_saves)

    pair.prefill.between_layers = between
    pair.run_prefill("r", tokens)
    assert seen[0] == 4
    pair.add_decode("r", tokens)
    pair.close_all()


def test_an_engine_that_says_nothing_of_its_layers(layered: AgentsDouble) -> None:
    pair, tokens = EnginePair(layered, 21), prompt(1, 50)
    pair.prefill.calls_layer_hooks = False
    request = pair.add_decode("r", tokens, pair.run_prefill("r", tokens))
    pair.close_all()
    assert request.computed_tokens == 1


@pytest.mark.parametrize("local", [1, 4, 6, 12])
@pytest.mark.parametrize("budget", [1 << 20, 7])
def test_what_the_prefill_has_from_before_goes_too(layered: AgentsDouble, local: int, budget: int) -> None:
    pair, tokens = EnginePair(layered, budget), prompt(1, 50)
    sent = pair.prefill.add(Request("r-0a", tokens, pair.transfer_params("r"), prefix_blocks=local))
    pair.prefill.run(lambda: not pair.prefill.requests)
    request = pair.add_decode("r", tokens, pair.prefill.outputs["r-0a"])
    pair.close_all()
    assert (sent.computed_tokens, request.computed_tokens) == (50 - 4 * local, 1)


def test_several_requests_share_steps(layered: AgentsDouble) -> None:
    pair, drawn = EnginePair(layered, 37, blocks=128), random.Random(3)
    told = {f"r{i}": prompt(i, drawn.choice(LENGTHS)) for i in range(12)}
    made = [pair.add_decode(name, tokens) for name, tokens in told.items()]
    pair.decode.step()
    for name, tokens in told.items():
        pair.prefill.add(Request(f"{name}-0a", tokens, pair.transfer_params(name)))
    pair.close_all()
    assert [request.computed_tokens for request in made] == [1] * 12


def test_blocks_are_kept_until_they_were_read_and_no_longer(layered: AgentsDouble) -> None:
    pair, tokens = EnginePair(layered), prompt(1, 33)
    with layered.changed:
        layered.is_holding = True
    pair.run_prefill("r", tokens)
    pair.prefill.run(lambda: not pair.prefill.requests)
    assert len(pair.prefill.free) == 63
    assert layered.held_pages
    with layered.changed:
        layered.is_holding = False
        layered.changed.notify_all()
    pair.close_all()


PLACES = [(Agent, "begin_prefill", 0), (Agent, "reserve", 0), (Cache, "gather_layer", 0), (Cache, "gather_layer", 1)]


@pytest.mark.parametrize(("owner", "name", "skip"), PLACES)
@pytest.mark.parametrize("others", [False, True])
def test_a_request_that_is_preempted_half_way(
    layered: AgentsDouble, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, skip: int, others: bool
) -> None:
    """Steps continue while a copy is late; it reads blocks of other requests by then, and is never sent."""
    pair, tokens = EnginePair(layered, 16, blocks=16), prompt(1, 45)
    gate = Gate(monkeypatch, owner, name, skip)
    sent = pair.prefill.add(Request("r-0a", tokens, pair.transfer_params("r")))
    pair.prefill.step()
    assert gate.reached.wait(double.TIMEOUT)
    pair.prefill.step()
    pair.prefill.preempt(sent)
    if others:
        other = pair.prefill.add(Request("other", prompt(2, 40)))
        pair.prefill._waiting.reverse()
        pair.prefill.run(lambda: other.computed_tokens == 40)
    pair.prefill.step()
    gate.release.set()
    pair.prefill.run(lambda: not pair.prefill.requests)
    request = pair.add_decode("r", tokens, pair.prefill.outputs["r-0a"])
    pair.close_all()
    assert (sent.computed_tokens, request.computed_tokens) == (32 + 45, 1)


@pytest.mark.parametrize(("owner", "name", "skip"), PLACES)
def test_a_request_that_is_aborted_half_way(
    layered: AgentsDouble, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, skip: int
) -> None:
    pair, tokens = EnginePair(layered, 16, load_patience=600), prompt(1, 45)
    gate = Gate(monkeypatch, owner, name, skip)
    request = pair.add_decode("r", tokens)
    pair.decode.step()
    sent = pair.prefill.add(Request("r-0a", tokens, pair.transfer_params("r")))
    pair.prefill.step()
    assert gate.reached.wait(double.TIMEOUT)
    pair.prefill.abort(sent)
    assert pair.prefill.outputs["r-0a"] is None
    assert len(pair.prefill.free) == 63
    pair.prefill.add(Request("other", prompt(2, 200)))
    pair.prefill.step()
    gate.release.set()
    pair.close_all()
    assert request.computed_tokens > 1  # It was reported.
    assert "saved_requests" not in pair.prefill.counts
    assert not layered.claims


def test_a_request_that_is_preempted_when_it_was_sent(layered: AgentsDouble) -> None:
    pair, tokens = EnginePair(layered), prompt(1, 45)
    sent = pair.prefill.add(Request("r-0a", tokens, pair.transfer_params("r")))
    pair.prefill.run(lambda: not layered.prefills and layered.layered_saves == 3 * double.LAYERS, finish=False)
    pair.prefill.preempt(sent)
    pair.prefill.run(lambda: not pair.prefill.requests)
    request = pair.add_decode("r", tokens, pair.prefill.outputs["r-0a"])
    pair.close_all()
    assert (sent.computed_tokens, request.computed_tokens) == (90, 1)
    assert pair.prefill.counts["saved_requests"] == 1


@pytest.mark.parametrize("came", [0, 1, 3, 4, 5])
@pytest.mark.parametrize("budget", [1 << 20, 20])
def test_what_does_not_come_is_computed(layered: AgentsDouble, came: int, budget: int) -> None:
    layered.refuse_after = came
    pair, tokens = EnginePair(layered, budget, load_patience=0.2), prompt(1, 45)
    request = pair.add_decode("r", tokens, pair.run_prefill("r", tokens))
    pair.close_all()
    assert 1 < request.computed_tokens <= 45
    assert pair.prefill.counts["failed_saves"] == pair.decode.counts["failed_loads"] == 1
    assert "r" in layered.abandoned_requests


def test_a_call_that_fails_ends_its_request_alone(layered: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = Agent.reserve
    fails = iter([True])

    def once(self: Agent, count: int, *, key: str, timeout: float) -> Any:
        if next(fails, False):
            raise make_error("reserve", Code.EXPIRED)
        return reserve(self, count, key=key, timeout=timeout)

    monkeypatch.setattr(Agent, "reserve", once)
    pair = EnginePair(layered, load_patience=600)  # The decode engine is notified.
    made = []
    for i in range(2):
        params = pair.run_prefill(f"r{i}", prompt(i, 45))
        made.append(pair.add_decode(f"r{i}", prompt(i, 45), params))
    pair.close_all()
    assert [request.computed_tokens for request in made] == [45, 1]


def test_an_agent_that_is_gone(layered: AgentsDouble) -> None:
    pair, tokens = EnginePair(layered, 16), prompt(1, 45)
    sent = pair.prefill.add(Request("r-0a", tokens, pair.transfer_params("r")))
    pair.prefill.step()
    layered.is_dead = True
    pair.prefill.run(lambda: not pair.prefill.requests)
    request = pair.add_decode("r", tokens, pair.prefill.outputs["r-0a"])
    pair.decode.run(lambda: not pair.decode.requests)
    assert (sent.computed_tokens, request.computed_tokens) == (45, 45)
    pair.close_all()


def test_an_agent_that_is_lost_when_all_was_sent(layered: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """No failure is reported, because everything may have arrived and no waiter needs the notice."""
    finish = Prefill.finish

    def lost_then(self: Prefill, timeout: float) -> None:
        finish(self, timeout)
        raise lost_error("finish_prefill")

    monkeypatch.setattr(Prefill, "finish", lost_then)
    pair, tokens = EnginePair(layered), prompt(1, 45)
    request = pair.add_decode("r", tokens, pair.run_prefill("r", tokens))
    pair.close_all()
    assert request.computed_tokens == 1
    assert not layered.claims


def test_an_engine_that_ends_gives_up_what_is_half_done(layered: AgentsDouble) -> None:
    pair = EnginePair(layered, 16)
    request = pair.prefill.add(Request("r-0a", prompt(1, 45), pair.transfer_params("r")))
    pair.prefill.step()
    assert request.status == Status.RUNNING
    pair.prefill.worker.shutdown()
    assert not layered.prefills
    assert not layered.held_pages


def test_an_agent_with_other_layers_is_refused(layered: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "connect", lambda path, **_: Agent(layered, path, 3))
    with pytest.raises(InvalidError, match="layers of the agent is 3, want 2"):
        EnginePair(layered)


# ---- which chunks a step makes whole ----


def parts(steps: list[tuple[int, int]], tokens: int, preempted: Callable[[int], bool] = lambda _: False) -> list[Work]:
    """Return the work of steps, each with the number of computed tokens and of new tokens."""
    pushes, at, made = PushTracker(double.BLOCK, 16), [0], []
    push = Push("r", "shared", Prompt(tuple(range(tokens))), Receiver("h", (1,), (2,)))
    pushes.track_push(push, lambda: at[0])
    for i, (computed, more) in enumerate(steps):
        at[0] = computed
        work = Work()
        output = Output({"r": more, "other": 1}, {"r"} if preempted(i) else set(), {"r": list(range(100, 200))})
        pushes.add_step(output, work)
        made.append(work)
    assert (pushes.end_push("r") is not None) == bool(steps)
    assert pushes.end_push("r") is None
    return made


def test_a_step_tells_of_chunks_that_became_whole() -> None:
    made = parts([(0, 10), (10, 10), (20, 3), (23, 20), (43, 7), (50, 1)], 50)
    assert [len(work.pushes) for work in made] == [1, 0, 0, 0, 0, 0]
    assert [work.parts for work in made] == [
        [],
        [Part("r", 0, (100, 101, 102, 103), 16, is_last=False)],
        [],
        [Part("r", 1, (104, 105, 106, 107), 32, is_last=False)],
        [Part("r", 2, (108, 109, 110, 111, 112), 52, is_last=True)],
        [],
    ]


def test_a_prompt_of_whole_chunks_ends_with_the_last_of_them() -> None:
    (work,) = parts([(0, 32)], 32)
    assert work.parts == [Part("r", 0, tuple(range(100, 108)), 32, is_last=True)]
    works = parts([(0, 30), (30, 40)], 32)
    assert [part.is_last for work in works for part in work.parts] == [False, True]


def test_what_was_there_before_is_told_with_the_first_step() -> None:
    (work,) = parts([(40, 5)], 45)
    assert work.parts == [Part("r", 0, tuple(range(100, 112)), 48, is_last=True)]


@pytest.mark.parametrize("told", [False, True])
def test_a_request_that_lost_tokens_begins_anew(told: bool) -> None:
    made = parts([(0, 20), (16, 20), (36, 14)], 50, lambda i: told and i == 1)
    assert [work.preempts for work in made] == [[], ["r"], []]
    assert [part.first_chunk for work in made for part in work.parts] == [0, 0, 2]
    assert [len(work.pushes) for work in made] == [1, 0, 0]


def test_who_may_be_computed_behind_a_load_that_failed_is_told_of_when_it_ends() -> None:
    """Requests that start in a step with another connector's load, or in the step that is scheduled meanwhile."""
    pushes, tokens = PushTracker(double.BLOCK, 16), tuple(range(40))
    for name in ("before", "within", "meanwhile", "later"):
        pushes.track_push(Push(name, name, Prompt(tokens), Receiver("h", (1,), (2,))), lambda: 0)

    def told(begins: str, *, loads: bool = False) -> list[str]:
        work = Work()
        pushes.add_step(Output({begins: 16}, set(), {begins: list(range(10))}, loads), work)
        return [part.local_id for part in work.parts]

    assert told("before") == ["before"]
    assert told("within", loads=True) == []
    assert told("meanwhile") == []
    assert told("later") == ["later"]
