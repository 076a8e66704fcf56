"""Client of the kvferry agent: moves KV cache pages between the prefill and decode processes of a cluster.

import kvferry

with kvferry.connect("/run/kvferry.sock") as client:
    with client.reserve(4, timeout=1.0) as pages:
        pages[0].array()[:] = 7
        peer = kvferry.Peer("10.0.0.2", 7300, 7400)
        client.put(peer=peer, request="r", keys=[...], pages=pages, last_batch=True)

kvferry.aio has the same API for asyncio.
"""

import pathlib

from kvferry.client import Client, Pages, PendingCall, Prefill, PutResult, RecallResult, SharedPages, connect
from kvferry.codes import Code
from kvferry.errors import (
    ClosedError,
    Error,
    ErrorDetails,
    ExpiredError,
    InvalidError,
    LostError,
    MissingError,
    OutOfMemoryError,
)
from kvferry.handle_base import Page
from kvferry.values import (
    Blocks,
    LendResult,
    Lookup,
    Options,
    Peer,
    PinResult,
    Prefix,
    ProducerPeer,
    RegisterResult,
    SharingPeer,
)

# The file of the command's version. In a wheel it has the version of the wheel.
__version__ = (pathlib.Path(__file__).parent / "VERSION").read_text(encoding="ascii").strip()

__all__ = [
    "Blocks",
    "Client",
    "ClosedError",
    "Code",
    "Error",
    "ErrorDetails",
    "ExpiredError",
    "InvalidError",
    "LendResult",
    "Lookup",
    "LostError",
    "MissingError",
    "Options",
    "OutOfMemoryError",
    "Page",
    "Pages",
    "Peer",
    "PendingCall",
    "PinResult",
    "Prefill",
    "Prefix",
    "ProducerPeer",
    "PutResult",
    "RecallResult",
    "RegisterResult",
    "SharedPages",
    "SharingPeer",
    "__version__",
    "connect",
]
