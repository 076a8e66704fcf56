"""The connector of vLLM between engines that share, over doubles of vLLM and of the agents."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import vllm_double as double
from agents_double import Agent, AgentsDouble, close_engines, prompt, run_prompt, sharing_engines
from gate import Gate
from kvferry.codes import Code
from kvferry.errors import make_error
from kvferry.values import Lookup
from kvferry.vllm import connector_worker
from vllm_double import Status
from vllm_engine import Request


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize(
    ("length", "same", "worked"), [(60, 50, 12), (64, 64, 1), (16, 16, 1), (15, 15, 15), (60, 9, 60)]
)
def test_whole_chunks_of_a_prompt_are_shared(
    wire: AgentsDouble, hosts: int, length: int, same: int, worked: int
) -> None:
    engines, tokens = sharing_engines(hosts), prompt(1, length)
    assert run_prompt(engines[0], "one", tokens).computed_tokens == length
    assert run_prompt(engines[1], "two", tokens[:same] + prompt(2, length - same)).computed_tokens == worked
    close_engines(engines, wire)


def test_what_is_there_is_not_stored_again(wire: AgentsDouble) -> None:
    """The double of an agent asserts it."""
    engines = sharing_engines(1)
    for name in ("one", "two"):
        run_prompt(engines[0], name, prompt(1, 60))
    close_engines(engines, wire)
    assert engines[0].counts["stored_bytes"] == 3 * double.PAGE_BYTES


def test_a_directory_that_is_down_hides_what_others_have_alone(wire: AgentsDouble) -> None:
    engines, tokens = sharing_engines(2), prompt(1, 60)
    run_prompt(engines[0], "one", tokens)
    wire.directory_up = False
    assert run_prompt(engines[1], "two", tokens).computed_tokens == 60
    assert run_prompt(engines[0], "three", [*tokens[:48], 1]).computed_tokens == 1
    close_engines(engines, wire)


def test_what_a_hint_promised_and_is_gone_is_computed(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    engines, tokens = sharing_engines(2), prompt(1, 60)
    run_prompt(engines[0], "one", tokens)
    gone = wire.shared["0.sock"]
    key = list(gone)[1]
    monkeypatch.setattr(Agent, "lookup", lambda *_: Lookup(0, 3))
    del gone[key]
    assert run_prompt(engines[1], "two", tokens).computed_tokens == 60 - 16
    close_engines(engines, wire)
    assert engines[1].counts["failed_loads"] == 1


def test_an_engine_whose_agent_is_gone_computes(wire: AgentsDouble) -> None:
    engines, tokens = sharing_engines(1), prompt(1, 60)
    run_prompt(engines[0], "one", tokens)
    wire.is_dead = True
    assert run_prompt(engines[0], "two", tokens).computed_tokens == 60
    close_engines(engines, wire)


def test_the_scheduler_does_not_wait_for_an_answer(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    engines, tokens = sharing_engines(1), prompt(1, 60)
    go = threading.Event()
    monkeypatch.setattr(Agent, "contains", lambda *_: int(not go.wait(double.TIMEOUT)))
    slow, shortfall = Request("slow", tokens), Request("short", tokens[:9])
    engines[0].add(slow)
    engines[0].add(shortfall)
    engines[0].run(lambda: "short" in engines[0].outputs)
    assert slow.status == Status.WAITING
    engines[0].abort(slow)
    go.set()
    close_engines(engines, wire)


def test_an_abort_while_shared_kv_is_read(wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    engines, tokens = sharing_engines(1), prompt(1, 60)
    run_prompt(engines[0], "one", tokens)
    go, get = threading.Event(), Agent.shared_get
    monkeypatch.setattr(Agent, "shared_get", lambda *a, **k: get(*a, **k) if go.wait(double.TIMEOUT) else None)
    request = engines[1].add(Request("two", tokens))
    engines[1].run(lambda: request.status == Status.WAITING_FOR_REMOTE_KVS)
    engines[1].step()
    engines[1].abort(request)
    assert request.blocks
    go.set()
    close_engines(engines, wire)
    assert not wire.abandoned_requests


def test_a_request_that_names_a_receiver_is_sent_also_by_who_shares(wire: AgentsDouble) -> None:
    engines, tokens = sharing_engines(1), prompt(1, 60)
    spec = {"req_id": "r", "receiver_host": "d", "receiver_init_port": [1], "receiver_alloc_port": [2]}
    engines[0].add(Request("p", tokens, {"disagg_spec": spec}))
    engines[0].run(engines[0].is_idle)
    request = engines[1].add(Request("d", tokens, engines[0].outputs["p"]))
    engines[1].run(engines[1].is_idle)
    assert request.computed_tokens == 1
    assert run_prompt(engines[1], "another", [*tokens[:48], 1, 2]).computed_tokens == 2  # It was stored as well.
    close_engines(engines, wire)
    assert not wire.claims


@pytest.mark.parametrize("late", ["put", "store"])
def test_blocks_are_kept_until_all_have_read_them(
    wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    engines, tokens = sharing_engines(1), prompt(1, 60)
    gate = Gate(monkeypatch, *((connector_worker, "peer_for_rank") if late == "put" else (Agent, "contains")))
    spec = {"req_id": "r", "receiver_host": "d", "receiver_init_port": [1], "receiver_alloc_port": [2]}
    request = engines[0].add(Request("p", tokens, {"disagg_spec": spec}))
    word = "stored_bytes" if late == "put" else "saved_requests"
    engines[0].run(lambda: gate.reached.is_set() and word in engines[0].counts)
    engines[0].step()
    assert request.blocks
    gate.release.set()
    close_engines(engines, wire)
    assert not request.blocks


@pytest.mark.parametrize("timeout", [20, 0.1])
def test_a_source_that_has_enough_others_is_asked_again(
    wire: AgentsDouble, monkeypatch: pytest.MonkeyPatch, timeout: float
) -> None:
    engines, tokens = sharing_engines(2, load_patience=timeout), prompt(1, 60)
    run_prompt(engines[0], "one", tokens)
    get, asked = Agent.shared_get, []

    def crowded(self: Agent, keys: list[str], **rest: Any) -> Any:
        asked.append(len(keys))
        pages = get(self, keys[: len(asked) % 2 if timeout > 1 else 0], **rest)  # Every second call returns one chunk.
        pages.shortfall = make_error("shared_get", Code.TOO_MANY) if len(pages) < len(keys) else None
        return pages

    monkeypatch.setattr(Agent, "shared_get", crowded)
    assert run_prompt(engines[1], "two", tokens).computed_tokens == (60 - 48 if timeout > 1 else 60)
    assert asked[:5] == ([3, 2, 2, 1, 1] if timeout > 1 else [3, 3, 3, 3, 3][: len(asked)])
    close_engines(engines, wire)
