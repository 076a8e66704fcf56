"""The connector of vLLM, below a double of its scheduler and worker, over real agents.

It runs where KVFERRY_BIN names the command.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

import kvferry
import vllm_double as double
from kvferry import agent
from vllm_double import Engine, Request

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(agent.BINARY_VARIABLE not in os.environ, reason="KVFERRY_BIN is not set")

HOST = "127.0.0.1"
FILE = """
enable_pd: true
pd_role: {role}
transfer_channel: auto
pd_skip_proxy_notification: true
pd_buffer_size: {bytes}
pd_buffer_device: cpu
chunk_size: {chunk}
use_layerwise: {layered}
extra_config:
  kvferry:
    layout: {{num_layers: {layers}, num_kv_heads: {heads}, head_size: {head}, dtype: float}}
"""
SIDES = {"prefill": "sender", "decode": "receiver"}


class Hosts:
    """The agents of a prefill's and a decode's host."""

    def __init__(self, folder: pathlib.Path, layered: tuple[str, ...] = (), *, delayed: bool = False) -> None:
        """Run them; those of some sides go layer by layer. Delayed: the decode's reads, when its engine fetches."""
        self._folder = folder
        self.ports = ports(3)
        self.agents: dict[str, agent.Agent] = {}
        for side, role in SIDES.items():
            text = FILE.format(
                role=role,
                layered=str(side in layered).lower(),
                bytes=64 * double.PAGE_BYTES,
                chunk=double.CHUNK * double.BLOCK,
                layers=double.LAYERS,
                heads=double.HEADS,
                head=double.HEAD,
            )
            if side == "decode":
                text += (
                    f"pd_peer_host: {HOST}\npd_peer_init_port: {self.ports[0]}\npd_peer_alloc_port: {self.ports[1]}\n"
                )
                text += "pd_delay_pull: true\n" if delayed else ""
            elif delayed:
                text += f"pd_peer_host: {HOST}\npd_pull_done_port: [{self.ports[2]}]\n"
            text += "pd_pull_mode: true\n" if delayed else ""
            (folder / f"{side}.yaml").write_text(text)
            self.start(side)

    def socket(self, side: str) -> str:
        return str(self._folder / f"{side}.sock")

    def start(self, side: str) -> None:
        self.agents[side] = agent.start(self._folder / f"{side}.yaml", self.socket(side))

    def anew(self, side: str, attached: kvferry.Client) -> None:
        """Kill an agent and start it anew, and have a client of it know."""
        before, changed = attached.epoch, attached._driver.changed
        self.agents[side].kill()
        self.start(side)
        with changed:
            assert changed.wait_for(lambda: attached.epoch != before and attached.attached, double.PATIENCE)

    def held(self, side: str) -> int:
        """Count what is claimed, pinned or lent at an agent."""
        with kvferry.connect(self.socket(side)) as client:
            node = client.stats()["node"]
        return int(node["Claims"] + node["Pinned"] + node["PagesLent"] + node["PagesTotal"] - node["PagesFree"])

    def stop(self) -> None:
        for one in self.agents.values():
            one.kill()


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Hosts]:
    double.install(monkeypatch)
    modes = getattr(request, "param", ())
    made = Hosts(tmp_path, modes, delayed="delayed" in modes)
    yield made
    made.stop()


def engines(hosts: Hosts, budget: int = 1 << 20, **extra: Any) -> tuple[Engine, Engine]:
    from kvferry.vllm import KvferryConnector

    prefill = Engine(KvferryConnector, "kv_producer", budget=budget, socket=hosts.socket("prefill"), grace=0.2, **extra)
    return prefill, Engine(KvferryConnector, "kv_consumer", socket=hosts.socket("decode"), grace=0.2, **extra)


def spec_of(hosts: Hosts, name: str) -> dict[str, Any]:
    ports = {"receiver_init_port": [hosts.ports[0]], "receiver_alloc_port": [hosts.ports[1]]}
    return {"req_id": name, "receiver_host": HOST, **ports}


@pytest.mark.parametrize("hosts", [(), ("prefill",), ("prefill", "decode")], indirect=True)
@pytest.mark.parametrize("killed", [None, "decode", "prefill"])
def test_requests_of_all_lengths(hosts: Hosts, killed: str | None) -> None:
    """Whatever an agent does, both engines end with the KV that they would have computed, and nothing stays held."""
    prefill, decode = engines(hosts, 23, load_patience=2 if killed else 20)
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
    decode.run(decode.idle)
    prefill.run(prefill.idle)
    assert all(request.worked >= 1 for request in made)
    computed = sum(request.worked > 1 for request in made)
    if killed is None:
        assert computed == 0
    else:
        assert computed < 30
    for engine in (prefill, decode):
        engine.close()
    assert decode.counts["loaded_requests"] + decode.counts.get("failed_loads", 0) == 40
    assert [hosts.held(side) for side in SIDES] == [0, 0]


@pytest.mark.parametrize("hosts", [(), ("prefill",), ("prefill", "decode")], indirect=True)
def test_a_prefill_that_ends_early_is_told(hosts: Hosts) -> None:
    prefill, decode = engines(hosts, 16, load_patience=600)
    spec, tokens = {"disagg_spec": spec_of(hosts, "r")}, list(range(45))
    request = decode.add(Request("r-d", tokens, {**spec, "do_remote_prefill": True}))
    decode.step()
    sent = prefill.add(Request("r-p", tokens, spec))
    prefill.step()
    prefill.abort(sent)
    prefill.run(prefill.idle)
    decode.run(decode.idle)
    assert request.worked > 1
    for engine in (prefill, decode):
        engine.close()
    assert [hosts.held(side) for side in SIDES] == [0, 0]


