"""Arguments and results of calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kvferry.errors import Error

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Peer:
    """The address of a receiver: its pd_peer_host, pd_peer_init_port and pd_peer_alloc_port.

    A recall also needs its pd_peer_query_port.
    """

    host: str
    init_port: int
    alloc_port: int
    query_port: int = 0


@dataclass(frozen=True)
class SharingPeer:
    """The address of a peer that shares: its p2p_host and one of its p2p_init_ports."""

    host: str
    init_port: int


@dataclass(frozen=True)
class ProducerPeer:
    """The address of one rank of a producer: its pd_peer_host, pd_peer_init_port and pd_peer_alloc_port."""

    host: str
    init_port: int
    port: int

    def __str__(self) -> str:
        """Return the form that the agent parses."""
        return f"{self.host}:{self.init_port}:{self.port}"


@dataclass(frozen=True)
class Blocks:
    """Blocks of a request in one KV-cache group, in the order of the sequence."""

    # Numbers of the logical blocks.
    logical: Sequence[int]
    group: int = 0
    # The absolute position of the first block, in kernel blocks.
    first: int = 0
    # The position after the last kernel block that is used; 0 if all blocks of the list are.
    end: int = 0


class Lookup(NamedTuple):
    """How many chunks, from the first key on, this agent has, and how many of them one other node has. It is a hint."""

    local: int
    remote: int


@dataclass(frozen=True)
class Prefix:
    """How many chunks, from the first key on, a call covered."""

    count: int
    # Why the prefix is shorter than the requested keys; None if it is complete. Compute the missing chunks.
    shortfall: Error | None = None


@dataclass(frozen=True)
class RegisterResult:
    """The result of a registration."""

    # Number of pages that were written; it is all pages.
    pages: int
    # Whether the blocks may still be written. Wait for wait_until_unused before you reuse them.
    in_use: bool


@dataclass(frozen=True)
class LendResult:
    """The result of lending blocks."""

    # Number of pages that were written, over all ranks of the consumer.
    pages: int
    # Whether a consumer had declined the request, so that nothing was lent.
    declined: bool
    # Whether the blocks may still be read.
    in_use: bool


@dataclass(frozen=True)
class PoolMemory:
    """The memory of a session's pool. It stays mapped for as long as a view of its bytes exists."""

    # All pages, in order.
    bytes: npt.NDArray[np.uint8]
    # The epoch of the session, and the incarnation of its agent.
    epoch: int
    incarnation: str
    # The process id of the agent; 0 if it has none in this PID namespace.
    process: int


@dataclass(frozen=True)
class PinResult:
    """The result of registering the pool's memory with CUDA."""

    done: bool
    bytes: int
    # For people: what was done, or why nothing was.
    text: str


@dataclass(frozen=True)
class Options:
    """Options of a client. Times are in seconds."""

    # The name of this process, for people.
    name: str = ""
    # How long to wait for an agent when the client is created.
    timeout: float = 10.0
    # How long the agent may take to reply beyond the timeout of a call. Then the call ends as EXPIRED, whatever the
    # agent does.
    reply_margin: float = 10.0
    # How long to wait for calls without a timeout, whose real timeout is configured at the agent. The reply margin is
    # added.
    default_timeout: float = 60.0
    # How long the agent may be unreachable before calls are lost and handles become void.
    grace: float = 10.0
    # How many calls may wait for room in the agent's window.
    queue_limit: int = 4096
    # Whether this engine uses the pool as its own memory, where pages are blocks that it names by number. No other
    # engine may then have blocks in the pool, and none can attach until this process has ended or has closed its
    # client.
    owns_pool: bool = False
