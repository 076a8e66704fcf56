"""Children that are talked to by JSON, one message a line: engines, and what stands between two of them."""

from __future__ import annotations

import argparse
import json
import queue
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

# How long a child may take to end by itself, in seconds.
FAREWELL = 20


def run_folder(work: str) -> str:
    """Make a folder in work for the files of this run alone, with links to the models that are there.

    So nothing is written over, whatever directory was named and however often.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=work))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"no folder can be made in it: {error}") from error
    for model in ("model", "small"):
        if (there := Path(work) / model).exists():
            (folder / model).symlink_to(there.resolve())
    return str(folder)


class SilentError(Exception):
    """A child said nothing in time. It may still be at work."""


class GoneError(Exception):
    """A child has ended, or says what no child says: nothing more is to be had of it."""


class Child:
    """A process whose standard input takes messages and whose standard output gives them.

    What it prints to its standard error is kept in a file. Leaving the context closes its input, waits, and kills it if
    it does not end.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        """Start it."""
        self.name = name
        self._log = log
        self._kept: list[dict[str, Any]] = []
        self._heard: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        with log.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 # Who calls says what runs.
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8"
            )
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def __enter__(self) -> Child:
        """Use it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.go_on()
        try:
            self.say("stop")
        except GoneError:
            pass
        else:
            assert self._process.stdin is not None  # noqa: S101 # It was asked for.
            self._process.stdin.close()
        try:
            self._process.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def say(self, op: str, **what: object) -> None:
        """Send a message."""
        assert self._process.stdin is not None  # noqa: S101 # It was asked for.
        try:
            self._process.stdin.write(json.dumps({"op": op, **what}) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._gone("takes no messages") from error

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def pause(self) -> None:
        """Take the cores from it, until it is to go on. What it is told meanwhile waits in its input."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Give them back; nothing if it was not paused."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def wait(self, op: str, patience: float, **what: object) -> dict[str, Any]:
        """Wait for a message of a kind, of which some members are known; others are kept for who waits for them.

        A message {"op": "error"} about the same is an error. patience is in seconds.
        """
        until = time.monotonic() + patience
        for i, message in enumerate(self._kept):
            if self._is(message, op, what):
                return self._told(self._kept.pop(i))
        while True:
            try:
                heard = self._heard.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise SilentError(f"{self.name} said no {op} in {patience:.0f} s; its log is {self._log}") from None
            if heard is None:
                self._heard.put(None)
                raise self._gone(f"ended while its {op} was waited for")
            if self._is(heard, op, what):
                return self._told(heard)
            self._kept.append(heard)

    @staticmethod
    def _is(message: dict[str, Any], op: str, what: dict[str, object]) -> bool:
        return message.get("op") in (op, "error") and all(message.get(k, v) == v for k, v in what.items())

    def _told(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["op"] == "error":
            raise GoneError(f"{self.name}: {message.get('error')}")
        return message

    def _gone(self, how: str) -> GoneError:
        last = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
        return GoneError("\n  ".join([f"{self.name} {how}; its log, {self._log}, ends with:", *last]))

    def _listen(self, source: IO[str] | None) -> None:
        assert source is not None  # noqa: S101 # It was asked for.
        for line in source:
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            if not isinstance(message, dict) or not isinstance(message.get("op"), str):
                message = {"op": "error", "error": f"not a message: {line[:200]!r}"}
            self._heard.put(message)
        self._heard.put(None)
