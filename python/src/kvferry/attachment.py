"""A process's attachment to the agent of its host, as both clients have it."""

from __future__ import annotations

import os
import stat
import warnings
from typing import TYPE_CHECKING, Any, Protocol

from kvferry.call_spec import check_texts, format_repr
from kvferry.codes import Code
from kvferry.errors import ErrorDetails, lost_error, make_error
from kvferry.limits import split_keys
from kvferry.link import PATH_MAX
from kvferry.npu import DevicePool, device_memory_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from kvferry.call_spec import CallSpec
    from kvferry.core import Core
    from kvferry.messages import Attached
    from kvferry.values import Options, PinResult, PoolMemory

SOCKET_VARIABLE = "KVFERRY_SOCKET"


class Driver(Protocol):
    """What serves the core of a client."""

    core: Core

    def pin_pool(self) -> PinResult:
        """Have the core pin its pool."""

    def pool_memory(self) -> PoolMemory:
        """Have the core keep its pool."""

    def run_on_core(self, op: str, action: Callable[..., None], *arguments: Any) -> None:
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
            return format_repr(self, f"of {core.path}, of the process that this one was forked from")
        if core.closing or core.closed:
            return format_repr(self, f"of {core.path}, closed")
        if info is None or not core.session.is_attached:
            return format_repr(self, f"not attached to {core.describe_agent()}")
        pool = f"{info.pages} pages of {info.page_bytes} bytes"
        return format_repr(self, f"attached to {core.path}, {pool}, sides {', '.join(info.sides) or 'none'}")

    @property
    def info(self) -> Attached:
        """What the agent said of itself and its pool when this process attached last."""
        info = self._driver.core.session.info
        if info is None:
            raise lost_error("info")
        return info

    @property
    def attached(self) -> bool:
        """Whether an agent is there now."""
        return self._driver.core.session.is_attached

    @property
    def epoch(self) -> int:
        """Counts sessions: handles of another one are void."""
        return self._driver.core.epoch

    def pool_array(self) -> npt.NDArray[np.uint8]:
        """View all of the pool, a row for each page. Whose bytes may be touched is the caller's to know."""
        core = self._driver.core
        core.check_usable("pool_array")
        pool = core.pool
        if pool is None:
            raise lost_error("pool_array")
        if isinstance(pool, DevicePool):
            raise device_memory_error("pool_array", pool)
        return pool.bytes.reshape(pool.page_count, pool.page_bytes)

    def pin_memory(self) -> PinResult:
        """Have CUDA know the pool, so that copies to and from devices are direct; say what was done.

        It may take a second for each few GB. A pool that is mapped later, of another life of the agent, is pinned by
        itself then.
        """
        self._driver.core.check_usable("pin_memory")
        return self._driver.pin_pool()

    def pool_memory(self) -> PoolMemory:
        """Give the memory of the pool to an engine that computes there, and whose blocks it is (Options.adopts).

        It stays mapped, and what it is, for as long as something looks at it. When the session is over the agent may
        still write into blocks that were registered, until its process has ended, or another session with it begins.
        """
        core = self._driver.core
        core.check_usable("pool_memory")
        if not self._options.owns_pool:
            raise make_error(
                "pool_memory",
                Code.INVALID,
                ErrorDetails(
                    stage="command", field="owns_pool", theirs="False", ours="True", remedy="connect with owns_pool=True"
                ),
            )
        return self._driver.pool_memory()

    def _check_attached(self) -> None:
        """Raise where the first attachment did not come about."""
        core = self._driver.core
        if core.refusal is not None:
            raise core.refusal
        if not core.session.is_attached:
            details = ErrorDetails(
                peer="agent", stage="attach", said=core.describe_agent(), remedy="start kvferry agent, or wait"
            )
            raise make_error("connect", Code.UNREACHABLE, details)

    def _split_keys(self, op: str, keys: Sequence[str]) -> list[Sequence[str]]:
        """Cut keys into those of calls that the agent takes."""
        return split_keys(check_texts(op, "keys", keys), self._driver.core.session.info)

    def _reply_timeout(self, spec: CallSpec[Any], reply_margin: float | None = None) -> float:
        """Say how long to wait for an answer."""
        timeout = self._options.default_timeout if spec.timeout is None else spec.timeout
        return timeout + (self._options.reply_margin if reply_margin is None else reply_margin)


def socket_path(path: str | os.PathLike[str] | None) -> str:
    """Say where the agent's socket is. What can never be a socket, such as a URL or a file, is refused at once."""
    socket = os.fspath(path) if path is not None else os.environ.get(SOCKET_VARIABLE, "")
    if not socket:
        remedy = f"give the path that kvferry agent was given as --socket, or set {SOCKET_VARIABLE}"
        raise make_error(
            "connect", Code.INVALID, ErrorDetails(stage="command", field="path", theirs="empty", remedy=remedy)
        )
    if "://" in socket:
        remedy = f"give the path alone: {'/' + socket.partition('://')[2].lstrip('/')}"
        raise make_error(
            "connect", Code.INVALID, ErrorDetails(stage="command", field="path", theirs=repr(socket), remedy=remedy)
        )
    size = len(os.fsencode(socket))
    if size > PATH_MAX:
        remedy = f"a Unix socket's path has no more: give a shorter one, such as /run/user/{os.geteuid()}/kvferry.sock"
        details = ErrorDetails(
            stage="command", field="path", theirs=f"{size} bytes", ours=f"at most {PATH_MAX}", remedy=remedy
        )
        raise make_error("connect", Code.INVALID, details)
    if "\0" in socket:
        remedy = "give the path of a file: an agent serves no abstract socket"
        raise make_error(
            "connect", Code.INVALID, ErrorDetails(stage="command", field="path", theirs=repr(socket), remedy=remedy)
        )
    if (kind := _file_kind(socket)) is not None:
        remedy = (
            "give the path that kvferry agent was given as --socket: it serves nothing at the place of another file"
        )
        theirs = f"{socket}, {kind}"
        raise make_error(
            "connect",
            Code.INVALID,
            ErrorDetails(stage="command", field="path", theirs=theirs, ours="a socket", remedy=remedy),
        )
    return socket


def _file_kind(path: str) -> str | None:
    """Say what is at a path, if that is something that no agent puts a socket in the place of."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return None
    if stat.S_ISSOCK(mode):
        return None
    return "a directory" if stat.S_ISDIR(mode) else "a file" if stat.S_ISREG(mode) else "no socket"


def warn_unclosed_client(subject: str) -> None:
    """Say that a client was forgotten."""
    warnings.warn(f"{subject} was forgotten; close it", ResourceWarning, stacklevel=2)
