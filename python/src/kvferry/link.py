"""One connection to an agent. Nothing here ever waits."""

from __future__ import annotations

import array
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvferry.session import Session

_PIECE = 256 << 10
# The agent sends one descriptor. More than a few are not taken.
_FDS = 4


class LinkError(OSError):
    """The connection is gone."""


class Link:
    """A connected socket, and the descriptors that came over it."""

    def __init__(self, sock: socket.socket) -> None:
        """Take a connected socket, and own it."""
        sock.setblocking(False)
        self._sock = sock
        self._fds: list[int] = []

    @classmethod
    def connect(cls, path: str) -> Link:
        """Connect to the agent's socket. A Unix socket answers at once, also where nobody listens."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.connect(path)
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    def fileno(self) -> int:
        """Give the descriptor to poll."""
        return self._sock.fileno()

    def receive(self) -> bytes | None:
        """Take what is there; None where nothing is. It raises LinkError at the end of the stream."""
        space = socket.CMSG_SPACE(_FDS * array.array("i").itemsize)
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(_PIECE, space, socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise LinkError(f"the connection broke: {error}") from error
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
                self._fds += fds
        if flags & socket.MSG_CTRUNC:
            raise LinkError("the agent sent more descriptors than one")
        if not data:
            raise LinkError("the agent closed the connection")
        return data

    def take_fd(self) -> int | None:
        """Give the first descriptor that came, which is the caller's then, and close all others."""
        fd = self._fds.pop(0) if self._fds else None
        self.drop_fds()
        return fd

    def drop_fds(self) -> None:
        """Close descriptors that nobody took."""
        while self._fds:
            os.close(self._fds.pop())

    def send(self, session: Session) -> bool:
        """Send what a session has to say, as much as goes; say whether all of it went."""
        while True:
            with session.outgoing() as rest:
                if not rest:
                    return True
                try:
                    count = self._sock.send(rest, socket.MSG_NOSIGNAL)
                except (BlockingIOError, InterruptedError):
                    return False
                except OSError as error:
                    raise LinkError(f"the connection broke: {error}") from error
            session.sent(count)

    def close(self) -> None:
        """Close it."""
        self.drop_fds()
        self._sock.close()


class Pace:
    """When to try to connect: at once after a connection that worked, then less and less often."""

    FIRST, MOST = 0.02, 1.0

    def __init__(self) -> None:
        """Begin as after a connection that worked."""
        self._tries = 0

    def delay(self) -> float:
        """Give the pause before the next attempt."""
        pause = 0.0 if not self._tries else min(self.MOST, self.FIRST * 2.0 ** (self._tries - 1))
        self._tries = min(self._tries + 1, 16)
        return pause

    def worked(self) -> None:
        """Know that an agent answered something."""
        self._tries = 0
