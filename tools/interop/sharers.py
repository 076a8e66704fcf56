"""Two vLLM engines that share what they compute, through agents and a directory, against a single engine's tokens.

usage: sharers.py --work DIRECTORY --kvferry FILE [--requests N] ...

One engine computes requests, and its agent keeps their whole chunks. The other one gets requests that begin alike: its
agent finds those chunks by the directory, and brings them. In the middle of that an agent is killed, in turn of either
engine, and started anew. Tokens are greedy, and must be those of an engine that computes all by itself.

Exit code: 0 if all is as it must be; 1 if not; 2 if nothing can be said.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import kvferry

from children import Child, GoneError, SilentError
from hosts import Agent, clear, connected, counted
from interop import HOST, START, Trial, free_ports, report
from trials import ABREAST, Result, arguments, references, trials

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

FILE = """
enable_p2p: true
p2p_host: {host}
p2p_init_ports: [{ports[0]}]
p2p_lookup_ports: [{ports[1]}]
enable_controller: true
lmcache_instance_id: {name}
lmcache_worker_ports: [{ports[2]}]
lmcache_worker_heartbeat_time: 0.5
controller_pull_url: {host}:{directory[pull]}
controller_reply_url: {host}:{directory[reply]}
p2p_sync_lookup_cache_ttl: 0
transfer_channel: auto
pd_buffer_size: 256MiB
pd_buffer_device: cpu
chunk_size: 256
extra_config:
  kvferry:
    layout: {{num_layers: 4, num_kv_heads: 2, head_size: 64, dtype: float}}
"""


def run(
    engine: Child,
    tried: list[Trial],
    known: dict[str, list[int]],
    patience: float,
    between: Callable[[int], None] | None = None,
) -> Result:
    """Have an engine serve requests, some at a time, and compare. While they are under way something may be done."""
    result = Result()
    for begin in range(0, len(tried), ABREAST):
        batch = tried[begin : begin + ABREAST]
        for trial in batch:
            engine.say("add", id=trial.name, prompt=trial.prompt, new_tokens=len(known[trial.name]))
        if between is not None:
            between(begin // ABREAST)
        for trial in batch:
            result.judge(trial, engine.wait("done", patience, id=trial.name), known[trial.name])
    return result


def tried_all(asked: argparse.Namespace) -> bool:
    """Try all; say whether all is as it must be."""
    ways = {way: trials(way, asked.requests, seed, tails) for way, seed, tails in WAYS}
    known = references(asked, [trial for some in ways.values() for trial in some])
    found, good = free_ports(9), True
    given = dict(zip(("pull", "reply", "heartbeat"), found[:3], strict=True))
    with contextlib.ExitStack() as stack:
        command = [asked.kvferry, "directory", "--ports", json.dumps(given)]
        log = stack.enter_context((Path(asked.work) / "directory.log").open("wb"))
        directory = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 # Who calls says what runs.
        stack.callback(directory.wait)
        stack.callback(directory.kill)
        agents: list[Agent] = []
        engines: list[Child] = []
        for i, name in enumerate(("one", "two")):
            text = FILE.format(host=HOST, name=name, ports=found[3 * i + 3 : 3 * i + 6], directory=given)
            agents.append(Agent(asked.kvferry, name, text, Path(asked.work)))
            stack.callback(agents[i].kill)
            engines.append(stack.enter_context(connected(asked, "both", name, agents[i])))
        for child in engines:
            report(child.wait("ready", START))

        def restart(times: int) -> None:
            if times % 4 == 1:
                agents[times // 4 % 2].kill()
                agents[times // 4 % 2].start()

        for place, (way, some) in enumerate(ways.items()):
            begun = time.monotonic()
            result = run(engines[place % 2], some, known, asked.patience, restart if way == "killed" else None)
            took = time.monotonic() - begun
            counts = counted(engines[place % 2], asked.patience)
            left = [clear(agent, 20) for agent in agents]
            good = good and result.same == len(some) and not any(left)
            if way == "shared":  # Else all may have been computed, and nothing was tried.
                good = good and counts.get("loaded_requests", 0) > 0 and not counts.get("failed_loads")
            print(f"{way}: {result.same} of {len(some)} same, different {result.different}, failed {result.failed}")
            print(f"  {took:.0f} s; held at the end: {left}; so far: {json.dumps(counts)}")
    return good


# What is tried, by the engines in turn: by which prompts they begin, and how they end.
WAYS = (("first", 11, 0), ("shared", 11, 1), ("again", 12, 0), ("killed", 12, 1))


def main() -> int:
    """Do what the command line says."""
    asked = arguments(__doc__).parse_args()
    try:
        return 0 if tried_all(asked) else 1
    except (GoneError, SilentError, kvferry.Error) as error:
        print(f"sharers: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
