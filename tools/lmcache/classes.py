"""The classes that LMCache and LMCache-Ascend put on the wire.

Those of LMCache are the real ones: the source files that define them are run out of the installed wheel, each under
its own name, and everything that they import beside msgspec and each other is a stand-in. So neither torch nor any
other dependency of LMCache is needed, and nothing of LMCache but its messages is run.

LMCache-Ascend is in no wheel. Its classes are made here, after its wire format and not after its code: subclasses of
the real ones where they are that, with its fields in its order.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import msgspec

from lmcache_wheel import load

if TYPE_CHECKING:
    from collections.abc import Sequence

STORAGE = "lmcache.v1.storage_backend."
CONTROLLER = "lmcache.v1.cache_controller."

# The files that are run. All else of these packages is a stand-in.
REAL = (
    CONTROLLER + "commands.base",
    CONTROLLER + "commands.full_sync",
    CONTROLLER + "message",
    "lmcache.v1.transfer_channel.transfer_utils",
    STORAGE + "p2p_backend",
    STORAGE + "pd_backend",
    STORAGE + "pd_backend_async",
)
STOOD_IN_FOR = ("lmcache", "torch", "zmq")

Message = type[msgspec.Struct]


@dataclass(frozen=True)
class Dialect:
    """What one socket takes: the classes that are drawn and read, and the union that its owner decodes."""

    name: str
    classes: tuple[Message, ...]
    union: Any

    def decode(self, payload: bytes) -> msgspec.Struct:
        """Read a payload as the owner of the socket does."""
        message = msgspec.msgpack.decode(payload, type=self.union)
        if not isinstance(message, msgspec.Struct):
            raise TypeError(f"{message!r} is no message")
        return message

    def named(self, name: str) -> Message:
        """Find a class by its name."""
        return next(c for c in self.classes if c.__name__ == name)


def _struct(name: str, *fields: tuple[str, Any] | tuple[str, Any, Any], of: Any = None) -> Message:
    """Make a tagged class of LMCache-Ascend, or a subclass of one of LMCache's."""
    if of is None:
        return msgspec.defstruct(name, fields, tag=True)
    return msgspec.defstruct(name, fields, bases=(of,))


def _list() -> Any:
    return msgspec.field(default_factory=list)


def _ascend_pd(sync: Any) -> tuple[Message, ...]:
    return (
        _struct(
            "AscendAllocResponse",
            ("remote_buffer_uuids", list[str]),
            ("alloc_failed", bool, False),
            of=sync.AllocResponse,
        ),
        _struct(
            "PullReadyNotif",
            ("pull_id", str),
            ("keys", list[str]),
            ("sender_buffer_uuids", list[str]),
            ("sender_mem_indexes", list[int]),
            ("sender_id", str),
            ("sender_done_url", str),
            ("fmt", int),
            ("shape", list[int]),
            ("dtype", str),
            ("last_chunk_toks", int),
        ),
        _struct("PullReadyDoneAck", ("already_sent_indexes", list[int]), ("alloc_failed", bool, False)),
        _struct("PullDoneSignal", ("pull_id", str)),
    )


def _hixl() -> tuple[Message, ...]:
    buffer = msgspec.defstruct(
        "PeerBufferInfo",
        [("uuid", str), ("buffer_ptr", int), ("buffer_size", int), ("page_size", int), ("is_device", bool, False)],
    )
    return (
        _struct("HixlInitRequest", ("local_id", str), ("engine_id", str)),
        _struct("HixlInitResponse", ("engine_id", str)),
        _struct("HixlReadyRequest", ("local_id", str)),
        _struct("HixlReadyResponse", ("ok", bool)),
        _struct("HixlMemInfoRequest", ("local_id", str), ("buffers", list[buffer])),  # type: ignore[valid-type]
        _struct("HixlMemInfoResponse", ("buffers", list[buffer])),  # type: ignore[valid-type]
    )


