"""What runs on a host: agents, which can be killed and started anew, and engines that have one."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import kvferry
import kvferry.agent

from children import Child, GoneError
from interop import HOST

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent

# Tokens of a chunk, and what the tiny model has of each (model.py).
FILE = """
enable_pd: true
pd_role: {role}
transfer_channel: auto
pd_skip_proxy_notification: true
{peer}
pd_buffer_size: 256MiB
pd_buffer_device: cpu
chunk_size: 256
{mode}
extra_config:
  kvferry:
    retention: {retention}
    layout: {{num_layers: 4, num_kv_heads: 2, head_size: 64, dtype: float}}
"""
# What a file has more of where layers go one by one, and where the decode's agent reads instead.
LAYERWISE = "use_layerwise: true"
PULL = "pd_pull_mode: true"
DELAYED = "pd_delay_pull: true"
DONE = "pd_peer_host: {host}\npd_pull_done_port: [{done}]"
# What nobody comes for stays with the prefill's agent then.
OFFERED = "pd_pull_pending_ttl: {retention}"
PEER = "pd_peer_host: {host}\npd_peer_init_port: [{init}]\npd_peer_alloc_port: [{alloc}]"

# Where engines have their own blocks in the pool: a page is a block of one layer, and both sides are called.
OWN = """
enable_pd: true
pd_role: both
transfer_channel: auto
pd_peer_host: {host}
pd_peer_init_port: [{init}]
pd_peer_alloc_port: [{alloc}]
pd_buffer_device: cpu
chunk_size: {block}
extra_config:
  kvferry:
    layout: {{num_layers: 4, num_kv_heads: 2, head_size: 64, dtype: float}}
    register: {{engine_id: {side}, kv_heads: 2, blocks: {blocks}}}
"""
# Tokens of a block, as vLLM has them on a CPU; and blocks of the pool beside the engine's.
BLOCK, SPARE = 128, 64

# What they are on either side.
SIDES = {"prefill": "sender", "decode": "receiver"}

# How long an agent keeps what nobody comes for, in seconds.
RETENTION = 20


class Agent:
    """An agent that can be killed and started anew at the same place."""

    def __init__(self, binary: str, name: str, text: str, work: Path) -> None:
        """Start it with a configuration."""
        self.socket = work / f"{name}.sock"
        self._config = work / f"{name}.yaml"
        self._log = work / f"{name}-agent.log"
        self._log.unlink(missing_ok=True)
        self._config.write_text(text, encoding="utf-8")
        self._binary = binary
        self.start()

    def start(self) -> None:
        """Run it; return when it serves."""
        with self._log.open("ab") as log:
            try:
                self._running = kvferry.agent.start(self._config, self.socket, binary=self._binary, stderr=log)
            except (kvferry.Error, OSError) as error:
                raise GoneError(f"{error}; the agent's log is {self._log}") from error

    def kill(self) -> None:
        """End it at once."""
        self._running.kill()

    def held(self, client: kvferry.Client) -> dict[str, int]:
        """Say what is left in it, beside pages that nobody has."""
        node = client.stats()["node"]
        if "blocks" in client.info.sides:
            lent = node["pages_total"] - node["pages_free"]
            return {"lent": lent} if lent else {}
        return {name: node[name] for name in ("claims", "pinned", "pages_leased") if node[name]}


def engine(asked: argparse.Namespace, role: str, name: str, *more: str) -> Child:
    """Start an engine."""
    work = Path(asked.work)
    command = [sys.executable, str(HERE / "engine.py"), "--role", role, "--model", str(work / "model"), *more]
    return Child(f"the {name} engine", command, work / f"{name}.log")


def connected(
    asked: argparse.Namespace, role: str, name: str, agent: Agent, *, beside: bool = False, **more: object
) -> Child:
    """Start an engine that has an agent, and another connector beside it if it is to be so."""
    extra = {"socket": str(agent.socket), "load_patience": asked.load_patience, "grace": 1, **more}
    return engine(
        asked,
        role,
        name,
        "--connector=KvferryConnector",
        "--connector-module=kvferry.vllm",
        "--failure-policy=recompute",
        "--beside" if beside else "--prefix-caching",  # Else the other connector would hardly be asked for anything.
        *((f"--num-blocks={asked.num_blocks}",) if asked.num_blocks else ()),
        *((f"--batched-tokens={asked.batched_tokens}",) if asked.batched_tokens else ()),
        f"--extra={json.dumps(extra)}",
    )


def clear(agent: Agent, patience: float) -> dict[str, int]:
    """Wait until an agent has nothing left; say what it has when the patience is over."""
    until = time.monotonic() + patience
    with kvferry.connect(agent.socket) as client:
        while (left := agent.held(client)) and time.monotonic() < until:
            time.sleep(0.05)
    return left


def nothing_held(way: str, both: dict[str, Agent]) -> bool:
    """Say whether agents keep nothing; tell who watches."""
    left = {side: clear(agent, RETENTION * 2) for side, agent in both.items()}
    print(f"{way}: held at the end: {left}")
    return not any(left.values())


def add_pulls(parser: argparse.ArgumentParser) -> None:
    """Have a command line say whether the decode's agent reads."""
    parser.add_argument("--pull", action="store_true", help="the decode's agent reads, instead of being written to")
    parser.add_argument("--delayed", action="store_true", help="with --pull: when the engine fetches")


def files(
    ports: list[int], *, pull: bool, delayed: bool, layerwise: bool = False, retention: int = RETENTION
) -> dict[str, str]:
    """Write the files of both agents. Ports: two of the decode's, and one where the prefill's hears what was read."""
    made = {}
    for side, role in SIDES.items():
        peer, mode = "", PULL if pull else LAYERWISE if layerwise else ""
        if side == "decode":
            peer = PEER.format(host=HOST, init=ports[0], alloc=ports[1])
            mode += f"\n{DELAYED}" if pull and delayed else ""
        elif pull:
            peer = DONE.format(host=HOST, done=ports[2])
            mode += f"\n{OFFERED.format(retention=retention)}" if delayed else ""
        made[side] = FILE.format(role=role, peer=peer, mode=mode, retention=retention)
    return made


def own_files(ports: list[int], blocks: int) -> dict[str, str]:
    """Write the files of both agents where engines have so many blocks of their own in the pool."""
    at = {"prefill": ports[2:4], "decode": ports[:2]}
    return {
        side: OWN.format(host=HOST, init=init, alloc=alloc, block=BLOCK, side=side, blocks=blocks + SPARE)
        for side, (init, alloc) in at.items()
    }


@contextlib.contextmanager
def agents(asked: argparse.Namespace, ports: list[int]) -> Iterator[dict[str, Agent]]:
    """Run both agents."""
    made: dict[str, Agent] = {}
    if asked.own:
        texts = own_files(ports, asked.num_blocks)
    else:
        texts = files(ports, pull=asked.pull, delayed=asked.delayed, layerwise=asked.layerwise)
    try:
        for side, text in texts.items():
            made[side] = Agent(asked.kvferry, side, text, Path(asked.work))
        yield made
    finally:
        for agent in made.values():
            agent.kill()


def counted(child: Child, patience: float) -> dict[str, float]:
    """Ask an engine what its connector counted so far."""
    child.say("metrics")
    counts: dict[str, float] = child.wait("metrics", patience)["counts"]
    return {word: value for word, value in counts.items() if value}