@pytest.mark.parametrize("hosts", [("prefill", "decode")], indirect=True)
def test_a_prefill_that_is_preempted_half_way(hosts: Hosts) -> None:
    prefill, decode = engines(hosts, 16)
    sent = prefill.add(Request("r-p", list(range(45)), {"disagg_spec": spec_of(hosts, "r")}))
    prefill.step()
    prefill.preempt(sent)
    prefill.add(Request("other", list(range(90))))
    prefill.run(prefill.idle)
    request = decode.add(Request("r-d", list(range(45)), prefill.outputs["r-p"]))
    decode.run(decode.idle)
    assert request.worked == 1
    for engine in (prefill, decode):
        engine.close()
    assert [hosts.held(side) for side in SIDES] == [0, 0]


def test_an_abort_leaves_nothing(hosts: Hosts) -> None:
    prefill, decode = engines(hosts)
    spec = spec_of(hosts, "r")
    request = decode.add(Request("r-d", list(range(50)), {"disagg_spec": spec, "do_remote_prefill": True}))
    decode.step()
    decode.abort(request)
    decode.run(decode.idle)
    prefill.add(Request("r-p", list(range(50)), {"disagg_spec": spec}))
    prefill.run(prefill.idle)
    for engine in (prefill, decode):
        engine.close()
    assert [hosts.held(side) for side in SIDES] == [0, 0]


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

SHARING = """
enable_p2p: true
p2p_host: 127.0.0.1
p2p_init_ports: [{ports[0]}]
p2p_lookup_ports: [{ports[1]}]
enable_controller: true
lmcache_instance_id: {name}
lmcache_worker_ports: [{ports[2]}]
controller_pull_url: 127.0.0.1:{directory[pull]}
controller_reply_url: 127.0.0.1:{directory[reply]}
p2p_sync_lookup_cache_ttl: 0
pd_buffer_size: {bytes}
pd_buffer_device: cpu
chunk_size: {chunk}
extra_config:
  p2p_max_concurrent_gets: 1
  kvferry:
    layout: {{num_layers: {layers}, num_kv_heads: {heads}, head_size: {head}, dtype: float}}
"""


def ports(count: int) -> list[int]:
    """Find ports that nobody has."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in found]


@pytest.fixture
def sharers(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[list[str]]:
    """Run a directory, and two agents; give their sockets."""
    double.install(monkeypatch)
    given = dict(zip(("pull", "reply", "heartbeat"), ports(3), strict=True))
    command = [agent.find(), "directory", "--ports", json.dumps(given), "--json", "--every", "1h"]
    with contextlib.ExitStack() as stack:
        directory = subprocess.Popen(command, stdout=subprocess.PIPE)
        stack.callback(directory.wait)
        stack.callback(directory.kill)
        assert directory.stdout is not None
        stack.callback(directory.stdout.close)
        assert directory.stdout.readline()
        sockets = []
        for name in ("one", "two"):
            file = tmp_path / f"{name}.yaml"
            file.write_text(
                SHARING.format(
                    name=name,
                    ports=ports(3),
                    directory=given,
                    bytes=64 * double.PAGE_BYTES,
                    chunk=double.CHUNK * double.BLOCK,
                    layers=double.LAYERS,
                    heads=double.HEADS,
                    head=double.HEAD,
                )
            )
            sockets.append(str(tmp_path / f"{name}.sock"))
            stack.callback(agent.start(file, sockets[-1]).kill)
        yield sockets


def test_engines_share_through_one_agent_and_through_two(sharers: list[str]) -> None:
    from kvferry.vllm import KvferryConnector

    def made(path: str) -> Engine:
        return Engine(KvferryConnector, "kv_both", socket=path, hash_bits=64)

    first, beside, away = made(sharers[0]), made(sharers[0]), made(sharers[1])
    tokens = list(range(70))

    def worked(engine: Engine, name: str) -> int:
        request = engine.add(Request(name, [*tokens, len(name)]))
        engine.run(engine.idle)
        return request.worked

    assert worked(first, "a") == 71
    assert worked(beside, "bb") == 71 - 64
    until, name = time.monotonic() + double.PATIENCE, "ccc"
    while (computed := worked(away, name)) != 71 - 64:  # Until the directory has heard.
        # Nor may it be its own: what it computed it has stored.
        assert time.monotonic() < until
        assert computed == 71
        tokens[0] += 1
        worked(first, name)
    assert away.counts["loaded_bytes"] == 4 * double.PAGE_BYTES
    for engine in (first, beside, away):
        engine.close()


def test_a_burst_of_requests_finds_what_another_engine_has(sharers: list[str]) -> None:
    """However few of them its agent serves at a time."""
    from kvferry.vllm import KvferryConnector
    from kvferry.vllm.words import Prompt

    here, away = (Engine(KvferryConnector, "kv_both", 256, socket=path, hash_bits=64) for path in sharers)
    prompts = [list(range(100 * i, 100 * i + 65)) for i in range(7)]
    for i, tokens in enumerate(prompts):
        here.add(Request(f"here-{i}", tokens))
    here.run(here.idle)
    names = away.worker.get_handshake_metadata().names
    until = time.monotonic() + double.PATIENCE
    with kvferry.connect(sharers[1]) as client:
        for tokens in prompts:
            while client.lookup(names.keys(Prompt(tuple(tokens)))[:4]).elsewhere < 4:
                assert time.monotonic() < until
                time.sleep(0.01)
    made = [away.add(Request(f"away-{i}", tokens)) for i, tokens in enumerate(prompts)]
    away.run(away.idle)
    assert [request.worked for request in made] == [1] * 7
    for engine in (here, away):
        engine.close()
