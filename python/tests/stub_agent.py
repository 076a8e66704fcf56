"""The model agent behind a real socket with real memory, for tests of the clients.

It follows the model's simple rules, or the instructions of a test. It serves one connection at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import threading
from typing import TYPE_CHECKING, Any

from model_agent import ModelAgent

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable
    from types import TracebackType

# How long any step may take, in seconds; long enough for slow machines.
TIMEOUT = 20.0


class StubAgent:
    """See the module. It is a context manager."""

    def __init__(self, folder: pathlib.Path, agent: ModelAgent | None = None) -> None:
        self.path = str(folder / "agent.sock")
        self.agent = agent or ModelAgent()
        self.changed = threading.Condition()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._stopping = self._disconnecting = False
        self.memory = self._make_memory()
        self._start_listening()

    def _make_memory(self) -> int:
        fd = os.memfd_create("pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, self.agent.pages * 4096)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return fd

    def _start_listening(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._stopping = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def page(self, number: int, length: int = 4096) -> bytes:
        """Return the content of a page as the agent sees it."""
        return os.pread(self.memory, length, number * 4096)

    def fill(self, number: int, content: bytes) -> None:
        os.pwrite(self.memory, content, number * 4096)

    def run_on_agent(self, act: Callable[[ModelAgent], Any]) -> None:
        """Run an action of the agent, for example to send a message."""
        with self.changed:
            act(self.agent)
        self._wake_writer.send(b"\0")

    def wait_for(self, condition: Callable[[ModelAgent], Any]) -> Any:
        """Wait for a condition of the agent, and return its value."""
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.agent), TIMEOUT), "it did not come"
            return condition(self.agent)

    def wait_for_call(self, op: str, count: int = 1) -> dict[str, Any]:
        """Wait until an operation was called so many times, and return the last call."""
        found = self.wait_for(lambda agent: [m for m in agent.received if m.get("op") == op][count - 1 : count])
        last: dict[str, Any] = found[0]
        return last

    def disconnect(self) -> None:
        """Cut the connection. The agent continues."""
        self._disconnecting = True
        self._wake_writer.send(b"\0")

    def kill(self) -> None:
        """Stop like a killed agent: the socket has no listener, and all state is lost."""
        self._stopping = True
        self._wake_writer.send(b"\0")
        self._thread.join()
        self._listener.close()
        os.unlink(self.path)
        self.agent.restart()

    def start(self) -> None:
        """Start as a new incarnation with other memory."""
        os.close(self.memory)
        self.memory = self._make_memory()
        self._start_listening()

    def _run(self) -> None:
        while not self._stopping:
            ready, _, _ = select.select((self._listener, self._wake_reader), (), ())
            if self._wake_reader in ready:
                self._wake_reader.recv(4096)
            if self._listener in ready:
                with self._listener.accept()[0] as connection, contextlib.suppress(OSError):
                    self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        with self.changed:
            self.agent.connect()
        try:
            self._exchange_messages(connection)
        finally:
            with self.changed:
                self.agent.disconnect()
                self.changed.notify_all()

    def _exchange_messages(self, connection: socket.socket) -> None:
        fds, self._disconnecting = [self.memory], False
        while not self._stopping and not self._disconnecting:
            with self.changed:
                outgoing = bytes(self.agent.out)
                self.agent.out.clear()
                self.changed.notify_all()
            if outgoing:
                sent = socket.send_fds(connection, [outgoing], fds)
                fds = []
                connection.sendall(outgoing[sent:])
            ready, _, _ = select.select((connection, self._wake_reader), (), ())
            if self._wake_reader in ready:
                self._wake_reader.recv(4096)
            if connection in ready:
                data = connection.recv(65536)
                if not data:
                    return
                with self.changed:
                    self.agent.receive(data)

    def __enter__(self) -> StubAgent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._thread.is_alive():
            self.kill()
        os.close(self.memory)
        self._wake_reader.close()
        self._wake_writer.close()
