"""Client of the kvferry agent: pages of this host's pool, moved between the prefill and decode processes of a fleet.

import kvferry

with kvferry.connect("/run/kvferry.sock") as client:
    with client.reserve(4, patience=1.0) as pages:
        pages[0].array()[:] = 7
        peer = kvferry.Peer("10.0.0.2", 7300, 7400)
        client.put(peer=peer, request="r", keys=[...], pages=pages, last=True)

kvferry.aio has the same for event loops.
"""

from kvferry.client import Client, Pages, Pending, Prefill, PutResult, RecallResult, Shared, connect
from kvferry.codes import Code
from kvferry.errors import (
    ClosedError,
    Error,
    ExpiredError,
    InvalidError,
    LostError,
    MissingError,
    OutOfMemoryError,
    Why,
)
from kvferry.holding import Page
from kvferry.values import (
    Blocks,
    Lookup,
    Options,
    Peer,
    Pinned,
    Prefix,
    ProducerPeer,
    Received,
    SharingPeer,
    Written,
)

__version__ = "0.1.0"

__all__ = [
    "Blocks",
    "Client",
    "ClosedError",
    "Code",
    "Error",
    "ExpiredError",
    "InvalidError",
    "Lookup",
    "LostError",
    "MissingError",
    "Options",
    "OutOfMemoryError",
    "Page",
    "Pages",
    "Peer",
    "Pending",
    "Pinned",
    "Prefill",
    "Prefix",
    "ProducerPeer",
    "PutResult",
    "RecallResult",
    "Received",
    "Shared",
    "SharingPeer",
    "Why",
    "Written",
    "__version__",
    "connect",
]
