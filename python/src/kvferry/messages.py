"""The messages between an engine's process and the agent of its host (protocol/attach.go, call.go and answer.go).

Each is a msgpack map whose entry "type" names it. Zero, false and empty values are left out; what is not known is
skipped. What comes is checked: a message that does not fit is a MessageError, never a wrong value.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

import msgpack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VERSION = 1

_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1


class MessageError(ValueError):
    """Bytes that are none of the messages."""


@dataclass(frozen=True)
class Attached:
    """KvfAttachResponse: how the agent took an attachment."""

    v: int
    session: int = 0
    life: str = ""
    resumed: bool = False
    code: int = 0
    reason: str = ""
    # Page i begins at offset + i*page_bytes of the file, or of what device_key leads to.
    offset: int = 0
    page_bytes: int = 0
    pages: int = 0
    # Pages of a chunk that comes layer by layer; 1: none does.
    layers: int = 0
    # Calls that may be open at a time; keys of one; bytes of one message to the agent.
    window: int = 0
    keys: int = 0
    bytes: int = 0
    sides: tuple[str, ...] = ()
    # Of a pool in memory of an NPU: what it is imported by, the NPU's number on its host, and how many bytes from where
    # the key leads are used.
    device_key: str = ""
    device: int = 0
    device_bytes: int = 0
    # What a whole chunk is, as LMCache describes it.
    fmt: int = 0
    shape: tuple[int, ...] = ()
    dtype: str = ""
    # Where an agent of blocks takes registrations, as calls name producers.
    producer: str = ""
    # Of a second pool in memory of an NPU, beside the file: page device_from + i begins device_offset + i*page_bytes
    # behind what device_key leads to.
    device_pages: int = 0
    device_from: int = 0
    device_offset: int = 0

    def has(self, page: int) -> bool:
        """Say whether there is a page with a number, in the first pool or in the second one."""
        return page < self.pages or 0 <= page - self.device_from < self.device_pages


@dataclass(frozen=True)
class Answer:
    """KvfAnswer: how a call ended."""

    id: int
    code: int = 0
    held: bool = False
    pages: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    hits: int = 0
    sent: int = 0
    skipped: int = 0
    stats: bytes = b""
    count: int = 0
    peer: str = ""
    stage: str = ""
    field: str = ""
    ours: str = ""
    theirs: str = ""
    said: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Show:
    """KvfShow: chunks of a fetch, lent until a KvfShown."""

    id: int
    first: int = 0
    pages: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Returned:
    """KvfReturned: nothing touches the memory of a call any more."""

    id: int


Message = Attached | Answer | Show | Returned


def _packed(kind: str, entries: Mapping[str, Any], always: tuple[str, ...]) -> bytes:
    made: dict[str, Any] = {"type": kind}
    for name, value in entries.items():
        if name in always or value:
            made[name] = value
    return cast("bytes", msgpack.packb(made, use_bin_type=True))


def attach_request(
    name: str, session: int, life: str, waits: list[int], device_process: int = 0, *, adopts: bool = False
) -> bytes:
    """Make a KvfAttachRequest.

    The process has this number for the driver of an NPU; 0: it is not known. One that adopts the pool has it as its own
    memory.
    """
    entries = {"v": VERSION, "name": name, "session": session, "life": life, "open": waits}
    entries["device_process"] = device_process
    entries["adopts"] = adopts
    return _packed("KvfAttachRequest", entries, ("v",))


def call(number: int, done: list[int], op: str, entries: Mapping[str, Any]) -> bytes:
    """Make a KvfCall."""
    return _packed("KvfCall", {"id": number, "done": done, "op": op, **entries}, ("id", "op"))


def shown(number: int, first: int, code: int) -> bytes:
    """Make a KvfShown."""
    return _packed("KvfShown", {"id": number, "first": first, "code": code}, ("id",))


def _whole(most: int) -> Callable[[Any], int]:
    def take(value: Any) -> int:
        if type(value) is not int or not 0 <= value <= most:
            raise MessageError(f"want a number of 0 to {most}")
        return value

    return take


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise MessageError("want true or false")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise MessageError("want a text")
    return value


def _binary(value: Any) -> bytes:
    if type(value) is not bytes:
        raise MessageError("want bytes")
    return value


def _list(of: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def take(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise MessageError("want a list")
        return tuple(of(item) for item in value)

    return take


_u32, _u64 = _whole(_U32), _whole(_U64)

_Readers = dict[str, "Callable[[Any], Any]"]

_ATTACHED: _Readers = {
    "v": _u32, "session": _u64, "life": _text, "resumed": _boolean, "code": _u32, "reason": _text, "offset": _u64,
    "page_bytes": _u64, "pages": _u32, "layers": _u32, "window": _u32, "keys": _u32, "bytes": _u32,
    "sides": _list(_text), "producer": _text, "device_key": _text, "device": _u32, "device_bytes": _u64,
    "device_pages": _u32, "device_from": _u32, "device_offset": _u64,
    "fmt": _u32, "shape": _list(_u32), "dtype": _text,
}  # fmt: skip
_ANSWER: _Readers = {
    "id": _u64, "code": _u32, "held": _boolean, "pages": _list(_u64), "lengths": _list(_u64), "hits": _u32,
    "sent": _u32, "skipped": _u32, "stats": _binary, "count": _u32, "peer": _text, "stage": _text, "field": _text,
    "ours": _text, "theirs": _text, "said": _text, "remedy": _text,
}  # fmt: skip
_SHOW: _Readers = {"id": _u64, "first": _u32, "pages": _list(_u64), "lengths": _list(_u64)}

_KINDS: dict[str, tuple[type[Any], _Readers, tuple[str, ...]]] = {
    "KvfAttachResponse": (Attached, _ATTACHED, ("v",)),
    "KvfAnswer": (Answer, _ANSWER, ("id",)),
    "KvfShow": (Show, _SHOW, ("id", "pages", "lengths")),
    "KvfReturned": (Returned, {"id": _u64}, ("id",)),
}


def decode(payload: bytes) -> Message:
    """Read what the agent says."""
    try:
        # Texts are for people only: what is not UTF-8 in them is no reason to stop.
        read = msgpack.unpackb(payload, raw=False, strict_map_key=True, unicode_errors="replace")
    except Exception as error:  # The parser's errors have no class in common.
        raise MessageError(f"not msgpack: {error}") from error
    if type(read) is not dict:
        raise MessageError("not a map")
    kind = read.get("type")
    if type(kind) is not str or kind not in _KINDS:
        raise MessageError(f"no message of the agent's: {str(kind)[:40]!r}")
    made, readers, required = _KINDS[kind]
    values: dict[str, Any] = {}
    for name, reader in readers.items():
        if name in read:
            try:
                values[name] = reader(read[name])
            except MessageError as error:
                raise MessageError(f"{kind}.{name}: {error}") from None
        elif name in required:
            raise MessageError(f"{kind} has no {name}")
    message = made(**values)
    if isinstance(message, Answer | Show) and len(message.pages) != len(message.lengths):
        raise MessageError(f"{kind} has {len(message.pages)} pages and {len(message.lengths)} lengths")
    return cast("Message", message)


def encode(message: Message) -> bytes:
    """Write what an agent says; for tests, which play one."""
    kind, _, required = next((name, cls, need) for name, (cls, _, need) in _KINDS.items() if cls is type(message))
    entries = {f.name: getattr(message, f.name) for f in fields(message)}
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in entries.items()}
    return _packed(kind, lists, required)
