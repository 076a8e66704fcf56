"""The part of kvferry.Client that workers use, and the log of calls that failed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from kvferry.codes import Code
from kvferry.errors import Error, ErrorDetails, invalid_error, make_error
from kvferry.values import Peer
from kvferry.vllm.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvferry.values import Prefix
    from kvferry.vllm.cache import Bytes
    from kvferry.vllm.step_work import Receiver

    Scatter = Callable[[int, list[Bytes]], None]

# The timeout of a get that does not wait, in seconds.
MIN_TIMEOUT = 0.001


class Client(Protocol):
    """The methods of kvferry.Client that workers use."""

    def reserve(self, count: int, *, key: str = "", timeout: float | None = None) -> Any:
        """Reserve pages; see kvferry.Client, also for the other methods."""

    def put(
        self,
        *,
        peer: Peer,
        keys: Sequence[str],
        pages: Any,
        request: str = "",
        first_page: int = 0,
        last_chunk_tokens: int = 0,
        last_batch: bool = False,
        timeout: float | None = None,
        trace: bytes = b"",
    ) -> Any:
        """Push chunks."""

    def begin_prefill(self, *, keys: Sequence[str], request: str, peer: Peer | None = None, trace: bytes = b"") -> Any:
        """Start a request whose chunks are pushed layer by layer."""

    def end_request(
        self, *, request: str, peer: Peer, code: int, reason: str, timeout: float | None = None, tenant: str = ""
    ) -> Any:
        """Notify a receiver of the end of a request."""

    @property
    def attached(self) -> bool:
        """Whether the client is attached to an agent."""

    def get(
        self,
        keys: Sequence[str],
        *,
        request: str = "",
        layered: bool = False,
        timeout: float = 0.0,
        reply_margin: float | None = None,
        trace: bytes = b"",
    ) -> Any:
        """Wait for chunks."""

    def fetch(
        self,
        keys: Sequence[str],
        scatter: Scatter,
        *,
        request: str = "",
        timeout: float | None = None,
        still_wanted: Callable[[], bool] | None = None,
        reply_margin: float | None = None,
        trace: bytes = b"",
    ) -> Prefix:
        """Pass chunks to a callback."""

    def abandon(self, request: str, reason: str = "", tenant: str = "") -> None:
        """Drop the chunks of a request."""

    def contains(self, keys: Sequence[str]) -> int:
        """Count the chunks that are here."""

    def store(self, keys: Sequence[str], pages: Any, first_page: int = 0) -> None:
        """Give pages to the cache."""

    def shared_get(self, keys: Sequence[str], *, request: str, timeout: float | None = None) -> Any:
        """Return chunks that are here or at peers."""

    def close(self) -> None:
        """Detach."""


def peer_for_rank(receiver: Receiver, rank: int) -> Peer:
    """Return the receiver of a rank's chunks; refuse a receiver without that rank."""
    if rank >= len(receiver.init_ports):
        raise invalid_error(
            "put",
            "disagg_spec.receiver_init_port",
            f"{len(receiver.init_ports)} ports",
            f"one for rank {rank}",
            "give a port for each rank",
        )
    return Peer(receiver.host, receiver.init_ports[rank], receiver.alloc_ports[rank])


def remaining_time(op: str, deadline: float) -> float:
    """Return the time until the deadline of a call; raise if it has passed, so that the call is not made.

    Each call to a stopped agent takes long, and blocks and threads wait for it.
    """
    remaining = deadline - time.monotonic()
    if remaining > 0:
        return remaining
    remedy = "check whether the agent is stopped or overloaded; a higher limit of concurrent loads or saves may help"
    details = ErrorDetails(
        stage="command", field="the call", theirs="its deadline passed before it started", remedy=remedy
    )
    raise make_error(op, Code.EXPIRED, details)


def log_outcome(text: str, request: str, error: Exception | None) -> None:
    """Log the outcome of a request. Bugs are logged with their traceback, errors of agents and peers in one line."""
    if error is None or isinstance(error, Error):
        log.warning("request %s: %s%s", request, text, f": {error}" if error else "")
    else:
        log.error("BUG: request %s: %s", request, text, exc_info=error)
