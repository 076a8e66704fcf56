"""Requests that several ways serve in turns, how soon each has its first token, and what that comes to."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from children import Child, GoneError
from interop import START, prompt, report

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

BLOCK = 128

# Copies that a plane makes of each byte: of shm the receiver's, of tcp into the sender's socket and out of the other.
PLANES = {"shm": 1, "tcp": 2}


@dataclass(frozen=True)
class Served:
    """How one request went: seconds to the first token, and how many bytes crossed the loopback meanwhile."""

    way: str
    length: int
    round: int
    whole: float
    decode: float
    loopback: int


@dataclass(frozen=True)
class Spread:
    """A median, and between what the values lie."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Look at some values."""
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        """Write it with the digits that a reader needs."""
        digits = 2 if self.median < 10 else 0
        return f"{self.median:.{digits}f} ({self.least:.{digits}f} to {self.most:.{digits}f})"


def ratios(served: Sequence[Served], way: str, base: str, length: int, what: str) -> Spread | None:
    """Compare two ways round by round: each pair of times is of the same prompt. None if no round has both."""
    times: dict[str, dict[int, float]] = {way: {}, base: {}}
    for one in served:
        if one.length == length and one.way in times:
            # Who computes all has no prefill elsewhere: both times are the whole.
            times[one.way][one.round] = getattr(one, what)
    common = times[way].keys() & times[base].keys()
    return Spread.of([times[way][r] / times[base][r] for r in common]) if common else None


