"""One connection to an agent. Nothing here ever waits."""

from __future__ import annotations

import array
import os
import pathlib
import socket
import stat
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvferry.session import Session

# How much is taken at once.
PIECE = 256 << 10
# The agent sends one descriptor. More than a few are not taken.
_FDS = 4


# How many bytes of a path fit into a socket's address, beside the zero that ends it.
PATH_MAX = 107

# Process, user and group, as the kernel writes them.
_CREDENTIALS = struct.Struct("3i")
# What the kernel calls every user whom this process's user namespace has no number for.
_OVERFLOW = pathlib.Path("/proc/sys/kernel/overflowuid")


class LinkError(OSError):
    """The connection is gone."""


class StrangerError(OSError):
    """Another user's process serves the socket, or its file belongs to another user."""

    def __init__(self, what: str, uid: int) -> None:
        """Say which of them belongs to whom."""
        super().__init__(f"{what} belongs to user {uid}, and this process to user {os.geteuid()}")
        self.what = what
        self.uid = uid


class Link:
    """A connected socket, and the descriptors that came over it."""

    def __init__(self, sock: socket.socket, server: int = 0) -> None:
        """Take a connected socket, and own it."""
        sock.setblocking(False)
        self._sock = sock
        self._fds: list[int] = []
        # The process that serves the socket; 0 where it has no number in this PID namespace.
        self.server = server

    @classmethod
    def connect(cls, path: str) -> Link:
        """Connect to the agent's socket. A Unix socket answers at once, also where nobody listens.

        Nothing is sent to a process of another user but root: it raises a StrangerError.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.connect(path)
            server = _admit(sock, path)
        except BaseException:
            sock.close()
            raise
        return cls(sock, server)

    def fileno(self) -> int:
        """Give the descriptor to poll."""
        return self._sock.fileno()

    def receive(self) -> bytes | None:
        """Take what is there; None where nothing is. It raises LinkError at the end of the stream."""
        space = socket.CMSG_SPACE(_FDS * array.array("i").itemsize)
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(PIECE, space, socket.MSG_CMSG_CLOEXEC)
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


def _admit(sock: socket.socket, path: str) -> int:
    """Check who serves a socket, by what the kernel noted when that process began to listen; give its number.

    The file of the socket must be that user's or root's, too: else its owner could put another in its place.
    """
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    _trust("the process", uid)
    about = os.stat(path)
    if not stat.S_ISSOCK(about.st_mode):
        raise LinkError(f"{path} was a socket, and is none any more")
    _trust("the socket", about.st_uid)
    return int(pid)


def _trust(what: str, uid: int) -> None:
    """Refuse users other than this process's and root. One without a number here may be anybody."""
    if uid not in (os.geteuid(), 0) or uid == _overflow():
        raise StrangerError(what, uid)


def _overflow() -> int:
    try:
        return int(_OVERFLOW.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 65534


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
