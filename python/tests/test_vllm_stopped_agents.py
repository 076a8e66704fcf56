"""The connector of vLLM, below a double of it, over real agents that are stopped or restarted during work.

These tests run if KVFERRY_BIN names the command.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import kvferry
import vllm_double as double
from gate import SAVE_THREADS
from hosts import SIDES, Hosts, make_engines, spec_of
from kvferry import client
from kvferry.client import Client
from kvferry.vllm.cache import Cache
from kvferry.vllm.step_work import Receiver
from nodes import HOST, free_ports, needs_binary, stop_process, stopped_process
from vllm_engine import Engine, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = needs_binary

PUSHES = pytest.mark.parametrize("hosts", [(), ("prefill", "decode")], indirect=True)
DELAYED = pytest.mark.parametrize("hosts", [("delayed",)], indirect=True)
TOKENS = list(range(45))


def ended(hosts: Hosts, *some: Engine) -> None:
    for engine in some:
        engine.close()
    assert [hosts.count_held(side) for side in SIDES] == [0, 0]


def wait_for_prompt(hosts: Hosts, prefill: Engine, decode: Engine, tokens: list[int] | None = None) -> Request:
    """Let a decode engine wait for a prompt, then let the prefill engine compute it; return the decode engine's
    request.
    """
    tokens, spec = tokens or TOKENS, {"disagg_spec": spec_of(hosts, "r")}
    request = decode.add(Request("r-d", tokens, {**spec, "do_remote_prefill": True}))
    decode.step()
    prefill.add(Request("r-p", tokens, spec))
    prefill.run(prefill.is_idle)
    decode.run(decode.is_idle)
    return request


def wait(what: Callable[[], bool]) -> None:
    until = time.monotonic() + double.TIMEOUT
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)


def run_after_calls(patch: pytest.MonkeyPatch, owner: Any, name: str, then: Callable[[], None], after: int = 0) -> None:
    """Run an action when a method has returned so many times."""
    former, left = getattr(owner, name), [after]

    def called(*args: Any, **more: Any) -> Any:
        result = former(*args, **more)
        left[0] -= 1
        if left[0] == -1:
            then()
        return result

    patch.setattr(owner, name, called)


# ---- stopped ----


@PUSHES
def test_behind_an_agent_that_is_stopped_all_wait_together(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not wait one after the other: late loads make no calls, so the engine gets its blocks back."""
    connect, asked = client.connect, []
    monkeypatch.setattr(client, "connect", lambda path, **more: connect(path, reply_margin=0.3, **more))
    prefill, decode = make_engines(hosts, save_patience=0.5, saves=1)
    former = Client._make_call

    def counted(self: Client, ask: Any, bound: float | None = None) -> Any:
        asked.append((threading.current_thread().name.rpartition("_")[0], ask.op))
        return former(self, ask, bound)

    monkeypatch.setattr(Client, "_make_call", counted)
    requests = 12
    for i in range(requests):
        spec = {"disagg_spec": spec_of(hosts, f"r{i}")}
        prefill.add(Request(f"r{i}-p", [i, *range(11)], spec))
    with stopped_process(hosts.agents["prefill"].process):
        prefill.run(prefill.is_idle)
        # Each call waits for more than half of the timeout. Pushes by layer all wait at the same time.
        saving = [thread for thread, _ in asked if thread in SAVE_THREADS]
        assert 1 <= len(saving) < requests + ("kvferry-layers" in saving)
    for engine in (prefill, decode):
        engine.close()
    assert hosts.count_held("prefill") == 0
    assert prefill.counts["failed_saves"] == requests


