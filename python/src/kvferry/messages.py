"""The messages between an engine's process and the agent of its host (protocol/attach.go, call.go and answer.go).

Each message is a msgpack map whose entry "type" names it. Entries that are zero, false or empty are omitted, and
unknown entries are ignored. Received messages are validated: an invalid message raises MessageError and never yields a
wrong value.
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
    """The received bytes are not a valid message."""


@dataclass(frozen=True)
class Attached:
    """KvfAttachResponse: the agent's reply to an attachment."""

    v: int
    session: int = 0
    life: str = ""
    resumed: bool = False
    code: int = 0
    reason: str = ""
    # Page i begins at offset + i*page_bytes of the file, or of the memory of device_key.
    offset: int = 0
    page_bytes: int = 0
    pages: int = 0
    # Pages of a chunk that arrives layer by layer; 1 if none does.
    layers: int = 0
    # Calls that may be open at a time; keys of one call; bytes of one message to the agent.
    window: int = 0
    keys: int = 0
    bytes: int = 0
    sides: tuple[str, ...] = ()
    # For a pool in memory of an NPU: the key to import it, the number of the NPU on its host, and how many bytes of the
    # imported memory are used.
    device_key: str = ""
    device: int = 0
    device_bytes: int = 0
    # The format of a whole chunk, as LMCache describes it.
    fmt: int = 0
    shape: tuple[int, ...] = ()
    dtype: str = ""
    # Where an agent of blocks accepts registrations, in the form that calls use for producers.
    producer: str = ""
    # For a second pool in memory of an NPU beside the file: page device_from + i begins at device_offset + i*page_bytes
    # of the memory of device_key.
    device_pages: int = 0
    device_from: int = 0
    device_offset: int = 0
    # The pages of a tenant are limited: a call that reserves pages names a key of their chunks.
    tenants: bool = False

    def has_page(self, page: int) -> bool:
        """Report whether a page number exists in the first or the second pool."""
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
    """KvfShow: chunks of a fetch that may be read until the KvfShown."""

    id: int
    first: int = 0
    pages: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Returned:
    """KvfReturned: nothing accesses the memory of a call any more."""

    id: int


Message = Attached | Answer | Show | Returned


def _pack(kind: str, entries: Mapping[str, Any], always: tuple[str, ...]) -> bytes:
    content: dict[str, Any] = {"type": kind}
    for name, value in entries.items():
        if name in always or value:
            content[name] = value
    return cast("bytes", msgpack.packb(content, use_bin_type=True))


def attach_request(
    name: str,
    session: int,
    incarnation: str,
    open_calls: list[int],
    device_process: int = 0,
    *,
    owns_pool: bool = False,
) -> bytes:
    """Encode a KvfAttachRequest.

    Args:
        name: the name of the engine, for people.
        session: the session to resume; 0 for a new one.
        incarnation: the incarnation of the agent that has the session.
        open_calls: numbers of the calls without a complete reply, ascending.
        device_process: the number of this process in the driver of an NPU; 0 if unknown.
        owns_pool: whether this engine uses the pool as its own memory.
    """
    entries = {"v": VERSION, "name": name, "session": session, "life": incarnation, "open": open_calls}
    entries["device_process"] = device_process
    entries["adopts"] = owns_pool
    return _pack("KvfAttachRequest", entries, ("v",))


def call_message(number: int, done: list[int], op: str, entries: Mapping[str, Any]) -> bytes:
    """Encode a KvfCall."""
    return _pack("KvfCall", {"id": number, "done": done, "op": op, **entries}, ("id", "op"))


def shown_message(number: int, first: int, code: int) -> bytes:
    """Encode a KvfShown."""
    return _pack("KvfShown", {"id": number, "first": first, "code": code}, ("id",))


