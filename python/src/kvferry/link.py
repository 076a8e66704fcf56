"""One connection to an agent. No function here blocks."""

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

# How many bytes are read at once.
READ_SIZE = 256 << 10
# The agent sends one descriptor; at most this many are accepted.
_MAX_FDS = 4


# The longest path in bytes that fits into a socket address, without the terminating zero.
PATH_MAX = 107

# Process, user and group, in the kernel's layout.
_CREDENTIALS = struct.Struct("3i")
# The user id that the kernel reports for users without a number in this user namespace.
_OVERFLOW_UID_FILE = pathlib.Path("/proc/sys/kernel/overflowuid")


class LinkError(OSError):
    """The connection is broken."""


class ForeignUserError(OSError):
    """Another user's process serves the socket, or another user owns its file."""

    def __init__(self, subject: str, uid: int) -> None:
        """Name the process or the socket, and its user."""
        super().__init__(f"{subject} belongs to user {uid}, and this process to user {os.geteuid()}")
        self.subject = subject
        self.uid = uid


class Link:
    """A connected socket, and the descriptors received over it."""

    def __init__(self, sock: socket.socket, server_pid: int = 0) -> None:
        """Take ownership of a connected socket."""
        sock.setblocking(False)
        self._sock = sock
        self._fds: list[int] = []
        # The process id of the server; 0 if it has none in this PID namespace.
        self.server_pid = server_pid

    @classmethod
    def connect(cls, path: str) -> Link:
        """Connect to the agent's socket. A Unix socket connects or fails at once.

        Raises:
            ForeignUserError: the server belongs to a user other than this process's user and root. Nothing was sent.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            sock.connect(path)
            server_pid = _check_server(sock, path)
        except BaseException:
            sock.close()
            raise
        return cls(sock, server_pid)

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._sock.fileno()

    def receive(self) -> bytes | None:
        """Return the available bytes; None if there are none. It raises LinkError at the end of the stream."""
        space = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(READ_SIZE, space, socket.MSG_CMSG_CLOEXEC)
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
        """Return the first received descriptor, which the caller then owns, and close all others."""
        fd = self._fds.pop(0) if self._fds else None
        self.close_fds()
        return fd

    def close_fds(self) -> None:
        """Close the descriptors that were not taken."""
        while self._fds:
            os.close(self._fds.pop())

    def send(self, session: Session) -> bool:
        """Send the pending bytes of a session, as many as possible, and report whether all of them were sent."""
        while True:
            with session.pending_bytes() as pending:
                if not pending:
                    return True
                try:
                    count = self._sock.send(pending, socket.MSG_NOSIGNAL)
                except (BlockingIOError, InterruptedError):
                    return False
                except OSError as error:
                    raise LinkError(f"the connection broke: {error}") from error
            session.mark_sent(count)

    def close(self) -> None:
        """Close the connection."""
        self.close_fds()
        self._sock.close()


def _check_server(sock: socket.socket, path: str) -> int:
    """Check the user of the server, as the kernel recorded it when the process began to listen; return the process id.

    The socket's file must belong to the same user or to root, because its owner could replace it.
    """
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    _check_user("the process", uid)
    status = os.stat(path)
    if not stat.S_ISSOCK(status.st_mode):
        raise LinkError(f"{path} is not a socket any more")
    _check_user("the socket", status.st_uid)
    return int(pid)


def _check_user(subject: str, uid: int) -> None:
    """Raise ForeignUserError unless a user is root or this process's user. The overflow id can be any user."""
    if uid not in (os.geteuid(), 0) or uid == _overflow_uid():
        raise ForeignUserError(subject, uid)


def _overflow_uid() -> int:
    try:
        return int(_OVERFLOW_UID_FILE.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 65534


class ReconnectBackoff:
    """The delay before connection attempts: none after a connection that worked, then increasing."""

    MIN_DELAY, MAX_DELAY = 0.02, 1.0

    def __init__(self) -> None:
        """Start without a delay."""
        self._attempts = 0

    def next_delay(self) -> float:
        """Return the delay before the next attempt."""
        delay = 0.0 if not self._attempts else min(self.MAX_DELAY, self.MIN_DELAY * 2.0 ** (self._attempts - 1))
        self._attempts = min(self._attempts + 1, 16)
        return delay

    def reset(self) -> None:
        """Reset the delay, because an agent replied."""
        self._attempts = 0
