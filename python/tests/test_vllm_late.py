"""The connector of vLLM, over doubles of it and of the agents: what is late is not asked for, and waits for nobody."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import vllm_double as double
from agents_double import Agent, Pair, Wire, ended, prompt, run, sharing
from gate import SAVING, Gate
from kvferry.codes import Code
from kvferry.errors import error_of
from kvferry.vllm import agents, ends, layers, working
from kvferry.vllm.words import Receiver
from vllm_engine import Request

PATIENCE = 20.0  # What the double of vLLM configures, in seconds.


class Clock:
    """The connector's time, which goes on when it is told to."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (agents, ends, layers, working):
            patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def clock(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Clock:
    del wire  # It is installed before.
    return Clock(monkeypatch)


def saved(wire: Wire, since: int) -> list[str]:
    """Say what saving threads asked for."""
    return [op for thread, op in wire.calls[since:] if thread in SAVING]


def test_saves_that_are_late_ask_for_nothing(wire: Wire, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    pair, gate = Pair(wire, saves=1), Gate(monkeypatch, Agent, "reserve")
    for i in range(5):
        pair.prefill.add(Request(f"r{i}-0a", prompt(i, 33), pair.params(f"r{i}")))
    pair.prefill.step()
    pair.prefill.step()
    assert gate.reached.wait(double.PATIENCE)
    since, clock.now = len(wire.calls), clock.now + PATIENCE
    gate.go.set()
    pair.prefill.run(lambda: not pair.prefill.requests)
    assert saved(wire, since) == ["reserve"]  # That which had begun.
    pair.settle()
    assert pair.prefill.counts["failed_saves"] == 5


def test_stores_that_are_late_ask_for_nothing(wire: Wire, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    (engine, other), gate = sharing(1, saves=1), Gate(monkeypatch, Agent, "contains")
    for i in range(5):
        engine.add(Request(f"r{i}", prompt(i, 33)))
    engine.run(lambda: gate.reached.is_set() and not (engine._running or engine._waiting))
    engine.step()
    since, clock.now = len(wire.calls), clock.now + PATIENCE
    gate.go.set()
    engine.run(engine.idle)
    assert saved(wire, since) == ["contains"]
    ended([engine, other], wire)


def test_a_run_has_one_deadline(wire: Wire, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """However often it asks for pages: from the last layer that was computed on."""
    wire.layers = dict.fromkeys(wire.layers, double.LAYERS)
    pair, gate = Pair(wire, 16), Gate(monkeypatch, Agent, "begin_prefill")
    reserve = Agent.reserve
    given: list[float] = []

    def slow(self: Agent, count: int, *, patience: float) -> Any:
        pages = reserve(self, count, patience=patience)
        if count > double.LAYERS or len(given) < 3:  # Not that of the chunk that tells.
            given.append(patience)
            clock.now += 8
        return pages

    monkeypatch.setattr(Agent, "reserve", slow)
    pair.prefill.add(Request("r-0a", prompt(1, 45), pair.params("r")))
    pair.prefill.step()
    assert gate.reached.wait(double.PATIENCE)
    for _ in range(3):
        pair.prefill.step()
    assert not pair.prefill._running
    since = len(wire.calls)
    gate.go.set()
    pair.prefill.run(lambda: not pair.prefill.requests)
    assert given == [PATIENCE, PATIENCE - 8, PATIENCE - 16]
    assert saved(wire, since)[-1] == "reserve"  # Nothing after the last one, whose pages came too late.
    pair.settle()
    assert pair.prefill.counts["failed_saves"] == 1


def test_runs_that_are_late_ask_for_nothing(wire: Wire, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    wire.layers = dict.fromkeys(wire.layers, double.LAYERS)
    pair, gate = Pair(wire, saves=1), Gate(monkeypatch, Agent, "begin_prefill")
    for i in range(5):
        pair.prefill.add(Request(f"r{i}-0a", prompt(i, 33), pair.params(f"r{i}")))
    pair.prefill.step()
    assert gate.reached.wait(double.PATIENCE)
    since, clock.now = len(wire.calls), clock.now + PATIENCE
    gate.go.set()
    pair.prefill.run(lambda: not pair.prefill.requests)
    assert saved(wire, since) == ["begin_prefill"]
    pair.settle()


def test_telling_holds_up_no_save(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, gate = Pair(wire, saves=1), Gate(monkeypatch, Agent, "end", threads=("kvferry-tell",))
    request = pair.prefill.add(Request("gone-0a", prompt(1, 9), pair.params("gone")))
    pair.prefill.step(finish=False)
    pair.prefill.abort(request)
    pair.prefill.run(gate.reached.is_set)
    for i in range(3):
        pair.to_prefill(f"r{i}", prompt(i, 33))
    gate.go.set()
    pair.settle()


def test_giving_up_holds_up_no_load(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, abandon = Pair(wire, loads=1), Agent.abandon
    reached, go = threading.Event(), threading.Event()

    def held(self: Agent, request: str, reason: str = "") -> None:
        reached.set()
        assert go.wait(2 * double.PATIENCE)
        abandon(self, request, reason)

    monkeypatch.setattr(Agent, "abandon", held)
    for i in range(3):
        tokens = prompt(i, 33)
        request = pair.to_decode(f"r{i}", tokens, pair.to_prefill(f"r{i}", tokens))
        pair.decode.run(lambda: not pair.decode.requests)
        assert request.worked == 1
    pair.decode.run(reached.is_set)
    go.set()
    pair.settle()


def test_what_is_given_up_while_its_agent_is_away_is_given_up_when_it_is_back(wire: Wire) -> None:
    pair = Pair(wire)
    wire.dead = True
    pair.decode.worker._working._ends.abandon("r")
    pair.decode.run(lambda: wire.calls.count(("kvferry-end", "abandon")) > 1)
    assert wire.abandoned == []
    wire.dead = False
    pair.decode.run(lambda: wire.abandoned == ["r"])
    pair.settle()


def test_what_is_told_while_an_agent_is_away_is_told_when_it_is_back(wire: Wire) -> None:
    """And others' words do not wait for those of one receiver."""
    pair, to = Pair(wire), Receiver("d", (1,), (2,))
    wire.dead = True
    pair.prefill.worker._working._ends.failed("r", to, error_of("put", Code.NO_MEMORY))
    pair.prefill.run(lambda: wire.calls.count(("", "end")) > 1)
    assert wire.ended == {}
    wire.dead = False
    pair.prefill.run(lambda: "r" in wire.ended)
    assert wire.ended["r"][0] == Code.NO_MEMORY
    pair.settle()


def test_what_is_told_too_late_is_not_told(wire: Wire, clock: Clock) -> None:
    pair, to = Pair(wire), Receiver("d", (1,), (2,))
    some = pair.prefill.worker._working._ends
    word = ends._Word("r", to, Code.NO_MEMORY, "", clock.now, next=clock.now + 1)
    assert some._try(word, clock.now)
    wire.dead = True
    word = ends._Word("r", to, Code.NO_MEMORY, "", clock.now + 1)
    assert not some._try(word, clock.now)
    clock.now += 1
    assert some._try(word, clock.now)
    wire.dead = False
    pair.settle()
    assert wire.ended == {}


def test_a_load_asks_no_more_when_its_time_is_over(wire: Wire, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    engines, tokens = sharing(2), prompt(1, 60)
    run(engines[0], "one", tokens)
    get, asked = Agent.shared_get, []

    def crowded(self: Agent, keys: list[str], **rest: Any) -> Any:
        asked.append(rest["patience"])
        clock.now += PATIENCE
        pages = get(self, keys[:0], **rest)
        pages.short = error_of("shared_get", Code.TOO_MANY)
        return pages

    monkeypatch.setattr(Agent, "shared_get", crowded)
    assert run(engines[1], "two", tokens).worked == 60
    assert asked == [PATIENCE]
    ended(engines, wire)


def test_a_source_that_has_enough_others_is_asked_less_and_less_often(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow this machine is, not more often than pauses that double have room for."""
    engines, tokens = sharing(2, load_patience=1), prompt(1, 60)
    run(engines[0], "one", tokens)
    get, asked = Agent.shared_get, []

    def crowded(self: Agent, keys: list[str], **rest: Any) -> Any:
        asked.append(rest["patience"])
        pages = get(self, keys[:0], **rest)
        pages.short = error_of("shared_get", Code.TOO_MANY)
        return pages

    monkeypatch.setattr(Agent, "shared_get", crowded)
    assert run(engines[1], "two", tokens).worked == 60
    assert 1 <= len(asked) <= 12
    ended(engines, wire)
