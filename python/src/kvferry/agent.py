"""Starting an agent, where nobody else does: for tests, and for one engine alone on its host.

In production the agent is started by whoever starts services there. It then outlives engines, which is its use.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

from kvferry.codes import Code
from kvferry.errors import Error, Why

if TYPE_CHECKING:
    from types import TracebackType

BINARY_VARIABLE = "KVFERRY_BIN"

_LINE_MAX = 64 << 10


def carried() -> str | None:
    """Find the command that the wheel carries; a package that was installed from its source has none."""
    binary = pathlib.Path(__file__).parent / "bin" / "kvferry"
    return str(binary) if os.access(binary, os.X_OK) else None


def find() -> str:
    """Find the command: what KVFERRY_BIN names, else what the wheel carries, else kvferry on the PATH."""
    named = os.environ.get(BINARY_VARIABLE, "")
    found = shutil.which(named) if named else carried() or shutil.which("kvferry")
    if found is None:
        why = Why(
            field="kvferry", theirs=named or "nowhere on the PATH", remedy=f"install it, or set {BINARY_VARIABLE}"
        )
        raise Error("start", Code.NOT_FOUND, why)
    return found


class Agent:
    """An agent that this process started. It is a context manager; at its end the agent is stopped."""

    def __init__(self, process: subprocess.Popen[bytes], said: dict[str, Any]) -> None:
        """Own a process that serves."""
        self.process = process
        # All that it said of itself.
        self.said = said
        self.socket = str(said.get("socket", ""))
        # Where its node listens for peers; 0 where it does not.
        self.init_port = int(said.get("init_port", 0))
        self.alloc_port = int(said.get("alloc_port", 0))

    def stop(self, patience: float = 30.0) -> int:
        """Ask it to end, and after so many seconds make it. It gives the exit status."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return self._ended()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.kill()
        self._ended()

    def _ended(self) -> int:
        status = self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status

    def __enter__(self) -> Agent:
        """Stop it at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Stop it."""
        self.stop()


def start(
    config: str | os.PathLike[str],
    socket: str | os.PathLike[str],
    *,
    binary: str | None = None,
    timeout: float = 30.0,
    stderr: Any = None,
) -> Agent:
    """Run kvferry agent with a configuration, and return when it serves.

    What it logs goes to stderr, this process's own by default.
    """
    command = [binary or find(), "agent", "--config", os.fspath(config), "--socket", os.fspath(socket)]
    process = subprocess.Popen(  # noqa: S603 (The command is the caller's.)
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr
    )
    try:
        return Agent(process, _first_line(process, timeout))
    except BaseException:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        raise


def _first_line(process: subprocess.Popen[bytes], timeout: float) -> dict[str, Any]:
    """Read what it says when it serves: one line of JSON."""
    if process.stdout is None:
        raise AssertionError("BUG: the process has no output")
    fd, line, until = process.stdout.fileno(), b"", time.monotonic() + timeout
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while b"\n" not in line:
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise _no_agent(Code.EXPIRED, f"it does not serve after {timeout:g} s")
        piece = os.read(fd, 4096)
        if not piece:
            raise _silent(process, until)
        line += piece
        if len(line) > _LINE_MAX:
            raise _no_agent(Code.MALFORMED, "its first line has no end")
    try:
        said = json.loads(line.split(b"\n", 1)[0])
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise _no_agent(Code.MALFORMED, "its first line is no JSON object")
    return said


def _silent(process: subprocess.Popen[bytes], until: float) -> Error:
    """Make the error of a process that says nothing more. It may have closed its output, and go on."""
    try:
        return _no_agent(Code.FAULTED, f"it ended with status {process.wait(max(0.0, until - time.monotonic()))}")
    except subprocess.TimeoutExpired:
        return _no_agent(Code.EXPIRED, "it closed its output, and does not end")


def _no_agent(code: Code, said: str) -> Error:
    return Error("start", code, Why(peer="agent", said=said, remedy="see what it logged"))