def _ascend_p2p(p2p: Any) -> tuple[Message, ...]:
    return (
        _struct(
            "AscendBatchedLookupAndGetMsg",
            ("buffer_uuids", list[str], _list()),
            ("pull_mode", bool, False),
            of=p2p.BatchedLookupAndGetMsg,
        ),
        _struct(
            "AscendBatchedLookupAndGetRetMsg",
            ("remote_buffer_uuids", list[str], _list()),
            ("remote_mem_indexes", list[int], _list()),
            ("lease_ttl_s", float, 0.0),
            of=p2p.BatchedLookupAndGetRetMsg,
        ),
        _struct("AscendBatchedLookupAndPutMsg", ("buffer_uuids", list[str], _list()), of=p2p.BatchedLookupAndPutMsg),
        _struct("AscendBatchedLookupAndGetDoneMsg", ("lookup_id", str), of=p2p.P2PMsgBase),
        _struct("AscendBatchedLookupAndGetDoneRetMsg", of=p2p.P2PMsgBase),
        _struct("AscendQueryDonePortMsg", of=p2p.P2PMsgBase),
        _struct("AscendQueryDonePortRetMsg", ("done_url", str), of=p2p.P2PMsgBase),
    )


# Requests to workers, of which kvferry reads only whose event they are.
CONTROL = ("Clear", "Pin", "Compress", "Decompress", "Move", "Health", "CheckFinish")

# What a worker and its controller say to each other.
WORKER = (
    "RegisterMsg",
    "RegisterRetMsg",
    "DeRegisterMsg",
    "HeartbeatMsg",
    "HeartbeatRetMsg",
    "BatchedP2PLookupMsg",
    "BatchedP2PLookupRetMsg",
    "KVAdmitMsg",
    "KVEvictMsg",
    "BatchedKVOperationMsg",
    "FullSyncStartMsg",
    "FullSyncStartRetMsg",
    "FullSyncBatchMsg",
    "FullSyncEndMsg",
    "FullSyncStatusMsg",
    "FullSyncStatusRetMsg",
    "ErrorMsg",
)


def _union(classes: Sequence[Message]) -> Any:
    return Union[tuple(classes)]  # noqa: UP007 - They are known only here.


@functools.cache
def dialects() -> dict[str, Dialect]:
    """Give every dialect by its name."""
    modules = load(REAL, STOOD_IN_FOR)
    sync, later, p2p = modules["pd_backend"], modules["pd_backend_async"], modules["p2p_backend"]
    side, controller = modules["transfer_utils"], modules["message"]
    ascend_pd, ascend_p2p, hixl = _ascend_pd(sync), _ascend_p2p(p2p), _hixl()
    sides = (side.P2PInitSideMsg, side.P2PInitSideRetMsg)
    controls = tuple(getattr(controller, name + "WorkerMsg") for name in CONTROL)
    all_dialects = (
        Dialect(
            "pd-sync",
            (sync.AllocRequest, sync.AllocResponse, sync.ProxyNotif, sync.CacheQueryRequest, sync.CacheQueryResponse),
            sync.PDMsg,
        ),
        Dialect("pd-async", (later.AllocRequest, later.AllocResponse, later.ProxyNotif), later.PDMsg),
        Dialect("pd-ascend", ascend_pd, _union((sync.AllocRequest, sync.ProxyNotif, *ascend_pd))),
        Dialect("hixl", (*hixl, *sides), _union((*hixl, *sides))),
        Dialect("side", sides, side.SideMsg),
        Dialect(
            "p2p",
            (
                p2p.BatchedLookupAndGetMsg,
                p2p.BatchedLookupAndGetRetMsg,
                p2p.BatchedLookupAndPutMsg,
                p2p.BatchedLookupAndPutRetMsg,
                p2p.P2PErrorMsg,
            ),
            p2p.P2PMsg,
        ),
        Dialect(
            "p2p-ascend",
            (*ascend_p2p, p2p.BatchedLookupAndPutRetMsg, p2p.P2PErrorMsg),
            _union((*ascend_p2p, p2p.BatchedLookupAndPutRetMsg, p2p.P2PErrorMsg)),
        ),
        Dialect("controller", tuple(getattr(controller, name) for name in WORKER), controller.Msg),
        Dialect("worker", controls, controller.Msg),
    )
    return {d.name: d for d in all_dialects}
