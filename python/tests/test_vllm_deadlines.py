"""The connector of vLLM, over doubles of it and of the agents: late calls are not made, and waits are bounded."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

import vllm_double as double
from agents_double import Agent, AgentsDouble, EnginePair, close_engines, prompt, run_prompt, sharing_engines
from gate import SAVE_THREADS, Gate
from kvferry.codes import Code
from kvferry.errors import make_error
from kvferry.vllm import agent_client, connector_worker, end_notifier, layer_pusher
from kvferry.vllm.step_work import Receiver
from vllm_engine import Request

TIMEOUT = 20.0  # What the double of vLLM configures, in seconds.


class Clock:
    """The connector's clock, which a test advances."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for module in (agent_client, connector_worker, end_notifier, layer_pusher):
            patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def clock(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> Clock:
    del wire  # The double is installed before.
    return Clock(monkeypatch)


def save_calls(wire: AgentsDouble, since: int) -> list[str]:
    """Return the calls of the threads that save."""
    return [op for thread, op in wire.calls[since:] if thread in SAVE_THREADS]


def test_saves_that_are_late_ask_for_nothing(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    pair, gate = EnginePair(wire, saves=1), Gate(monkeypatch, Agent, "reserve")
    for i in range(5):
        pair.prefill.add(Request(f"r{i}-0a", prompt(i, 33), pair.transfer_params(f"r{i}")))
    pair.prefill.step()
    pair.prefill.step()
    assert gate.reached.wait(double.TIMEOUT)
    since, clock.now = len(wire.calls), clock.now + TIMEOUT
    gate.release.set()
    pair.prefill.run(lambda: not pair.prefill.requests)
    assert save_calls(wire, since) == ["reserve"]  # The load that had started.
    pair.close_all()
    assert pair.prefill.counts["failed_saves"] == 5


def test_stores_that_are_late_ask_for_nothing(
    wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    (engine, other), gate = sharing_engines(1, saves=1), Gate(monkeypatch, Agent, "contains")
    for i in range(5):
        engine.add(Request(f"r{i}", prompt(i, 33)))
    engine.run(lambda: gate.reached.is_set() and not (engine._running or engine._waiting))
    engine.step()
    since, clock.now = len(wire.calls), clock.now + TIMEOUT
    gate.release.set()
    engine.run(engine.is_idle)
    assert save_calls(wire, since) == ["contains"]
    close_engines([engine, other], wire)


def test_a_run_has_one_deadline(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Regardless of how often it reserves pages, the deadline counts from the last computed layer."""
    wire.layers = dict.fromkeys(wire.layers, double.LAYERS)
    pair, gate = EnginePair(wire, 16), Gate(monkeypatch, Agent, "begin_prefill")
    reserve = Agent.reserve
    given: list[float] = []

    def slow(self: Agent, count: int, *, key: str, timeout: float) -> Any:
        pages = reserve(self, count, key=key, timeout=timeout)
        if count > double.LAYERS or len(given) < 3:  # Not the thread of notices.
            given.append(timeout)
            clock.now += 8
        return pages

    monkeypatch.setattr(Agent, "reserve", slow)
    pair.prefill.add(Request("r-0a", prompt(1, 45), pair.transfer_params("r")))
    pair.prefill.step()
    assert gate.reached.wait(double.TIMEOUT)
    for _ in range(3):
        pair.prefill.step()
    assert not pair.prefill._running
    since = len(wire.calls)
    gate.release.set()
    pair.prefill.run(lambda: not pair.prefill.requests)
    assert given == [TIMEOUT, TIMEOUT - 8, TIMEOUT - 16]
    assert save_calls(wire, since)[-1] == "reserve"  # Nothing after the last reserve, whose pages came too late.
    pair.close_all()
    assert pair.prefill.counts["failed_saves"] == 1


def test_runs_that_are_late_ask_for_nothing(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    wire.layers = dict.fromkeys(wire.layers, double.LAYERS)
    pair, gate = EnginePair(wire, saves=1), Gate(monkeypatch, Agent, "begin_prefill")
    for i in range(5):
        pair.prefill.add(Request(f"r{i}-0a", prompt(i, 33), pair.transfer_params(f"r{i}")))
    pair.prefill.step()
    assert gate.reached.wait(double.TIMEOUT)
    since, clock.now = len(wire.calls), clock.now + TIMEOUT
    gate.release.set()
    pair.prefill.run(lambda: not pair.prefill.requests)
    assert save_calls(wire, since) == ["begin_prefill"]
    pair.close_all()


def test_telling_holds_up_no_save(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, gate = EnginePair(wire, saves=1), Gate(monkeypatch, Agent, "end_request", threads=("kvferry-tell",))
    request = pair.prefill.add(Request("gone-0a", prompt(1, 9), pair.transfer_params("gone")))
    pair.prefill.step(finish=False)
    pair.prefill.abort(request)
    pair.prefill.run(gate.reached.is_set)
    for i in range(3):
        pair.run_prefill(f"r{i}", prompt(i, 33))
    gate.release.set()
    pair.close_all()


def test_giving_up_holds_up_no_load(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, abandon = EnginePair(wire, loads=1), Agent.abandon
    reached, go = threading.Event(), threading.Event()

    def held(self: Agent, request: str, reason: str = "", tenant: str = "") -> None:
        reached.set()
        assert go.wait(2 * double.TIMEOUT)
        abandon(self, request, reason, tenant)

    monkeypatch.setattr(Agent, "abandon", held)
    for i in range(3):
        tokens = prompt(i, 33)
        request = pair.add_decode(f"r{i}", tokens, pair.run_prefill(f"r{i}", tokens))
        pair.decode.run(lambda: not pair.decode.requests)
        assert request.computed_tokens == 1
    pair.decode.run(reached.is_set)
    go.set()
    pair.close_all()


def test_what_is_given_up_while_its_agent_is_away_is_given_up_when_it_is_back(wire: AgentsDouble) -> None:
    pair = EnginePair(wire)
    wire.is_dead = True
    pair.decode.worker._worker._end_notifier.abandon_request("r", "")
    pair.decode.run(lambda: wire.calls.count(("kvferry-end", "abandon")) > 1)
    assert wire.abandoned_requests == []
    wire.is_dead = False
    pair.decode.run(lambda: wire.abandoned_requests == ["r"])
    pair.close_all()


def test_what_is_told_while_an_agent_is_away_is_told_when_it_is_back(wire: AgentsDouble) -> None:
    """Notices for other receivers do not wait for those of one receiver."""
    pair, to = EnginePair(wire), Receiver("d", (1,), (2,))
    wire.is_dead = True
    pair.prefill.worker._worker._end_notifier.notify_failed("r", "", to, make_error("put", Code.NO_MEMORY))
    pair.prefill.run(lambda: wire.calls.count(("", "end")) > 1)
    assert wire.request_ends == {}
    wire.is_dead = False
    pair.prefill.run(lambda: "r" in wire.request_ends)
    assert wire.request_ends["r"][0] == Code.NO_MEMORY
    pair.close_all()


def test_what_is_told_too_late_is_not_told(wire: AgentsDouble, clock: Clock) -> None:
    pair, to = EnginePair(wire), Receiver("d", (1,), (2,))
    some = pair.prefill.worker._worker._end_notifier
    notice = end_notifier._EndNotice("r", "", to, Code.NO_MEMORY, "", clock.now, next_attempt=clock.now + 1)
    assert some._advance_notice(notice, clock.now)
    wire.is_dead = True
    notice = end_notifier._EndNotice("r", "", to, Code.NO_MEMORY, "", clock.now + 1)
    assert not some._advance_notice(notice, clock.now)
    clock.now += 1
    assert some._advance_notice(notice, clock.now)
    wire.is_dead = False
    pair.close_all()
    assert wire.request_ends == {}


def test_a_load_asks_no_more_when_its_time_is_over(
    wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    engines, tokens = sharing_engines(2), prompt(1, 60)
    run_prompt(engines[0], "one", tokens)
    get, asked = Agent.shared_get, []

    def crowded(self: Agent, keys: list[str], **rest: Any) -> Any:
        asked.append(rest["timeout"])
        clock.now += TIMEOUT
        pages = get(self, keys[:0], **rest)
        pages.shortfall = make_error("shared_get", Code.TOO_MANY)
        return pages

    monkeypatch.setattr(Agent, "shared_get", crowded)
    assert run_prompt(engines[1], "two", tokens).computed_tokens == 60
    assert asked == [TIMEOUT]
    close_engines(engines, wire)


def test_a_source_that_has_enough_others_is_asked_less_and_less_often(
    wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even on a slow machine, not more often than doubling pauses allow."""
    engines, tokens = sharing_engines(2, load_patience=1), prompt(1, 60)
    run_prompt(engines[0], "one", tokens)
    get, asked = Agent.shared_get, []

    def crowded(self: Agent, keys: list[str], **rest: Any) -> Any:
        asked.append(rest["timeout"])
        pages = get(self, keys[:0], **rest)
        pages.shortfall = make_error("shared_get", Code.TOO_MANY)
        return pages

    monkeypatch.setattr(Agent, "shared_get", crowded)
    assert run_prompt(engines[1], "two", tokens).computed_tokens == 60
    assert 1 <= len(asked) <= 12
    close_engines(engines, wire)
