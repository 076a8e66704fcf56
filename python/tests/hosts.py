"""Real agents below engines: of a prefill and a decode host, and of hosts that share.

These tests run if KVFERRY_BIN names the command.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import kvferry
import vllm_double as double
from kvferry import agent
from nodes import HOST, free_ports
from vllm_engine import Engine

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

# The end of a configuration: the pool, with one page for a chunk of the double's model.
POOL = f"""
pd_buffer_size: {64 * double.PAGE_BYTES}
pd_buffer_device: cpu
chunk_size: {double.CHUNK * double.BLOCK}
extra_config:
  kvferry:
    layout: {{num_layers: {double.LAYERS}, num_kv_heads: {double.HEADS}, head_size: {double.HEAD}, dtype: float}}
"""
SIDES = {"prefill": "sender", "decode": "receiver"}
# All ways in which chunks can be transferred.
MODES = pytest.mark.parametrize("hosts", [(), ("pull",), ("delayed",)], indirect=True)


class Hosts:
    """The agents of a prefill and a decode host."""

    def __init__(
        self, folder: pathlib.Path, layered: tuple[str, ...] = (), *, pull: bool = False, delayed: bool = False
    ) -> None:
        """Start the agents.

        Args:
            folder: for configurations and sockets.
            layered: the sides that push layer by layer.
            pull: whether the decode agent reads chunks.
            delayed: whether it reads them only when its engine fetches them.
        """
        self._folder = folder
        self.ports = free_ports(3)
        self.agents: dict[str, agent.Agent] = {}
        pull = pull or delayed
        for side, role in SIDES.items():
            text = (
                f"enable_pd: true\npd_role: {role}\npd_skip_proxy_notification: true\ntransfer_channel: auto\n"
                f"use_layerwise: {str(side in layered).lower()}\npd_pull_mode: {str(pull).lower()}\n"
            )
            if side == "decode":
                text += f"pd_peer_init_port: {self.ports[0]}\npd_peer_alloc_port: {self.ports[1]}\n"
                text += "pd_delay_pull: true\n" if delayed else ""
            elif pull:
                text += f"pd_pull_done_port: [{self.ports[2]}]\n"
            text += f"pd_peer_host: {HOST}\n" if side == "decode" or pull else ""
            (folder / f"{side}.yaml").write_text(text + POOL)
            self.start(side)

    def socket(self, side: str) -> str:
        return str(self._folder / f"{side}.sock")

    def start(self, side: str) -> None:
        self.agents[side] = agent.start(self._folder / f"{side}.yaml", self.socket(side))

    def resize(self, side: str, chunks: int) -> None:
        """Restart an agent with a pool that has room for so many chunks."""
        file = self._folder / f"{side}.yaml"
        pages = f"pd_buffer_size: {chunks * double.PAGE_BYTES}"
        file.write_text(re.sub(r"(?m)^pd_buffer_size: .*$", pages, file.read_text()))
        self.agents[side].kill()
        self.start(side)

    def restart_agent(self, side: str, client: kvferry.Client) -> None:
        """Kill and restart an agent, and wait until a client has attached to it again."""
        before, changed = client.epoch, client._driver.changed
        self.agents[side].kill()
        self.start(side)
        with changed:
            assert changed.wait_for(lambda: client.epoch != before and client.attached, double.TIMEOUT)

    def count_held(self, side: str) -> int:
        """Count the claimed, pinned and lent chunks and the used pages of an agent."""
        with kvferry.connect(self.socket(side)) as client:
            node = client.stats()["node"]
        return int(node["claims"] + node["pinned"] + node["pages_lent"] + node["pages_total"] - node["pages_free"])

    def stop(self) -> None:
        for process in self.agents.values():
            process.kill()


def make_engines(hosts: Hosts, budget: int = 1 << 20, **extra: Any) -> tuple[Engine, Engine]:
    from kvferry.vllm import KvferryConnector

    prefill = Engine(KvferryConnector, "kv_producer", budget=budget, socket=hosts.socket("prefill"), grace=0.2, **extra)
    return prefill, Engine(KvferryConnector, "kv_consumer", socket=hosts.socket("decode"), grace=0.2, **extra)


def spec_of(hosts: Hosts, name: str) -> dict[str, Any]:
    ports = {"receiver_init_port": [hosts.ports[0]], "receiver_alloc_port": [hosts.ports[1]]}
    return {"req_id": name, "receiver_host": HOST, **ports}


def sharing_config() -> str:
    """Return the configuration of an agent that shares without a directory."""
    init, lookup = free_ports(2)
    return f"""
enable_p2p: true
p2p_host: {HOST}
p2p_init_ports: [{init}]
p2p_lookup_ports: [{lookup}]
{POOL}"""


@contextlib.contextmanager
def run_sharing_agents(folder: pathlib.Path) -> Iterator[list[str]]:
    """Run a directory and two agents that serve one read of a peer at a time; yield their sockets."""
    ports = dict(zip(("pull", "reply", "heartbeat"), free_ports(3), strict=True))
    command = [agent.find_binary(), "directory", "--ports", json.dumps(ports), "--json", "--every", "1h"]
    with contextlib.ExitStack() as stack:
        directory = subprocess.Popen(command, stdout=subprocess.PIPE)
        stack.callback(directory.wait)
        stack.callback(directory.kill)
        assert directory.stdout is not None
        stack.callback(directory.stdout.close)
        assert directory.stdout.readline()
        sockets = []
        for name in ("one", "two"):
            file = folder / f"{name}.yaml"
            file.write_text(f"""
enable_controller: true
lmcache_instance_id: {name}
lmcache_worker_ports: [{free_ports(1)[0]}]
controller_pull_url: {HOST}:{ports["pull"]}
controller_reply_url: {HOST}:{ports["reply"]}
p2p_sync_lookup_cache_ttl: 0
{sharing_config()}  p2p_max_concurrent_gets: 1
""")
            sockets.append(str(folder / f"{name}.sock"))
            stack.callback(agent.start(file, sockets[-1]).kill)
        yield sockets