def table(served: Sequence[Served], moved: dict[str, str], token_bytes: int) -> str:
    """Write all down, as a table of Markdown, with what is known of how each way moves bytes."""
    rows = [
        "| prompt | way | whole, ms | of computing | decode, ms | of computing | of NixlConnector | loopback | bytes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for length, way in sorted({(one.length, one.way) for one in served}):
        mine = [one for one in served if (one.length, one.way) == (length, way)]
        cells = [
            length,
            way,
            Spread.of([one.whole * 1000 for one in mine]),
            ratios(served, way, "computed", length, "whole"),
            Spread.of([one.decode * 1000 for one in mine]),
            ratios(served, way, "computed", length, "decode"),
            ratios(served, way, "nixl-pull", length, "decode"),
            Spread.of([one.loopback / kv_bytes(length, token_bytes) for one in mine]),
            moved.get(way),
        ]
        rows.append("| " + " | ".join("" if cell is None else str(cell) for cell in cells) + " |")
    return "\n".join(rows)


def kv_bytes(length: int, token_bytes: int) -> int:
    """Say how many bytes of KV a prompt has: whole blocks."""
    return -(-length // BLOCK) * BLOCK * token_bytes


def copied(counted: dict[str, float], delivered: int, plane: str) -> str:
    """Say what is known of how often each byte that was delivered was copied, of what connectors counted."""
    if loaded := counted.get("loaded_bytes"):
        saved = counted.get("saved_bytes", 0)
        return f"{(saved * (1 + PLANES[plane]) + loaded) / delivered:.2f} copies"
    if transferred := counted.get("nixl_bytes_transferred_sum"):
        return f"{transferred / delivered:.2f} by libnixl"
    return ""


def order(ways: Sequence[str], round_: int) -> list[str]:
    """Say in which order ways take their turns in a round: no one of them always follows the same one."""
    drawn = list(ways)
    random.Random(round_).shuffle(drawn)  # noqa: S311 # Nothing is to be kept secret.
    return drawn


def loopback() -> int:
    """Count the bytes that the loopback has carried."""
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == "lo":
            return int(counts.split()[0])
    return 0


def unpin(child: Child) -> None:
    """Let every thread of a process run on every core that this one may use."""
    for thread in Path(f"/proc/{child.pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), os.sched_getaffinity(0))


class Way:
    """One or two engines that serve requests together. Between requests they are paused."""

    def __init__(self, name: str, engines: dict[str, Child], asked: argparse.Namespace) -> None:
        """Serve by these engines: prefill and decode, or a single one."""
        self.name = name
        self.engines = engines
        self._asked = asked

    def over(self, plane: str) -> None:
        """Use one of kvferry's planes; others have their own."""

    def ready(self) -> None:
        """Wait until they have started."""
        for child in self.engines.values():
            report(child.wait("ready", START))
            unpin(child)
            child.pause()

    def serve(self, tokens: list[int], seed: int, round_: int, *, warm: bool = False) -> tuple[Served, list[int]]:
        """Serve one request; give its times and its tokens. To warm up, it may fail."""
        name = f"{self.name}-{seed}"
        with self._going():
            crossed = loopback()
            begun = sent = time.monotonic()
            if "single" in self.engines:
                done = self._have("single", name, tokens, None)
            else:
                params = self._have("prefill", name, tokens, self.params(name), new_tokens=1)["kv_transfer_params"]
                sent = time.monotonic()
                done = self._have("decode", name, tokens, params)
            crossed = loopback() - crossed
        if warm:
            return Served(self.name, len(tokens), round_, 0, 0, crossed), []
        if done["finish_reason"] != "length":  # Of a decode engine: its KV did not come.
            raise GoneError(f"{self.name}: {name} finished for {done['finish_reason']}")
        first = done["first_at"]
        return Served(self.name, len(tokens), round_, first - begun, first - sent, crossed), done["tokens"]

    def counted(self, seed: int) -> dict[str, float]:
        """Add up what connectors count. vLLM asks them as it steps: a request whose KV goes nowhere has it do so."""
        found: dict[str, float] = {}
        with self._going():
            for side, child in self.engines.items():
                self._have(side, f"{self.name}-{seed}-{side}", prompt(seed, BLOCK), None)
                child.say("metrics")
                for word, value in child.wait("metrics", self._asked.patience)["counts"].items():
                    found[word] = found.get(word, 0) + value
        return found

    def params(self, name: str) -> dict[str, Any]:
        """Say what the prefill engine is told: vLLM's own words."""
        del name
        return {"do_remote_decode": True, "do_remote_prefill": False}

    def _have(
        self, side: str, name: str, tokens: list[int], params: dict[str, Any] | None, new_tokens: int | None = None
    ) -> dict[str, Any]:
        child = self.engines[side]
        count = self._asked.new_tokens if new_tokens is None else new_tokens
        child.say("add", id=name, prompt=tokens, new_tokens=count, kv_transfer_params=params)
        return child.wait("done", self._asked.patience, id=name)

    @contextlib.contextmanager
    def _going(self) -> Iterator[None]:
        for child in self.engines.values():
            child.go_on()
        yield
        for child in self.engines.values():
            child.pause()


def measured(
    asked: argparse.Namespace, ways: Sequence[Way], plane: str, seeds: Iterator[int], token_bytes: int
) -> tuple[list[Served], dict[str, str]]:
    """Serve all prompts over a plane; give what was served, and what each way counted."""
    for way in ways:
        way.over(plane)
        for _ in range(asked.warm):
            seed = next(seeds)
            way.serve(prompt(seed, max(asked.lengths)), seed, 0, warm=True)
    before = {way.name: way.counted(next(seeds)) for way in ways}
    served, by_name = [], {way.name: way for way in ways}
    for round_, length in itertools.product(range(asked.rounds), asked.lengths):
        seed, tokens = next(seeds), {}
        for name in order(list(by_name), seed):
            one, tokens[name] = by_name[name].serve(prompt(seed, length), seed, round_)
            served.append(one)
            report({"round": round_, "length": length, "way": name, "whole": one.whole, "decode": one.decode})
        if len(set(map(tuple, tokens.values()))) > 1:
            raise GoneError(f"tokens differ: {tokens}")
    delivered = asked.rounds * sum(kv_bytes(length, token_bytes) for length in asked.lengths)
    moved = {}
    for name, way in by_name.items():
        after = way.counted(next(seeds))
        counted = {word: value - before[name].get(word, 0) for word, value in after.items()}
        report({"plane": plane, "way": name, "delivered": delivered, "counted": counted})
        moved[name] = copied(counted, delivered, plane)
    return served, moved
