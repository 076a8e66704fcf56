"""What workers use of an agent's client, and what they say where a call did not end well."""

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

# What a get is given that waits for nothing more, in seconds.
MIN_TIMEOUT = 0.001


class Client(Protocol):
    """What is used of kvferry.Client."""

    def reserve(self, count: int, *, timeout: float | None = None) -> Any:
        """See kvferry.Client, as for the others."""

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
    ) -> Any:
        """Push chunks."""

    def begin_prefill(self, *, keys: Sequence[str], request: str, peer: Peer | None = None) -> Any:
        """Begin with a request whose chunks go layer by layer."""

    def end_request(self, *, request: str, peer: Peer, code: int, reason: str, timeout: float | None = None) -> Any:
        """Have a receiver told how a request ended."""

    @property
    def attached(self) -> bool:
        """Whether the agent takes calls."""

    def get(
        self,
        keys: Sequence[str],
        *,
        request: str = "",
        layered: bool = False,
        timeout: float = 0.0,
        reply_margin: float | None = None,
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
    ) -> Prefix:
        """Have chunks handed over."""

    def abandon(self, request: str, reason: str = "") -> None:
        """Give up what is kept."""

    def contains(self, keys: Sequence[str]) -> int:
        """Count the chunks that are here."""

    def store(self, keys: Sequence[str], pages: Any, first_page: int = 0) -> None:
        """Give pages to the cache."""

    def shared_get(self, keys: Sequence[str], *, request: str, timeout: float | None = None) -> Any:
        """Have chunks that are here, or that peers have."""

    def close(self) -> None:
        """Detach."""


def peer_for_rank(receiver: Receiver, rank: int) -> Peer:
    """Say where a rank sends; a receiver that has no such rank is refused."""
    if rank >= len(receiver.init_ports):
        raise invalid_error(
            "put",
            "disagg_spec.receiver_init_port",
            f"{len(receiver.init_ports)} ports",
            f"one for rank {rank}",
            "give each rank one",
        )
    return Peer(receiver.host, receiver.init_ports[rank], receiver.alloc_ports[rank])


def remaining_time(op: str, deadline: float) -> float:
    """Give the time that is left for a call. One that is late is not made: it raises.

    A stopped agent takes its time over each call, and blocks and threads wait for it.
    """
    remaining = deadline - time.monotonic()
    if remaining > 0:
        return remaining
    remedy = "look whether the agent is stopped or overloaded; more loads or saves at a time may help"
    details = ErrorDetails(stage="command", field="the call", theirs="late before it began", remedy=remedy)
    raise make_error(op, Code.EXPIRED, details)


def log_outcome(text: str, request: str, error: Exception | None) -> None:
    """Log how a request fared: a defect of ours with its trace, what agents and peers do in one line."""
    if error is None or isinstance(error, Error):
        log.warning("request %s: %s%s", request, text, f": {error}" if error else "")
    else:
        log.error("BUG: request %s: %s", request, text, exc_info=error)
