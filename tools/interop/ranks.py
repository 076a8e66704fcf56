"""Two of vLLM's servers, each of several ranks, with an agent for each rank, against the tokens of one of them alone.

usage: ranks.py --work DIRECTORY --kvferry FILE [--ranks N] [--layerwise] [--requests N] ...

Front end, scheduler and each worker are processes of their own. First the decode engine answers all by itself, and
keeps nothing of it. Then the prefill engine computes, and each rank's agent pushes to that of the same rank at the
decode engine: once, and again with an agent of one rank killed now and then, on either side.

Exit code: 0 if all is as it must be; 1 if not; 2 if nothing can be said.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kvferry

from children import Child, GoneError, SilentError
from hosts import FILE, HERE, LAYERWISE, PEER, RETENTION, SIDES, Agent, clear
from hosts import counted as counts_of
from interop import HOST, START, Trial, free_ports, report
from trials import ABREAST, Pair, arguments, trials

if TYPE_CHECKING:
    import argparse


def served(asked: argparse.Namespace, side: str) -> Child:
    """Start a server."""
    work = Path(asked.work)
    extra = {"socket": str(work / (side + "-{rank}.sock")), "load_patience": asked.load_patience, "grace": 1}
    command = [sys.executable, str(HERE / "serve.py"), f"--role={side}", f"--model={work / 'model'}"]
    command += [f"--ranks={asked.ranks}", "--failure-policy=recompute", f"--extra={json.dumps(extra)}"]
    command += [f"--batched-tokens={asked.batched_tokens}"] if asked.batched_tokens else []
    return Child(f"the {side} server", command, work / f"{side}-server.log")


class Ranks(Pair):
    """Two servers, whose requests name a port for each rank."""

    def _params(self, trial: Trial) -> dict[str, Any]:
        half = len(self._ports) // 2
        spec = {"req_id": trial.name, "receiver_host": HOST}
        return {
            "disagg_spec": {
                **spec,
                "receiver_init_port": self._ports[:half],
                "receiver_alloc_port": self._ports[half:],
            }
        }


def agents(asked: argparse.Namespace, ports: list[int]) -> dict[str, list[Agent]]:
    """Start an agent for each rank of each side."""
    made: dict[str, list[Agent]] = {}
    for side, role in SIDES.items():
        for rank in range(asked.ranks):
            peer = PEER.format(host=HOST, init=ports[rank], alloc=ports[asked.ranks + rank])
            text = FILE.format(
                role=role,
                peer=peer if side == "decode" else "",
                mode=LAYERWISE if asked.layerwise else "",
                retention=RETENTION,
            )
            text = text.replace("num_kv_heads: 2", f"num_kv_heads: {2 // asked.ranks}")
            made.setdefault(side, []).append(Agent(asked.kvferry, f"{side}-{rank}", text, Path(asked.work)))
    return made


def tried_all(asked: argparse.Namespace) -> bool:
    """Try all; say whether all is as it must be."""
    ways = {way: trials(way, asked.requests, seed) for way, seed in (("plain", 31), ("killed", 32))}
    ports, good = free_ports(2 * asked.ranks), True
    both = agents(asked, ports)
    with contextlib.ExitStack() as stack:
        for agent in (*both["prefill"], *both["decode"]):
            stack.callback(agent.kill)
        engines = {side: stack.enter_context(served(asked, side)) for side in both}
        for child in engines.values():
            report(child.wait("ready", START))
        # The first request of an engine takes seconds, in which others would be given up.
        engines["prefill"].say("add", id="warm", prompt=[1, 2, 3], new_tokens=1)
        engines["prefill"].wait("done", asked.patience, id="warm")
        known = {}
        for some in ways.values():
            for trial in some:
                engines["decode"].say("add", id=f"alone-{trial.name}", prompt=trial.prompt, new_tokens=asked.new_tokens)
                done = engines["decode"].wait("done", asked.patience, id=f"alone-{trial.name}")
                known[trial.name] = done["tokens"]
        pair = Ranks(engines["prefill"], engines["decode"], ports, asked)

        def restart(times: int) -> None:
            if times % 2 == 0:
                agent = both["prefill" if times % 4 else "decode"][times // 4 % asked.ranks]
                agent.kill()
                agent.start()

        for way, some in ways.items():
            result = pair.run(some, known, restart if way == "killed" else None)
            left = {side: [clear(agent, RETENTION * 2) for agent in some_] for side, some_ in both.items()}
            said = {side: counts_of(child, asked.patience) for side, child in engines.items()}
            good = good and result.same == len(some) and not any(any(each) for each in left.values())
            if way == "plain":  # Each rank counts: else all may have been computed, and nothing was tried.
                good = good and said["decode"].get("loaded_requests", 0) >= 0.9 * len(some) * asked.ranks
            print(f"{way}: {result.same} of {len(some)} same, different {result.different}, failed {result.failed}")
            print(f"  held at the end: {left}; abreast: {ABREAST}; so far: {json.dumps(said)}")
    return good


def main() -> int:
    """Do what the command line says."""
    parser = arguments(__doc__)
    parser.add_argument("--ranks", type=int, choices=(1, 2), default=2, help="of tensor parallelism")
    parser.add_argument("--layerwise", action="store_true", help="each layer goes while the next is computed")
    asked = parser.parse_args()
    try:
        return 0 if tried_all(asked) else 1
    except (GoneError, SilentError, kvferry.Error) as error:
        print(f"ranks: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
