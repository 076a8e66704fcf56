"""Two vLLM engines with LMCache in their processes and KvferryBackend, over two agents; the tokens are compared.

usage: plugin.py --work DIRECTORY --kvferry FILE [--requests N] [--pull [--delayed]] ...

LMCache's own connector to KV is for GPUs: a stand-in is in its place (standin.py). All else is vLLM's and LMCache's.
The prefill engine computes a prompt, whose chunks go where its disagg_spec says; the plug-in tells the proxy, which is
played here, and then the decode engine gets the prompt. Then it is done again while agents of either side are killed
and started anew; then the prefill engine is killed as it computes and sends, and at last the decode engine as it loads.
Tokens are greedy, and must be those of an engine that computes all by itself.

Exit code: 0 if all is as it must be; 1 if not; 2 if nothing can be said.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import kvferry
import msgpack
import zmq

from children import Child, GoneError, SilentError
from hosts import RETENTION, Agent, add_pulls, clear, engine, files
from interop import HOST, START, Trial, free_ports, report
from trials import ABREAST, Result, arguments, references, trials

if TYPE_CHECKING:
    import argparse

# Tokens of a chunk.
CHUNK = 256

LMCACHE = """
chunk_size: 256
local_cpu: false
max_local_cpu_size: 0.25
enable_pd: false
save_unfull_chunk: false
pre_caching_hash_algorithm: sha256_cbor
storage_plugins: [kvferry]
pd_proxy_host: {host}
pd_proxy_port: {proxy}
extra_config:
  storage_plugin.kvferry.module_path: kvferry.lmcache
  storage_plugin.kvferry.class_name: KvferryBackend
  kvferry: {{socket: "{socket}", grace: 1, load_patience: 5}}
"""


class Proxy:
    """LMCache's proxy, as far as it is told of prefills that have gone."""

    def __init__(self, port: int) -> None:
        """Listen."""
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PULL)
        self._socket.bind(f"tcp://{HOST}:{port}")
        self._told: set[str] = set()

    def wait(self, request: str, patience: float) -> None:
        """Wait until it is told of a request."""
        until = time.monotonic() + patience
        while request not in self._told:
            if not self._socket.poll(int(max(0, until - time.monotonic()) * 1000)):
                raise SilentError(f"the proxy was not told of {request}")
            self._told.add(msgpack.unpackb(self._socket.recv())["req_id"])


