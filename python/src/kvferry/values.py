"""What calls take and give."""

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
    """Where a receiver listens: its pd_peer_host, pd_peer_init_port and pd_peer_alloc_port.

    A recall needs its pd_peer_query_port, too.
    """

    host: str
    init_port: int
    alloc_port: int
    query_port: int = 0


@dataclass(frozen=True)
class SharingPeer:
    """Where a peer shakes hands: its p2p_host and one of its p2p_init_ports."""

    host: str
    init_port: int


@dataclass(frozen=True)
class ProducerPeer:
    """Where one rank of a producer listens: its pd_peer_host, and its pd_peer_init_port and pd_peer_alloc_port."""

    host: str
    init_port: int
    port: int

    def __str__(self) -> str:
        """Write it as the agent reads it."""
        return f"{self.host}:{self.init_port}:{self.port}"


@dataclass(frozen=True)
class Blocks:
    """Blocks of a request in one KV-cache group, in the order of the sequence."""

    # Numbers of logical blocks.
    logical: Sequence[int]
    group: int = 0
    # The absolute position of the first one, in kernel blocks.
    first: int = 0
    # The position behind the last kernel block that counts; 0: all that the list has.
    end: int = 0


class Lookup(NamedTuple):
    """How many chunks, from the first key on, are here, and how many of them one other node has: a hint."""

    here: int
    elsewhere: int


@dataclass(frozen=True)
class Prefix:
    """How many chunks, from the first key on, a call came to."""

    count: int
    # Why it is not all of them; compute the others.
    short: Error | None = None


@dataclass(frozen=True)
class Received:
    """How a registration ended."""

    # Pages that were written: all of them.
    pages: int
    # Whether the blocks may still be written. Wait for their return before they are used for anything else.
    held: bool


@dataclass(frozen=True)
class Written:
    """How blocks that were finished ended."""

    # Pages that were written, over all ranks of the consumer's.
    pages: int
    # A consumer had said that nobody needs them; nothing was lent.
    not_needed: bool
    # Whether the blocks may still be read.
    held: bool


@dataclass(frozen=True)
class OwnMemory:
    """The pool of a session, which stays mapped for as long as something looks at its bytes."""

    # All pages, one after the other.
    bytes: npt.NDArray[np.uint8]
    # Of the session, and of the agent that it is with.
    epoch: int
    life: str
    # The agent's process; 0: it has no number here.
    process: int


@dataclass(frozen=True)
class Pinned:
    """What was done to make the pool's memory known to CUDA."""

    done: bool
    bytes: int
    # For people: what was done, or why nothing was.
    text: str


@dataclass(frozen=True)
class Options:
    """What a client may be told. Times are in seconds."""

    # What this process calls itself, for people.
    name: str = ""
    # How long to wait for an agent at first.
    timeout: float = 10.0
    # How long a call may go without an answer beyond its patience. Then it ends as EXPIRED, whatever the agent does.
    bound: float = 10.0
    # How long a call of which no patience is said may take, which is configured at the agent. The bound is added.
    longest: float = 60.0
    # How long the agent may be away before calls are lost, and handles void.
    grace: float = 10.0
    # How many calls may wait for room in the agent's window.
    queue: int = 4096
    # Whether this engine has the pool as its own memory, where its pages are blocks that it names by number. Then no
    # other engine has blocks there, and none is let in until this process has ended or closed its client.
    adopts: bool = False