@contextlib.contextmanager
def stop_agent_at_copy(hosts: Hosts, side: str, patch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    """Stop an agent when a copy of its pages was made for the first time, and continue it at the end."""
    process = hosts.agents[side].process
    run_after_calls(patch, Cache, name, lambda: stop_process(process))
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def test_pages_of_an_agent_that_is_stopped_are_given_back_later(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise other saves would wait for it, and the engine for its blocks."""
    connect = client.connect
    monkeypatch.setattr(client, "connect", lambda path, **more: connect(path, reply_margin=0.3, **more))
    prefill, decode = make_engines(hosts, save_patience=0.5, saves=1, load_patience=600)
    for i in range(3):
        prefill.add(Request(f"r{i}-p", [i, *TOKENS], {"disagg_spec": spec_of(hosts, f"r{i}")}))
    with stop_agent_at_copy(hosts, "prefill", monkeypatch, "gather"):
        prefill.run(prefill.is_idle)
    for engine in (prefill, decode):
        engine.close()
    assert hosts.count_held("prefill") == 0


def test_a_load_has_come_though_its_agent_is_stopped_then(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    prefill, decode = make_engines(hosts)
    prefill.add(Request("r-p", TOKENS[:16], {"disagg_spec": spec_of(hosts, "r")}))
    prefill.run(prefill.is_idle)
    request = decode.add(Request("r-d", TOKENS[:16], prefill.outputs["r-p"]))
    with stop_agent_at_copy(hosts, "decode", monkeypatch, "scatter"):
        decode.run(decode.is_idle)
        assert request.computed_tokens == 1
    ended(hosts, prefill, decode)


# ---- delayed ----


@DELAYED
def test_kv_is_read_when_it_is_fetched(hosts: Hosts) -> None:
    prefill, decode = make_engines(hosts, delayed=True)
    assert wait_for_prompt(hosts, prefill, decode).computed_tokens == 1
    ended(hosts, prefill, decode)


@DELAYED
def test_a_cancel_is_noticed_while_a_fetch_waits(hosts: Hosts) -> None:
    prefill, decode = make_engines(hosts, delayed=True, load_patience=600, loads=1)
    gone = decode.add(Request("gone-d", TOKENS, {"disagg_spec": spec_of(hosts, "gone"), "do_remote_prefill": True}))
    decode.step()
    decode.abort(gone)
    decode.run(decode.is_idle)  # Its blocks are back, and its thread serves other requests.
    assert wait_for_prompt(hosts, prefill, decode).computed_tokens == 1
    ended(hosts, prefill, decode)


@DELAYED
@pytest.mark.parametrize("came", [0, 1])
def test_a_prefill_that_fails_is_told_while_a_fetch_waits(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, came: int
) -> None:
    """Chunks that it offered before are still read."""
    put, calls = Client.put, []

    def fails(self: Client, **more: Any) -> Any:
        calls.append(more)
        if len(calls) == came + 1:
            raise kvferry.ExpiredError("put", kvferry.Code.EXPIRED)
        return put(self, **more)

    monkeypatch.setattr(Client, "put", fails)
    prefill, decode = make_engines(hosts, delayed=True, load_patience=600, blocks=128)
    tokens = list(range(300))  # Two batches of chunks.
    assert wait_for_prompt(hosts, prefill, decode, tokens).computed_tokens == 300 - 256 * came
    ended(hosts, prefill, decode)


# ---- void ----


@pytest.mark.parametrize("hosts", [(), ("prefill", "decode"), ("delayed",)], indirect=True)
def test_a_load_whose_agent_was_another_at_the_end_does_not_count(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The copied bytes may belong to other requests."""
    modes = request.node.callspec.params["hosts"]
    prefill, decode = make_engines(hosts, delayed="delayed" in modes)
    spec = {"disagg_spec": spec_of(hosts, "r")}
    prefill.add(Request("r-p", TOKENS, spec))
    prefill.run(prefill.is_idle)
    name, last = ("scatter_layer", 3 * double.LAYERS - 1) if "decode" in modes else ("scatter", 2)
    run_after_calls(
        monkeypatch, Cache, name, lambda: hosts.restart_agent("decode", decode.worker._worker._client), last
    )
    wanted = decode.add(Request("r-d", TOKENS, prefill.outputs["r-p"]))
    decode.run(decode.is_idle)
    assert wanted.computed_tokens == 45
    ended(hosts, prefill, decode)
    assert decode.counts["failed_loads"] == 1


@PUSHES
def test_a_save_whose_agent_was_another_at_the_end_is_told(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """It was certainly not sent: its waiters are notified."""
    prefill, decode = make_engines(hosts, load_patience=600)
    layered = "prefill" in request.node.callspec.params["hosts"]
    name, last = ("gather_layer", double.LAYERS - 1) if layered else ("gather", 2)
    run_after_calls(
        monkeypatch, Cache, name, lambda: hosts.restart_agent("prefill", prefill.worker._worker._client), last
    )
    assert wait_for_prompt(hosts, prefill, decode).computed_tokens == 45
    ended(hosts, prefill, decode)
    assert prefill.counts["failed_saves"] == 1


# ---- what is told ----


@pytest.mark.parametrize("hosts", [(), ("prefill", "decode"), ("delayed",)], indirect=True)
def test_a_prefill_whose_last_batch_fails_is_told(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Its agent considers the request finished by then."""
    prefill, decode = make_engines(hosts, load_patience=600, delayed="delayed" in request.node.callspec.params["hosts"])
    calls: list[Any] = []

    def astray(former: Any) -> Any:
        def sent(self: Client, **more: Any) -> Any:
            calls.append(more)
            if len(calls) == 1:
                more["peer"] = kvferry.Peer(HOST, *free_ports(2))
            return former(self, **more)

        return sent

    for name in ("put", "begin_prefill"):
        monkeypatch.setattr(Client, name, astray(getattr(Client, name)))
    assert wait_for_prompt(hosts, prefill, decode).computed_tokens == 45
    ended(hosts, prefill, decode)


@pytest.mark.parametrize("hosts", [(), ("prefill", "decode"), ("delayed",)], indirect=True)
def test_what_is_told_after_all_has_come_does_not_stay(hosts: Hosts, request: pytest.FixtureRequest) -> None:
    prefill, decode = make_engines(hosts, delayed="delayed" in request.node.callspec.params["hosts"])
    spec = {"disagg_spec": spec_of(hosts, "r")}
    prefill.add(Request("r-p", TOKENS, spec))
    prefill.run(prefill.is_idle)
    wanted = decode.add(Request("r-d", TOKENS, prefill.outputs["r-p"]))
    decode.run(lambda: wanted.computed_tokens == 1, finish=False)
    wait(lambda: hosts.count_held("decode") == hosts.count_held("prefill") == 0)
    to = Receiver(HOST, (hosts.ports[0],), (hosts.ports[1],))
    prefill.worker._worker._end_notifier.notify_failed("r", "", to, None)
    decode.run(decode.is_idle)
    ended(hosts, decode, prefill)