class Pair:
    """Two engines, their agents, and the proxy."""

    def __init__(self, asked: argparse.Namespace, ports: list[int]) -> None:
        """Begin with nothing."""
        self._asked, self._ports = asked, ports
        self.proxy = Proxy(ports[3])
        self.engines: dict[str, Child] = {}
        self.agents: dict[str, Agent] = {}
        # Tokens that the decode engine did not compute, and those that it need not have.
        self.loaded = self.wanted = 0

    def start(self, stack: contextlib.ExitStack) -> None:
        """Run agents, then engines."""
        work, (*ports, proxy) = Path(self._asked.work), self._ports
        for side, text in files(ports, pull=self._asked.pull, delayed=self._asked.delayed).items():
            agent = self.agents[side] = Agent(self._asked.kvferry, f"plugin-{side}", text, work)
            stack.callback(agent.kill)
            file = work / f"plugin-{side}-lmcache.yaml"
            file.write_text(LMCACHE.format(host=HOST, proxy=proxy, socket=agent.socket), encoding="utf-8")
            child = engine(
                self._asked,
                side,
                f"plugin-{side}",
                f"--id=plugin-{side}",  # Else LMCache's schedulers ask either's worker what there is.
                "--connector=LMCacheOnCPU",
                "--connector-module=standin",
                "--failure-policy=recompute",
                f"--extra={json.dumps({'lmcache_file': str(file)})}",
            )
            self.engines[side] = stack.enter_context(child)
        for child in self.engines.values():
            report(child.wait("ready", START))

    def run(self, tried: list[Trial], known: dict[str, list[int]], *, killed: bool) -> Result:
        """Have prompts go from one to the other."""
        result, patience = Result(), self._asked.patience
        for number, trial in enumerate(tried):
            self._to_prefill(trial)
            if killed and number % 4 == 0:  # While it is computed, and sent.
                self._restart("prefill")
            self.engines["prefill"].wait("done", patience, id=trial.name)
            if len(trial.prompt) >= CHUNK:  # Else LMCache stores nothing of it.
                self.proxy.wait(trial.name, patience)
            if killed and number % 4 == 1:  # With all of it.
                self._restart("decode")
            self._to_decode(trial)
            if killed and number % 4 == 2:  # While it is loaded.
                self._restart("decode")
            done = self.engines["decode"].wait("done", patience, id=trial.name)
            result.judge(trial, done, known[trial.name])
            self.loaded += done["cached_tokens"] or 0
            self.wanted += min(len(trial.prompt) // CHUNK * CHUNK, len(trial.prompt) - 1)
        return result

    def engines_gone(self, orphans: list[Trial], waiting: list[Trial], known: dict[str, list[int]]) -> Result:
        """Kill the prefill engine as it computes and sends orphans, and the decode engine as it loads what waits."""
        prefill, decode, patience = self.engines["prefill"], self.engines["decode"], self._asked.patience
        for trial in waiting:
            self._to_prefill(trial)
            prefill.wait("done", patience, id=trial.name)
        for trial in orphans:
            self._to_prefill(trial)
        prefill.wait("done", patience, id=orphans[0].name)
        prefill.kill()
        for trial in orphans:
            self._to_decode(trial)
        result = Result()
        for trial in orphans:
            result.judge(trial, decode.wait("done", patience, id=trial.name), known[trial.name])
        for trial in waiting:
            self._to_decode(trial)
        decode.wait("begun", patience, id=waiting[0].name)
        decode.kill()
        return result

    def _to_prefill(self, trial: Trial) -> None:
        init, alloc, *_ = self._ports
        spec = {"receiver_host": HOST, "receiver_init_port": [init], "receiver_alloc_port": [alloc]}
        params = {"disagg_spec": {"req_id": trial.name, **spec}}
        self.engines["prefill"].say("add", id=trial.name, prompt=trial.prompt, new_tokens=1, kv_transfer_params=params)

    def _to_decode(self, trial: Trial) -> None:
        self.engines["decode"].say("add", id=trial.name, prompt=trial.prompt, new_tokens=self._asked.new_tokens)

    def _restart(self, side: str) -> None:
        self.agents[side].kill()
        self.agents[side].start()


def tried_all(asked: argparse.Namespace) -> bool:
    """Try all; say whether all is as it must be."""
    ways = {way: trials(way, asked.requests, seed) for way, seed in (("sent", 31), ("killed", 32))}
    orphans, waiting = trials("orphan", ABREAST, 33), trials("waiting", ABREAST, 34)
    known, good = references(asked, [*(trial for some in ways.values() for trial in some), *orphans]), True
    os.environ |= {"LMCACHE_TRACK_USAGE": "false"}
    with contextlib.ExitStack() as stack:
        pair = Pair(asked, free_ports(4))
        pair.start(stack)
        for way, some in ways.items():
            result = pair.run(some, known, killed=way == "killed")
            print(f"{way}: {result.same} of {len(some)} same, different {result.different}, failed {result.failed}")
            print(f"  loaded {pair.loaded} tokens of {pair.wanted} so far")
            # Else nothing was tried: of what came nothing was taken, or of what was lost nothing was missed.
            tried = pair.loaded < pair.wanted if way == "killed" else pair.loaded == pair.wanted
            good = good and result.same == len(some) and tried
        result = pair.engines_gone(orphans, waiting, known)
        print(f"engines: {result.same} of {len(orphans)} same, different {result.different}, failed {result.failed}")
        good = good and result.same == len(orphans)
        left = {side: clear(agent, RETENTION * 2) for side, agent in pair.agents.items()}
        print(f"held at the end: {left}")
        return good and not any(left.values())


def main() -> int:
    """Do what the command line says."""
    parser = arguments(__doc__)
    add_pulls(parser)
    asked = parser.parse_args()
    try:
        return 0 if tried_all(asked) else 1
    except (GoneError, SilentError, kvferry.Error) as error:
        print(f"plugin: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
