"""The attachment of a process to the agent of its host: the parts that both clients share."""

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
    """The driver of a client's core."""

    core: Core

    def pin_pool(self) -> PinResult:
        """Register the pool with CUDA."""

    def pool_memory(self) -> PoolMemory:
        """Return the pool's memory, kept mapped."""

    def run_on_core(self, op: str, action: Callable[..., None], *arguments: Any) -> None:
        """Run an action of the core."""


class Attachment:
    """The attachment of a client."""

    def __init__(self, driver: Driver, options: Options) -> None:
        """Use a driver."""
        self._driver = driver
        self._options = options

    def __repr__(self) -> str:
        """Return the agent's socket, and whether the client is attached."""
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
        """The agent's last reply to an attachment: its limits, and the layout of its pool."""
        info = self._driver.core.session.info
        if info is None:
            raise lost_error("info")
        return info

    @property
    def attached(self) -> bool:
        """Whether the client is attached to an agent now."""
        return self._driver.core.session.is_attached

    @property
    def epoch(self) -> int:
        """Number of the session; handles of earlier sessions are void."""
        return self._driver.core.epoch

    def pool_array(self) -> npt.NDArray[np.uint8]:
        """Return a view of the whole pool, with one row for each page. The caller must know which bytes it may
        access.
        """
        core = self._driver.core
        core.check_usable("pool_array")
        pool = core.pool
        if pool is None:
            raise lost_error("pool_array")
        if isinstance(pool, DevicePool):
            raise device_memory_error("pool_array", pool)
        return pool.bytes.reshape(pool.page_count, pool.page_bytes)

    def pin_memory(self) -> PinResult:
        """Register the pool with CUDA, so that copies between the pool and devices are direct; report what was done.

        It may take a second for each few GB. The pools of later incarnations of the agent are registered automatically.
        """
        self._driver.core.check_usable("pin_memory")
        return self._driver.pin_pool()

    def pool_memory(self) -> PoolMemory:
        """Return the memory of the pool to an engine that computes in it (Options.owns_pool).

        The memory stays mapped and unchanged for as long as a view of it exists. After the end of the session the agent
        may still write into registered blocks, until its process has ended or another session with it begins.
        """
        core = self._driver.core
        core.check_usable("pool_memory")
        if not self._options.owns_pool:
            raise make_error(
                "pool_memory",
                Code.INVALID,
                ErrorDetails(
                    stage="command",
                    field="owns_pool",
                    theirs="False",
                    ours="True",
                    remedy="connect with owns_pool=True",
                ),
            )
        return self._driver.pool_memory()

    def _check_attached(self) -> None:
        """Raise if the first attachment failed."""
        core = self._driver.core
        if core.refusal is not None:
            raise core.refusal
        if not core.session.is_attached:
            details = ErrorDetails(
                peer="agent", stage="attach", said=core.describe_agent(), remedy="start kvferry agent, or wait"
            )
            raise make_error("connect", Code.UNREACHABLE, details)

    def _split_keys(self, op: str, keys: Sequence[str]) -> list[Sequence[str]]:
        """Split keys into parts that the agent accepts in one call each."""
        return split_keys(check_texts(op, "keys", keys), self._driver.core.session.info)

    def _reply_timeout(self, spec: CallSpec[Any], reply_margin: float | None = None) -> float:
        """Return how long to wait for a reply, in seconds."""
        timeout = self._options.default_timeout if spec.timeout is None else spec.timeout
        return timeout + (self._options.reply_margin if reply_margin is None else reply_margin)


def socket_path(path: str | os.PathLike[str] | None) -> str:
    """Return the path of the agent's socket. A path that can never be a socket, such as a URL, is refused at once."""
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
        remedy = (
            f"a Unix socket's path cannot be longer: give a shorter one, such as /run/user/{os.geteuid()}/kvferry.sock"
        )
        details = ErrorDetails(
            stage="command", field="path", theirs=f"{size} bytes", ours=f"at most {PATH_MAX}", remedy=remedy
        )
        raise make_error("connect", Code.INVALID, details)
    if "\0" in socket:
        remedy = "give the path of a file: an agent does not serve abstract sockets"
        raise make_error(
            "connect", Code.INVALID, ErrorDetails(stage="command", field="path", theirs=repr(socket), remedy=remedy)
        )
    if (kind := _file_kind(socket)) is not None:
        remedy = "give the path that kvferry agent was given as --socket: an agent does not replace another file"
        theirs = f"{socket}, {kind}"
        raise make_error(
            "connect",
            Code.INVALID,
            ErrorDetails(stage="command", field="path", theirs=theirs, ours="a socket", remedy=remedy),
        )
    return socket


def _file_kind(path: str) -> str | None:
    """Return what a path is, if it is something that no agent would replace by a socket; otherwise None."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return None
    if stat.S_ISSOCK(mode):
        return None
    return "a directory" if stat.S_ISDIR(mode) else "a file" if stat.S_ISREG(mode) else "no socket"


def warn_unclosed_client(subject: str) -> None:
    """Warn of a client that was dropped without close."""
    warnings.warn(f"{subject} was dropped; close it", ResourceWarning, stacklevel=2)
