"""A process's attachment to the agent of its host, as both clients have it."""

from __future__ import annotations

import os
import stat
import warnings
from typing import TYPE_CHECKING, Any, Protocol

from kvferry.asking import described, texts
from kvferry.codes import Code
from kvferry.errors import Why, error_of, lost
from kvferry.limits import parts
from kvferry.link import PATH_MAX
from kvferry.npu import DevicePool, on_device

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from kvferry.asking import Ask
    from kvferry.core import Core
    from kvferry.messages import Attached
    from kvferry.values import Options, OwnMemory, Pinned

SOCKET_VARIABLE = "KVFERRY_SOCKET"


class Driver(Protocol):
    """What serves the core of a client."""

    core: Core

    def pin(self) -> Pinned:
        """Have the core pin its pool."""

    def own_memory(self) -> OwnMemory:
        """Have the core keep its pool."""

    def tell(self, op: str, tell: Callable[..., None], *what: Any) -> None:
        """Have the core told something of a call."""


class Attachment:
    """What a client says of its attachment."""

    def __init__(self, driver: Driver, options: Options) -> None:
        """Be served by a driver."""
        self._driver = driver
        self._options = options

    def __repr__(self) -> str:
        """Say where the agent is, and whether it is there."""
        core = self._driver.core
        info = core.session.info
        if core.forked:
            return described(self, f"of {core.path}, of the process that this one was forked from")
        if core.closing or core.closed:
            return described(self, f"of {core.path}, closed")
        if info is None or not core.session.joined:
            return described(self, f"not attached to {core.where()}")
        pool = f"{info.pages} pages of {info.page_bytes} bytes"
        return described(self, f"attached to {core.path}, {pool}, sides {', '.join(info.sides) or 'none'}")

    @property
    def info(self) -> Attached:
        """What the agent said of itself and its pool when this process attached last."""
        info = self._driver.core.session.info
        if info is None:
            raise lost("info")
        return info

    @property
    def attached(self) -> bool:
        """Whether an agent is there now."""
        return self._driver.core.session.joined

    @property
    def epoch(self) -> int:
        """Counts sessions: handles of another one are void."""
        return self._driver.core.epoch

    def pool(self) -> npt.NDArray[np.uint8]:
        """View all of the pool, a row for each page. Whose bytes may be touched is the caller's to know."""
        core = self._driver.core
        core.usable("pool")
        pool = core.pool
        if pool is None:
            raise lost("pool")
        if isinstance(pool, DevicePool):
            raise on_device("pool", pool)
        return pool.bytes.reshape(pool.count, pool.page_bytes)

    def pin_memory(self) -> Pinned:
        """Have CUDA know the pool, so that copies to and from devices are direct; say what was done.

        It may take a second for each few GB. A pool that is mapped later, of another life of the agent, is pinned by
        itself then.
        """
        self._driver.core.usable("pin_memory")
        return self._driver.pin()

    def own_memory(self) -> OwnMemory:
        """Give the memory of the pool to an engine that computes there, and whose blocks it is (Options.adopts).

        It stays mapped, and what it is, for as long as something looks at it. When the session is over the agent may
        still write into blocks that were registered, until its process has ended, or another session with it begins.
        """
        core = self._driver.core
        core.usable("own_memory")
        if not self._options.adopts:
            raise error_of(
                "own_memory",
                Code.INVALID,
                Why(stage="command", field="adopts", theirs="False", ours="True", remedy="connect with adopts=True"),
            )
        return self._driver.own_memory()

    def _look_attached(self) -> None:
        """Raise where the first attachment did not come about."""
        core = self._driver.core
        if core.refusal is not None:
            raise core.refusal
        if not core.session.joined:
            why = Why(peer="agent", stage="attach", said=core.where(), remedy="start kvferry agent, or wait")
            raise error_of("connect", Code.UNREACHABLE, why)

    def _parts(self, op: str, keys: Sequence[str]) -> list[Sequence[str]]:
        """Cut keys into those of calls that the agent takes."""
        return parts(texts(op, "keys", keys), self._driver.core.session.info)

    def _seconds(self, ask: Ask[Any], bound: float | None = None) -> float:
        """Say how long to wait for an answer."""
        longest = self._options.longest if ask.seconds is None else ask.seconds
        return longest + (self._options.bound if bound is None else bound)


def socket_path(path: str | os.PathLike[str] | None) -> str:
    """Say where the agent's socket is. What can never be a socket, such as a URL or a file, is refused at once."""
    found = os.fspath(path) if path is not None else os.environ.get(SOCKET_VARIABLE, "")
    if not found:
        remedy = f"give the path that kvferry agent was given as --socket, or set {SOCKET_VARIABLE}"
        raise error_of("connect", Code.INVALID, Why(stage="command", field="path", theirs="empty", remedy=remedy))
    if "://" in found:
        remedy = f"give the path alone: {'/' + found.partition('://')[2].lstrip('/')}"
        raise error_of("connect", Code.INVALID, Why(stage="command", field="path", theirs=repr(found), remedy=remedy))
    size = len(os.fsencode(found))
    if size > PATH_MAX:
        remedy = f"a Unix socket's path has no more: give a shorter one, such as /run/user/{os.geteuid()}/kvferry.sock"
        why = Why(stage="command", field="path", theirs=f"{size} bytes", ours=f"at most {PATH_MAX}", remedy=remedy)
        raise error_of("connect", Code.INVALID, why)
    if "\0" in found:
        remedy = "give the path of a file: an agent serves no abstract socket"
        raise error_of("connect", Code.INVALID, Why(stage="command", field="path", theirs=repr(found), remedy=remedy))
    if (kind := _other_than_socket(found)) is not None:
        remedy = (
            "give the path that kvferry agent was given as --socket: it serves nothing at the place of another file"
        )
        theirs = f"{found}, {kind}"
        raise error_of(
            "connect", Code.INVALID, Why(stage="command", field="path", theirs=theirs, ours="a socket", remedy=remedy)
        )
    return found


def _other_than_socket(path: str) -> str | None:
    """Say what is at a path, if that is something that no agent puts a socket in the place of."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return None
    if stat.S_ISSOCK(mode):
        return None
    return "a directory" if stat.S_ISDIR(mode) else "a file" if stat.S_ISREG(mode) else "no socket"


def warn_client(what: str) -> None:
    """Say that a client was forgotten."""
    warnings.warn(f"{what} was forgotten; close it", ResourceWarning, stacklevel=2)
