"""The connector of vLLM, below doubles of its scheduler and worker, over real agents.

These tests run if KVFERRY_BIN names the command.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

import kvferry
import vllm_double as double
from hosts import SIDES, Hosts, make_engines, sharing_config, spec_of
from kvferry import agent
from nodes import needs_binary
from vllm_engine import Engine, Request

if TYPE_CHECKING:
    import pathlib

pytestmark = needs_binary


@pytest.mark.parametrize("hosts", [(), ("prefill",), ("prefill", "decode")], indirect=True)
@pytest.mark.parametrize("killed", [None, "decode", "prefill"])
def test_requests_of_all_lengths(hosts: Hosts, killed: str | None) -> None:
    """Whatever agent is killed, both engines end with correct KV, and nothing stays held."""
    prefill, decode = make_engines(hosts, 23, load_patience=2 if killed else 20)
    drawn = random.Random(5)
    stems = [[drawn.randrange(1 << 31) for _ in range(40)] for _ in range(2)]
    made: list[Request] = []
    for i in range(40):
        tokens = drawn.choice(stems)[: drawn.choice((0, 8, 16, 33))] + [drawn.randrange(300) for _ in range(1 + i)]
        spec = spec_of(hosts, f"r{i}")
        sent = prefill.add(Request(f"r{i}-p", tokens, {"disagg_spec": spec}))
        if i % 3 == 0:
            made.append(decode.add(Request(f"r{i}-d", tokens, {"disagg_spec": spec, "do_remote_prefill": True})))
            decode.step()
        prefill.run(lambda sent=sent: sent.request_id not in prefill.requests)  # type: ignore[misc]
        if i % 3:
            made.append(decode.add(Request(f"r{i}-d", tokens, prefill.outputs[f"r{i}-p"])))
        if i == 20 and killed:
            hosts.agents[killed].kill()
            hosts.start(killed)
        decode.step()
    decode.run(decode.is_idle)
    prefill.run(prefill.is_idle)
    assert all(request.computed_tokens >= 1 for request in made)
    computed = sum(request.computed_tokens > 1 for request in made)
    if killed is None:
        assert computed == 0
    else:
        assert computed < 30
    for engine in (prefill, decode):
        engine.close()
    # While its agent is unreachable, a prefill engine promises nothing.
    promised = sum(i % 3 == 0 or prefill.outputs[f"r{i}-p"] is not None for i in range(40))
    assert promised == 40 if killed != "prefill" else promised > 30
    assert decode.counts["loaded_requests"] + decode.counts.get("failed_loads", 0) == promised
    assert [hosts.count_held(side) for side in SIDES] == [0, 0]


@pytest.mark.parametrize("hosts", [(), ("prefill",), ("prefill", "decode")], indirect=True)
def test_a_prefill_that_ends_early_is_told(hosts: Hosts) -> None:
    prefill, decode = make_engines(hosts, 16, load_patience=600)
    spec, tokens = {"disagg_spec": spec_of(hosts, "r")}, list(range(45))
    request = decode.add(Request("r-d", tokens, {**spec, "do_remote_prefill": True}))
    decode.step()
    sent = prefill.add(Request("r-p", tokens, spec))
    prefill.step()
    prefill.abort(sent)
    prefill.run(prefill.is_idle)
    decode.run(decode.is_idle)
    assert request.computed_tokens > 1
    for engine in (prefill, decode):
        engine.close()
    assert [hosts.count_held(side) for side in SIDES] == [0, 0]


@pytest.mark.parametrize("hosts", [("prefill", "decode")], indirect=True)
def test_a_prefill_that_is_preempted_half_way(hosts: Hosts) -> None:
    prefill, decode = make_engines(hosts, 16)
    sent = prefill.add(Request("r-p", list(range(45)), {"disagg_spec": spec_of(hosts, "r")}))
    prefill.step()
    prefill.preempt(sent)
    prefill.add(Request("other", list(range(90))))
    prefill.run(prefill.is_idle)
    request = decode.add(Request("r-d", list(range(45)), prefill.outputs["r-p"]))
    decode.run(decode.is_idle)
    assert request.computed_tokens == 1
    for engine in (prefill, decode):
        engine.close()
    assert [hosts.count_held(side) for side in SIDES] == [0, 0]


def test_an_abort_leaves_nothing(hosts: Hosts) -> None:
    prefill, decode = make_engines(hosts)
    spec = spec_of(hosts, "r")
    request = decode.add(Request("r-d", list(range(50)), {"disagg_spec": spec, "do_remote_prefill": True}))
    decode.step()
    decode.abort(request)
    decode.run(decode.is_idle)
    prefill.add(Request("r-p", list(range(50)), {"disagg_spec": spec}))
    prefill.run(prefill.is_idle)
    for engine in (prefill, decode):
        engine.close()
    assert [hosts.count_held(side) for side in SIDES] == [0, 0]


def test_an_agent_of_another_model_is_refused(hosts: Hosts, tmp_path: pathlib.Path) -> None:
    from kvferry.vllm import KvferryConnector

    hosts.agents["prefill"].kill()
    file = tmp_path / "prefill.yaml"
    file.write_text(file.read_text().replace("num_layers: 2", "num_layers: 3"))
    hosts.start("prefill")
    with pytest.raises(kvferry.InvalidError, match="chunk_size of the agent"):
        Engine(KvferryConnector, "kv_producer", socket=hosts.socket("prefill"))
    with pytest.raises(kvferry.InvalidError, match="sides of the agent is receiver, want sender"):
        Engine(KvferryConnector, "kv_producer", socket=hosts.socket("decode"))


# ---- engines that share ----


def test_engines_share_through_one_agent_and_through_two(sharers: list[str]) -> None:
    from kvferry.vllm import KvferryConnector

    def made(path: str) -> Engine:
        return Engine(KvferryConnector, "kv_both", socket=path)

    first, beside, away = made(sharers[0]), made(sharers[0]), made(sharers[1])
    tokens = list(range(70))

    def worked(engine: Engine, name: str) -> int:
        request = engine.add(Request(name, [*tokens, len(name)]))
        engine.run(engine.is_idle)
        return request.computed_tokens

    assert worked(first, "a") == 71
    assert worked(beside, "bb") == 71 - 64
    until, name, pause = time.monotonic() + double.TIMEOUT, "ccc", 0.01
    while (computed := worked(away, name)) != 71 - 64:  # Until the directory knows them.
        # An engine stores what it computes, so each attempt needs tokens that it has not seen. The pause between
        # storing and looking up grows: a fast engine would always ask before the report reaches the directory.
        assert time.monotonic() < until
        assert computed == 71
        tokens[0] += 1
        worked(first, name)
        time.sleep(pause)
        pause *= 2
    assert away.counts["loaded_bytes"] == 4 * double.PAGE_BYTES
    for engine in (first, beside, away):
        engine.close()


def test_sharing_at_an_agent_without_a_directory_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double.install(monkeypatch)
    from kvferry.vllm import KvferryConnector

    file, socket = tmp_path / "alone.yaml", str(tmp_path / "alone.sock")
    file.write_text(sharing_config())
    with agent.start(file, socket):
        with pytest.raises(kvferry.InvalidError, match="controller_reply_url of the agent is none, want a directory"):
            Engine(KvferryConnector, "kv_both", socket=socket)
        with kvferry.connect(socket) as client:
            assert client.stats()["node"]["pages_leased"] == 0


def test_a_burst_of_requests_finds_what_another_engine_has(sharers: list[str]) -> None:
    """Even if its agent serves few of them at a time."""
    from kvferry.vllm import KvferryConnector

    here, away = (Engine(KvferryConnector, "kv_both", 256, socket=path) for path in sharers)
    prompts = [list(range(100 * i, 100 * i + 65)) for i in range(7)]
    for i, tokens in enumerate(prompts):
        here.add(Request(f"here-{i}", tokens))
    here.run(here.is_idle)
    names = away.worker._worker._names
    until = time.monotonic() + double.TIMEOUT
    with kvferry.connect(sharers[1]) as client:
        for tokens in prompts:
            while client.lookup(names.chunk_keys(here.shared_prompt(tokens))[:4]).remote < 4:
                assert time.monotonic() < until
                time.sleep(0.01)
    made = [away.add(Request(f"away-{i}", tokens)) for i, tokens in enumerate(prompts)]
    away.run(away.is_idle)
    assert [request.computed_tokens for request in made] == [1] * 7
    for engine in (here, away):
        engine.close()


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("hosts", [("prefill", "decode")], indirect=True)
def test_prompts_that_need_more_than_there_is_go_in_parts(hosts: Hosts, early: bool) -> None:
    """Requests that wait for room at the decode hold pages that others wait for: no request may block another for
    good.
    """
    hosts.resize("decode", 4)
    prefill, decode = make_engines(hosts, load_patience=60, save_patience=60, blocks=400)
    requests = [(f"r{i}", [i, *range(16 * chunks - 1)]) for i, chunks in enumerate((2, 14, 11, 4, 16, 6, 12, 1, 8))]
    specs = {name: {"disagg_spec": spec_of(hosts, name)} for name, _ in requests}

    def decodes() -> list[Request]:
        params = {name: prefill.outputs.get(f"{name}-p", {**specs[name], "do_remote_prefill": True}) for name in specs}
        return [decode.add(Request(f"{name}-d", tokens, params[name])) for name, tokens in requests]

    waiting = decodes() if early else []
    for name, tokens in requests:
        prefill.add(Request(f"{name}-p", tokens, specs[name]))
    prefill.run(lambda: len(prefill.outputs) == len(requests))
    waiting = waiting or decodes()
    decode.run(decode.is_idle)
    prefill.run(prefill.is_idle)
    assert [request.computed_tokens for request in waiting] == [1] * len(requests)
    for engine in (prefill, decode):
        engine.close()
    assert [hosts.count_held(side) for side in SIDES] == [0, 0]