def _number_reader(maximum: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is not int or not 0 <= value <= maximum:
            raise MessageError(f"want a number of 0 to {maximum}")
        return value

    return read


def _read_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise MessageError("want true or false")
    return value


def _read_text(value: Any) -> str:
    if type(value) is not str:
        raise MessageError("want a text")
    return value


def _read_bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise MessageError("want bytes")
    return value


def _list_reader(read_item: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise MessageError("want a list")
        return tuple(read_item(item) for item in value)

    return read


_read_u32, _read_u64 = _number_reader(_U32), _number_reader(_U64)

_Readers = dict[str, "Callable[[Any], Any]"]

_ATTACHED: _Readers = {
    "v": _read_u32, "session": _read_u64, "life": _read_text, "resumed": _read_bool, "code": _read_u32,
    "reason": _read_text, "offset": _read_u64, "page_bytes": _read_u64, "pages": _read_u32, "layers": _read_u32,
    "window": _read_u32, "keys": _read_u32, "bytes": _read_u32, "sides": _list_reader(_read_text),
    "tenants": _read_bool, "producer": _read_text, "device_key": _read_text, "device": _read_u32,
    "device_bytes": _read_u64, "device_pages": _read_u32, "device_from": _read_u32, "device_offset": _read_u64,
    "fmt": _read_u32, "shape": _list_reader(_read_u32), "dtype": _read_text,
}  # fmt: skip
_ANSWER: _Readers = {
    "id": _read_u64, "code": _read_u32, "held": _read_bool, "pages": _list_reader(_read_u64),
    "lengths": _list_reader(_read_u64), "hits": _read_u32, "sent": _read_u32, "skipped": _read_u32,
    "stats": _read_bytes, "count": _read_u32, "peer": _read_text, "stage": _read_text, "field": _read_text,
    "ours": _read_text, "theirs": _read_text, "said": _read_text, "remedy": _read_text,
}  # fmt: skip
_SHOW: _Readers = {
    "id": _read_u64,
    "first": _read_u32,
    "pages": _list_reader(_read_u64),
    "lengths": _list_reader(_read_u64),
}

_KINDS: dict[str, tuple[type[Any], _Readers, tuple[str, ...]]] = {
    "KvfAttachResponse": (Attached, _ATTACHED, ("v",)),
    "KvfAnswer": (Answer, _ANSWER, ("id",)),
    "KvfShow": (Show, _SHOW, ("id", "pages", "lengths")),
    "KvfReturned": (Returned, {"id": _read_u64}, ("id",)),
}


def decode(payload: bytes) -> Message:
    """Decode a message of the agent."""
    try:
        # Texts are only for people, so invalid UTF-8 in them is no error.
        content = msgpack.unpackb(payload, raw=False, strict_map_key=True, unicode_errors="replace")
    except Exception as error:  # The errors of the parser have no common base class.
        raise MessageError(f"not msgpack: {error}") from error
    if type(content) is not dict:
        raise MessageError("not a map")
    kind = content.get("type")
    if type(kind) is not str or kind not in _KINDS:
        raise MessageError(f"not a message of the agent: {str(kind)[:40]!r}")
    message_class, readers, required = _KINDS[kind]
    values: dict[str, Any] = {}
    for name, reader in readers.items():
        if name in content:
            try:
                values[name] = reader(content[name])
            except MessageError as error:
                raise MessageError(f"{kind}.{name}: {error}") from None
        elif name in required:
            raise MessageError(f"{kind} has no {name}")
    message = message_class(**values)
    if isinstance(message, Answer | Show) and len(message.pages) != len(message.lengths):
        raise MessageError(f"{kind} has {len(message.pages)} pages and {len(message.lengths)} lengths")
    return cast("Message", message)


def encode(message: Message) -> bytes:
    """Encode a message of the agent, for tests that simulate one."""
    kind, _, required = next((name, cls, need) for name, (cls, _, need) in _KINDS.items() if cls is type(message))
    entries = {f.name: getattr(message, f.name) for f in fields(message)}
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in entries.items()}
    return _pack(kind, lists, required)
