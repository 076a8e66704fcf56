"""Starts an agent, for tests and for a single engine on its host.

In production the service manager starts the agent, so that it outlives engines.
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
from kvferry.errors import Error, ErrorDetails

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

BINARY_VARIABLE = "KVFERRY_BIN"

_LINE_MAX = 64 << 10


def bundled_binary() -> str | None:
    """Return the path of the command in the wheel; None if the package was installed from source."""
    binary = pathlib.Path(__file__).parent / "bin" / "kvferry"
    return str(binary) if os.access(binary, os.X_OK) else None


def find_binary() -> str:
    """Return the path of the command: KVFERRY_BIN, else the bundled command, else kvferry on the PATH.

    Raises:
        Error: there is no such command (NOT_FOUND).
    """
    configured = os.environ.get(BINARY_VARIABLE, "")
    found = shutil.which(configured) if configured else bundled_binary() or shutil.which("kvferry")
    if found is None:
        details = ErrorDetails(
            field="kvferry", theirs=configured or "nowhere on the PATH", remedy=f"install it, or set {BINARY_VARIABLE}"
        )
        raise Error("start", Code.NOT_FOUND, details)
    return found


class Agent:
    """An agent that this process started. It is a context manager that stops the agent at the end."""

    def __init__(self, process: subprocess.Popen[bytes], announcement: dict[str, Any]) -> None:
        """Take ownership of a process that serves."""
        self.process = process
        # The line of JSON that the agent printed when it began to serve.
        self.announcement = announcement
        self.socket = str(announcement.get("socket", ""))
        # The ports where its node listens for peers; 0 if it does not.
        self.init_port = int(announcement.get("init_port", 0))
        self.alloc_port = int(announcement.get("alloc_port", 0))

    def stop(self, timeout: float = 30.0) -> int:
        """Ask the agent to stop, kill it after the timeout, and return the exit status."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return self._reap()

    def kill(self) -> None:
        """Kill the agent, as a crash would."""
        self.process.kill()
        self._reap()

    def _reap(self) -> int:
        status = self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status

    def __enter__(self) -> Agent:
        """Return the agent; it is stopped at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Stop the agent."""
        self.stop()


def start(
    config: str | os.PathLike[str],
    socket: str | os.PathLike[str],
    *,
    binary: str | None = None,
    timeout: float = 30.0,
    stderr: Any = None,
    variables: Mapping[str, str] | None = None,
) -> Agent:
    """Run kvferry agent with a configuration, and return when it serves.

    Args:
        config: the configuration file.
        socket: where the agent serves engines.
        binary: the command; None to find it.
        timeout: how long the agent may take to start, in seconds.
        stderr: where its log goes; this process's stderr by default.
        variables: environment variables of the agent beside those of this process, such as LMCACHE_EXTRA_CONFIG.

    Raises:
        Error: the agent did not start.
    """
    command = [binary or find_binary(), "agent", "--config", os.fspath(config), "--socket", os.fspath(socket)]
    process = subprocess.Popen(  # noqa: S603 (The command is the caller's.)
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, **(variables or {})},
    )
    try:
        return Agent(process, _read_announcement(process, timeout))
    except BaseException:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        raise


def _read_announcement(process: subprocess.Popen[bytes], timeout: float) -> dict[str, Any]:
    """Read the line of JSON that the agent prints when it serves."""
    if process.stdout is None:
        raise AssertionError("BUG: the process has no output")
    fd, line, deadline = process.stdout.fileno(), b"", time.monotonic() + timeout
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while b"\n" not in line:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not poll.poll(remaining * 1000):
            raise _start_error(Code.EXPIRED, f"it does not serve after {timeout:g} s")
        piece = os.read(fd, 4096)
        if not piece:
            raise _exit_error(process, deadline)
        line += piece
        if len(line) > _LINE_MAX:
            raise _start_error(Code.MALFORMED, "its first line has no end")
    try:
        announcement = json.loads(line.split(b"\n", 1)[0])
    except ValueError:
        announcement = None
    if not isinstance(announcement, dict):
        raise _start_error(Code.MALFORMED, "its first line is not a JSON object")
    return announcement


def _exit_error(process: subprocess.Popen[bytes], deadline: float) -> Error:
    """Create the error of a process that closed its output. It may still run."""
    try:
        return _start_error(Code.FAULTED, f"it ended with status {process.wait(max(0.0, deadline - time.monotonic()))}")
    except subprocess.TimeoutExpired:
        return _start_error(Code.EXPIRED, "it closed its output and still runs")


def _start_error(code: Code, reason: str) -> Error:
    return Error("start", code, ErrorDetails(peer="agent", said=reason, remedy="see its log"))
