"""Measures how soon a decode engine has its first token: by KvferryConnector, by vLLM's own connectors, by computing.

usage: figures.py --work DIRECTORY --kvferry FILE [--lengths N,N,...] [--rounds N] [--planes shm,tcp] ...

In each round every way serves the same new prompt, in another order each time, and all others are paused meanwhile:

    computed    one engine without a connector
    push, pull  a prefill and a decode engine with KvferryConnector, over two agents
    layerwise   the same, with agents that push each layer while the next one is computed
    nixl-pull   the same two with NixlConnector
    nixl-push   with NixlPushConnector

The prefill engine is first; the decode engine is told when it has answered. Two times end with the decode engine's
first token: one begins with the whole request, one when it goes to the decode engine. Tokens must be those that were
computed, and all KV must have come: a request of which that is not so ends the run, as its time would mean nothing.

vLLM's NIXL connectors pin an engine to the machine's last core. Both engines would share it, so that is undone here.

The bytes that were copied are counted: into pages and out of them by KvferryConnector, what crosses the loopback
by the kernel; and the planes' own copies are of as many bytes as were put.

Exit code: 0, or 2 if nothing can be said.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

from children import Child, GoneError, SilentError, run_folder
from hosts import DONE, LAYERWISE, PEER, PULL, Agent
from interop import HOST, free_ports
from model import HEAD, MODELS
from served import BLOCK, Way, measured, table

HERE = Path(__file__).resolve().parent
SIDES = {"prefill": "sender", "decode": "receiver"}

# The rest stands in pools: as much as two prompts need, so that warming up touches all of it.
FILE = """
enable_pd: true
pd_role: {role}
transfer_channel: {plane}
pd_skip_proxy_notification: true
{peer}
pd_buffer_size: {pool}MiB
pd_buffer_device: cpu
chunk_size: {chunk}
{mode}
extra_config:
  kvferry:
    layout: {{num_layers: {layers}, num_kv_heads: {heads}, head_size: {head}, dtype: float}}
"""
CHUNK = 256

# Ways over agents, and what their files have more.
KVFERRY = {"push": "", "pull": PULL, "layerwise": LAYERWISE}
NIXL = {"nixl-pull": "NixlConnector", "nixl-push": "NixlPushConnector"}


class Kvferry(Way):
    """Engines with agents, which are started anew for each plane."""

    def __init__(self, name: str, ports: list[int], asked: argparse.Namespace) -> None:
        """Start agents that listen at these ports, and then the engines."""
        self._ports = ports
        self._agents: dict[str, Agent] = {}
        self.plane = ""
        self._asked = asked
        self.name = name
        self.over(asked.planes[0])
        super().__init__(name, {side: self._engine(side) for side in SIDES}, asked)

    def over(self, plane: str) -> None:
        """Have the agents use a plane."""
        if plane == self.plane:
            return
        self.close()
        self.plane = plane
        sizes = MODELS[self._asked.sizes]
        for side, role in SIDES.items():
            peer = PEER.format(host=HOST, init=self._ports[0], alloc=self._ports[1]) if side == "decode" else ""
            if side == "prefill" and self.name == "pull":
                peer = DONE.format(host=HOST, done=self._ports[2])
            text = FILE.format(
                role=role,
                plane=plane,
                peer=peer,
                pool=-(-2 * max(self._asked.lengths) * sizes.token_bytes // (1 << 20)),
                chunk=CHUNK,
                mode=KVFERRY[self.name],
                layers=sizes.layers,
                heads=sizes.kv_heads,
                head=HEAD,
            )
            self._agents[side] = Agent(self._asked.kvferry, f"{self.name}-{side}", text, Path(self._asked.work))

    def close(self) -> None:
        """End the agents."""
        for agent in self._agents.values():
            agent.kill()

    def params(self, name: str) -> dict[str, Any]:
        """Say in LMCache's words where the decode's agent is."""
        init, alloc, _ = self._ports
        spec = {"req_id": name, "receiver_host": HOST, "receiver_init_port": [init], "receiver_alloc_port": [alloc]}
        return {"disagg_spec": spec}

    def _engine(self, side: str) -> Child:
        extra = json.dumps({"socket": str(self._agents[side].socket), "grace": 1})
        more = ("--connector=KvferryConnector", "--connector-module=kvferry.vllm", f"--extra={extra}")
        return engine(self._asked, self.name, side, *more)


def engine(asked: argparse.Namespace, way: str, side: str, *more: str) -> Child:
    """Start an engine whose cache holds a little more than two prompts, so that warming up touches all of it."""
    work, name, longest = Path(asked.work), f"{way}-{side}", max(asked.lengths)
    command = [sys.executable, str(HERE / "engine.py"), "--role", side, "--model", str(work / asked.sizes)]
    command += ["--id", name, "--longest", str(longest + BLOCK), "--num-blocks", str(2 * -(-longest // BLOCK) + 4)]
    return Child(f"the {side} engine of {way}", [*command, *more], work / f"{name}.log")


def started(asked: argparse.Namespace, stack: contextlib.ExitStack) -> list[Way]:
    """Start all ways. Their engines end with the stack."""
    ways: list[Way] = []
    ports = free_ports(len(KVFERRY) * 3 + len(NIXL) * 2)
    for name in asked.ways:
        if name in KVFERRY:
            kvferry_way = Kvferry(name, [ports.pop() for _ in range(3)], asked)
            stack.callback(kvferry_way.close)
            ways.append(kvferry_way)
        elif name in NIXL:
            more = [f"--connector={NIXL[name]}"]
            ways.append(Way(name, {s: engine(asked, name, s, *more, f"--port={ports.pop()}") for s in SIDES}, asked))
        else:
            ways.append(Way(name, {"single": engine(asked, name, "single")}, asked))
        for child in ways[-1].engines.values():
            stack.enter_context(child)
    for way in ways:
        way.ready()
    return ways


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--work",
        required=True,
        type=run_folder,
        metavar="DIRECTORY",
        help="has the model's folder; logs go to a new one",
    )
    parser.add_argument("--kvferry", required=True, metavar="FILE", help="the command")
    parser.add_argument("--sizes", choices=tuple(MODELS), default="small", help="of the model")
    parser.add_argument("--lengths", type=numbers, default="1024,4096", help="of prompts, in tokens")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm", type=int, default=3, help="requests that each way serves before; they do not count")
    parser.add_argument("--planes", type=names, default="shm,tcp")
    parser.add_argument("--ways", type=names, default=",".join(("computed", *KVFERRY, *NIXL)))
    parser.add_argument("--new-tokens", type=int, default=4, help="that are compared")
    parser.add_argument("--patience", type=float, default=180, help="with each answer, in seconds")
    asked = parser.parse_args()
    token_bytes = MODELS[asked.sizes].token_bytes
    try:
        with contextlib.ExitStack() as stack:
            ways, seeds = started(asked, stack), itertools.count(1)
            for plane in asked.planes:
                served, moved = measured(asked, ways, plane, seeds, token_bytes)
                load = " ".join(f"{some:.1f}" for some in os.getloadavg())
                print(f"kvferry over {plane}; {asked.rounds} rounds; load {load}\n")
                print(table(served, moved, token_bytes), flush=True)
    except (GoneError, SilentError) as error:
        print(f"figures: {error}", file=sys.stderr)
        return 2
    return 0


def names(text: str) -> list[str]:
    """Read a list."""
    return text.split(",")


def numbers(text: str) -> list[int]:
    """Read a list of numbers."""
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
