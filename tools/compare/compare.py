"""Measure kvferry beside NIXL, Mooncake and what a machine does without any of them, in one interleaved run.

Each pair of processes that moves memory is made anew for each measurement, and ends after it: what others do with
threads that never sleep disturbs nobody else's turn. Every round has all measurements, in an order that is drawn. A
figure is the median over the rounds, a ratio that of the ratios within one round.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import report
from agents import python_calls
from ends import Ends, Pair, beside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOVED = 64 << 20  # of each move in bulk
SIZES = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20]
SMALL = 4096
PAUSE_US = 1000

BULK = ["copy", "kvferry-shm", "nixl", "tcp4", "kvferry-tcp", "nixl-tcp", "mooncake"]
# A put of one small chunk: the kind of ends, and kvferry's poll.us.
PUTS = [
    ("kvferry-shm", 0), ("kvferry-tcp", 0), ("kvferry-shm", 2000), ("kvferry-tcp", 2000), ("nixl", 0), ("nixl-tcp", 0),
    ("mooncake", 0), ("trip", 0), ("libzmq-trip", 0),
]  # fmt: skip
BESIDE = [("kvferry-shm", 0), ("kvferry-shm", 2000), ("nixl", 0), ("mooncake", 0)]
FIRST = ["kvferry-shm", "kvferry-tcp", "nixl", "nixl-tcp", "mooncake"]
IDLE = [("kvferry-shm", 0), ("kvferry-shm", 2000), ("nixl", 0), ("mooncake", 0)]

Figures = dict[str, Any]


def bulk(ends: Ends, kind: str, size: int) -> Figures:
    """Move 64 MiB again and again; give the median's rate in GB/s, and processor seconds of both ends for a GiB."""
    moves, chunks = 15, MOVED // size
    with Pair(ends, {"kind": kind, "bytes": size, "window": 16}) as pair:
        pair.work(3, chunks)
        times, cpu = pair.work(moves, chunks)
    return {"gbps": MOVED / statistics.median(times), "cpu_s": cpu / 1e6 / moves * (1 << 30) / MOVED}


def small(ends: Ends, kind: str, poll: int, pause: int, load: str = "") -> Figures:
    """Put one chunk of 4 KiB after the other; give times of one in µs, and processor time of both ends."""
    puts = 2000
    with beside(ends, load), Pair(ends, {"kind": kind, "bytes": SMALL, "poll_us": poll, "window": 16}) as pair:
        pair.work(50, 1)
        times, cpu = pair.work(puts, 1, pause)
    times.sort()
    at = {name: times[int(puts * part)] / 1e3 for name, part in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}
    return {**at, "cpu_us": cpu / puts}


def first(ends: Ends, kind: str) -> Figures:
    """Move one chunk of 4 KiB between two ends that have not met yet; give its time in ms."""
    with Pair(ends, {"kind": kind, "bytes": SMALL, "window": 16}) as pair:
        times, _ = pair.work(1, 1)
    return {"ms": times[0] / 1e6}


def idle(ends: Ends, kind: str, poll: int) -> Figures:
    """Let two ends that know each other wait; give the part of a core that they use."""
    seconds = 2
    with Pair(ends, {"kind": kind, "bytes": SMALL, "poll_us": poll, "window": 16}) as pair:
        pair.work(20, 1)
        _, cpu = pair.work(0, 1, seconds * 1_000_000)
    return {"cores": cpu / 1e6 / seconds}


def measurements(ends: Ends) -> Iterator[tuple[str, Callable[[], Figures]]]:
    """Name each measurement of a round."""
    for kind in BULK:
        for size in SIZES:
            yield f"bulk {kind} {size}", partial(bulk, ends, kind, size)
    for kind, poll in PUTS:
        for pause in (PAUSE_US, 0):
            yield f"small {kind} {poll} {pause}", partial(small, ends, kind, poll, pause)
    for kind, poll in BESIDE:
        for load in ("bulk", "busy"):
            yield f"beside {kind} {poll} {load}", partial(small, ends, kind, poll, PAUSE_US, load)
    for kind, poll in IDLE:
        yield f"idle {kind} {poll}", partial(idle, ends, kind, poll)
    for kind in FIRST:
        yield f"first {kind} 0", partial(first, ends, kind)
    for poll in (0, 2000):
        yield f"python {poll}", partial(python_calls, ends.kvferry, poll)


def run(ends: Ends, rounds: int, only: str) -> dict[str, list[Figures]]:
    """Do all of it, so many times."""
    found: dict[str, list[Figures]] = {}
    todo = [(name, do) for name, do in measurements(ends) if only in name]
    shown = "\r\033[K" if sys.stderr.isatty() else ""
    for turn in range(rounds):
        random.shuffle(todo)
        for at, (name, do) in enumerate(todo):
            if shown:
                sys.stderr.write(f"{shown}round {turn + 1} of {rounds}, {at + 1} of {len(todo)}: {name}")
            found.setdefault(name, []).append(do())
        print(f"{shown}round {turn + 1} of {rounds} done", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="example: compare.py --peer .cache/compare/peer --kvferry bin/kvferry --rounds 5 --write docs",
    )
    parser.add_argument("--peer", required=True, help="the program of tools/compare/peer")
    parser.add_argument("--kvferry", required=True, help="the command kvferry, for agents")
    parser.add_argument("--rounds", type=int, default=5, help="how often all is measured (5)")
    parser.add_argument("--only", default="", help="measure only what has this in its name, such as 'small nixl'")
    parser.add_argument("--json", type=pathlib.Path, help="where to write all figures of all rounds")
    parser.add_argument("--again", type=pathlib.Path, help="measure nothing, and report what --json wrote")
    parser.add_argument("--write", type=pathlib.Path, help="the folder docs, to write tables and the plot there")
    given = parser.parse_args()
    if given.again:
        found = json.loads(given.again.read_text())
    else:
        os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
        ends = Ends(
            given.peer, [sys.executable, str(pathlib.Path(__file__).with_name("mooncake_end.py"))], given.kvferry
        )
        found = run(ends, given.rounds, given.only)
    if given.json:
        given.json.write_text(json.dumps(found))
    text = report.tables(found)
    print(text)
    if given.write:
        report.write(given.write, text, found)


if __name__ == "__main__":
    main()
