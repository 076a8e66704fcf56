"""Two vLLM engines with KvferryConnector and two agents, against the tokens of a single engine.

usage: agents.py --work DIRECTORY --kvferry FILE [--requests N] [--layerwise | --pull [--delayed]] [--beside] ...

The prefill engine computes each prompt and has its agent push the KV to the decode engine's agent, of which the decode
engine takes it. Some requests come to the decode engine first, prompts begin alike, and greedy tokens must be those of
an engine that computes all by itself. Then it is done again

    killed    with agents of either side killed with requests under way, and started anew: what was lost is computed
    aborted   with requests that end while the decode engine waits for their KV
    control   with the decode's pool written over before the engine reads it: its tokens must differ
    prefill   with the prefill engine killed: the decode engine computes what it waits for
    decode    with the decode engine killed while it waits: its agent keeps nothing for it

Exit code: 0 if all is as it must be; 1 if not; 2 if nothing can be said.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import kvferry

from children import GoneError, SilentError
from hosts import add_pulls, agents, clear, connected, counted, nothing_held
from interop import START, Trial, free_ports, prompt, report
from trials import ABREAST, Pair, arguments, references, trials

if TYPE_CHECKING:
    import argparse


def tried_all(asked: argparse.Namespace) -> bool:
    """Try all; say whether all is as it must be."""
    plain, killed = trials("plain", asked.requests, 1), trials("killed", asked.requests, 2)
    aborted, orphans, waiting = (
        trials(way, ABREAST, seed) for way, seed in (("aborted", 3), ("prefill", 4), ("decode", 5))
    )
    if asked.own:  # What is lent is registered for by the prefill's answer alone.
        plain, killed, aborted, orphans = (
            [replace(trial, first="prefill") for trial in some] for some in (plain, killed, aborted, orphans)
        )
    control = Trial("control", prompt(7, 900))
    known = references(asked, [*plain, *killed, *orphans, control])
    ports, good = free_ports(4), True
    more = {"save_patience": 10} if asked.own else {}  # So long blocks stay lent that nobody comes for.
    with agents(asked, ports) as both, contextlib.ExitStack() as stack:
        engines = {
            side: stack.enter_context(
                connected(
                    asked, side, side, agent, beside=asked.beside and side == "prefill", delayed=asked.delayed, **more
                )
            )
            for side, agent in both.items()
        }
        for child in engines.values():
            report(child.wait("ready", START))
        pair = Pair(engines["prefill"], engines["decode"], ports, asked)

        def restart(times: int) -> None:
            """Kill the decode's agent, go on for a while, kill the prefill's, go on, and so forth."""
            if times % 2 == 0:
                agent = both["prefill" if times % 8 == 4 else "decode"]
                agent.kill()
                agent.start()

        for way, some, between in (("plain", plain, None), ("killed", killed, restart)):
            begun = time.monotonic()
            result = pair.run(some, known, between)
            took = time.monotonic() - begun
            left = {side: clear(agent, 20) for side, agent in both.items()}
            said = {side: counted(child, asked.patience) for side, child in engines.items()}
            good = good and result.same == len(some) and not any(left.values())
            if way == "plain":  # Else all may have been computed, and nothing was tried.
                good = good and said["decode"].get("loaded_requests", 0) >= 0.9 * len(some)
            print(f"{way}: {result.same} of {len(some)} same, different {result.different}, failed {result.failed}")
            print(f"  {took:.0f} s; held at the end: {left}")
            for side, counts in said.items():
                print(f"  {side} so far: {json.dumps(counts)}")
            if loaded := said["decode"].get("loaded_bytes"):
                copied = sum(counts.get("copied_bytes", 0) for counts in said.values())
                print(f"  the engines copied {copied / loaded:.2f} bytes for each byte that was loaded")
        pair.aborted(aborted)
        good = nothing_held("aborted", both) and good
        if not asked.delayed:  # Else nothing is at the decode before it is fetched, that could be written over.
            with kvferry.connect(both["prefill" if asked.own else "decode"].socket) as client:
                differs = pair.control(control, known[control.name], client)
            print(f"control: tokens {'differ, as they must' if differs else 'are the same, and must not be'}")
            good = good and differs
        result = pair.prefill_gone(orphans, known)
        print(f"prefill: {result.same} of {len(orphans)} same, different {result.different}, failed {result.failed}")
        good = nothing_held("prefill", both) and good and result.same == len(orphans)
        if not asked.own:  # Else nobody is left who could lend something that it would wait for.
            pair.decode_gone(waiting)
        return nothing_held("decode", both) and good


def main() -> int:
    """Do what the command line says."""
    parser = arguments(__doc__)
    add_pulls(parser)
    parser.add_argument("--layerwise", action="store_true", help="each layer goes while the next is computed")
    parser.add_argument("--own", action="store_true", help="the engines' own blocks are registered, and not copied")
    parser.add_argument("--beside", action="store_true", help="the prefill engine has another connector too")
    asked = parser.parse_args()
    if asked.own:
        if asked.layerwise or asked.pull:
            parser.error("blocks go when all is computed, and are pushed: --own excludes --layerwise and --pull")
        asked.num_blocks = asked.num_blocks or 256
    if asked.layerwise and asked.pull:
        parser.error("layers are pushed: --layerwise and --pull exclude each other")
    try:
        return 0 if tried_all(asked) else 1
    except (GoneError, SilentError, kvferry.Error) as error:
        print(f"agents: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
