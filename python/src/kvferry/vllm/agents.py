"""What workers use of an agent's client, and what they say where a call did not end well."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from kvferry.codes import Code
from kvferry.errors import Error, Why, error_of, wrong
from kvferry.values import Peer
from kvferry.vllm.log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvferry.values import Prefix
    from kvferry.vllm.cache import Bytes
    from kvferry.vllm.words import Receiver

    Scatter = Callable[[int, list[Bytes]], None]

# What a get is given that waits for nothing more, in seconds.
SOON = 0.001


class Client(Protocol):
    """What is used of kvferry.Client."""

    def reserve(self, count: int, *, patience: float | None = None) -> Any:
        """See kvferry.Client, as for the others."""

    def put(
        self,
        *,
        peer: Peer,
        keys: Sequence[str],
        pages: Any,
        request: str = "",
        first: int = 0,
        tokens: int = 0,
        last: bool = False,
        patience: float | None = None,
    ) -> Any:
        """Push chunks."""

    def begin_prefill(self, *, keys: Sequence[str], request: str, peer: Peer | None = None) -> Any:
        """Begin with a request whose chunks go layer by layer."""

    def end(self, *, request: str, peer: Peer, code: int, reason: str, patience: float | None = None) -> Any:
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
        patience: float = 0.0,
        bound: float | None = None,
    ) -> Any:
        """Wait for chunks."""

    def fetch(
        self,
        keys: Sequence[str],
        scatter: Scatter,
        *,
        request: str = "",
        patience: float | None = None,
        wanted: Callable[[], bool] | None = None,
        bound: float | None = None,
    ) -> Prefix:
        """Have chunks handed over."""

    def abandon(self, request: str, reason: str = "") -> None:
        """Give up what is kept."""

    def contains(self, keys: Sequence[str]) -> int:
        """Count the chunks that are here."""

    def store(self, keys: Sequence[str], pages: Any, first: int = 0) -> None:
        """Give pages to the cache."""

    def shared_get(self, keys: Sequence[str], *, request: str, patience: float | None = None) -> Any:
        """Have chunks that are here, or that peers have."""

    def close(self) -> None:
        """Detach."""


def peer_of(to: Receiver, rank: int) -> Peer:
    """Say where a rank sends; a receiver that has no such rank is refused."""
    if rank >= len(to.init_ports):
        raise wrong(
            "put",
            "disagg_spec.receiver_init_port",
            f"{len(to.init_ports)} ports",
            f"one for rank {rank}",
            "give each rank one",
        )
    return Peer(to.host, to.init_ports[rank], to.alloc_ports[rank])


def left(op: str, until: float) -> float:
    """Give the time that is left for a call. One that is late is not made: it raises.

    A stopped agent takes its time over each call, and blocks and threads wait for it.
    """
    rest = until - time.monotonic()
    if rest > 0:
        return rest
    remedy = "look whether the agent is stopped or overloaded; more loads or saves at a time may help"
    why = Why(stage="command", field="the call", theirs="late before it began", remedy=remedy)
    raise error_of(op, Code.EXPIRED, why)


def say(what: str, request: str, error: Exception | None) -> None:
    """Log how a request fared: a defect of ours with its trace, what agents and peers do in one line."""
    if error is None or isinstance(error, Error):
        log.warning("request %s: %s%s", request, what, f": {error}" if error else "")
    else:
        log.error("BUG: request %s: %s", request, what, exc_info=error)
