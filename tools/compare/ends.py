"""Pairs of processes that move memory, one at each end, told by lines of JSON."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Ends:
    """The programs that are ends."""

    peer: str
    mooncake: list[str]
    kvferry: str

    def of(self, kind: str) -> list[str]:
        """Give the program of a kind of ends."""
        return self.mooncake if kind == "mooncake" else [self.peer]


class EndError(RuntimeError):
    """An end has failed."""


class _End:
    """One process."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        # What libraries print there is of interest only where an end fails.
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._told: list[str] = []
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def _read_errors(self) -> None:
        for line in self._process.stderr or ():
            self._told = [*self._told[-20:], line]

    def say(self, what: dict[str, int]) -> None:
        """Send a line."""
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()

    def hear(self) -> Any:  # noqa: ANN401
        """Take the next line of JSON. Libraries write others there, too."""
        while self._process.stdout is not None and (line := self._process.stdout.readline()):
            with contextlib.suppress(ValueError):
                return json.loads(line)
        self._reader.join(1)
        raise EndError(f"{' '.join(self._command)[:200]} ended:\n{''.join(self._told)}")

    def end(self) -> None:
        """Have it end, or kill it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Pair:
    """A target, and an initiator that moves memory into it."""

    def __init__(self, ends: Ends, setup: dict[str, Any]) -> None:
        """Start both."""
        command, told = ends.of(setup["kind"]), json.dumps(setup)
        self._target = _End([*command, "target", told])
        where = self._target.hear()
        self._initiator = _End([*command, "initiator", told, json.dumps(where)])
        self._initiator.hear()

    def __enter__(self) -> Pair:
        """End both at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End both."""
        self._initiator.end()
        self._target.end()

    def work(self, moves: int, chunks: int, pause_us: int = 0) -> tuple[list[int], int]:
        """Move so many chunks so many times; give the times in ns, and the processor time of both ends in µs."""
        what = {"moves": moves, "chunks": chunks, "pause_us": pause_us}
        for end in (self._target, self._initiator):
            end.say(what)
        moved, taken = self._initiator.hear(), self._target.hear()
        return moved["ns"], moved["cpu_us"] + taken["cpu_us"]


@contextlib.contextmanager
def beside(ends: Ends, load: str) -> Iterator[None]:
    """Have a machine do something else meanwhile: bulk is another pair of nodes, busy a process that computes."""
    if load == "busy":
        with subprocess.Popen([ends.peer, "busy"]) as busy:  # noqa: S603
            yield
            busy.kill()
        return
    if load != "bulk":
        yield
        return
    size = 1 << 20
    over, begun = threading.Event(), threading.Event()

    def move() -> None:
        with Pair(ends, {"kind": "kvferry-shm", "bytes": size, "window": 16}) as pair:
            while not over.is_set():
                pair.work(10, (64 << 20) // size)
                begun.set()

    mover = threading.Thread(target=move)
    mover.start()
    begun.wait(30)
    yield
    over.set()
    mover.join()
