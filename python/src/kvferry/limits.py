"""The limits of the agent. A call beyond a limit is never sent, because the agent would refuse it or hang up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvferry import messages
from kvferry.codes import Code
from kvferry.errors import ErrorDetails, invalid_error, make_error
from kvferry.traces import TRACE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvferry.messages import Attached

# The longest text and the longest key in bytes, and the most blocks of one call (protocol/limits.go).
TEXT_BYTES, KEY_BYTES, BLOCKS = 1024, 512, 65536
# The longest reason for people in bytes; longer ones are cut (effects/why.go).
REASON_BYTES = 240

# Remedies for a call that has more keys than the agent accepts at once and whose result cannot be combined from several
# calls. The other operations are split by split_keys.
_SPLIT_REMEDIES = {
    "put": "put them as several batches, with last_batch for the last one: each batch has its own result and pages",
    "get": "get them in several calls: each call returns a handle",
    "shared_get": "get them in several calls: each call returns a handle",
    "recall": "recall them in several calls: each call fills pages from its first_page on",
    "share": "share them in several calls: each call returns a handle",
    "keep": "lease and fetch them under several request ids: one call fetches the chunks of one request id",
    "shared_fetch": "lease and fetch them under several request ids: one call fetches the chunks of one request id",
    "begin_prefill": "raise chunk_size, so that a prompt has fewer chunks: the layers of all chunks go together",
}

# Bytes of a call without its keys and without the done list of the window, and bytes of a key without its text.
_CALL_OVERHEAD, _KEY_OVERHEAD = 2048, 5

_FLAGS = frozenset(("last", "layered"))


def check_call_size(op: str, entries: Mapping[str, Any], info: Attached | None) -> None:
    """Raise if the agent would refuse a call because of its size or would hang up on it.

    Args:
        op: the operation.
        entries: its fields on the wire.
        info: the limits of the agent; None if they are not known yet.
    """
    for name, value in entries.items():
        _check_entry(op, name, value)
    if info is None:
        return
    if info.keys:
        max_items = max(info.keys, info.window)
        limits = {"keys": info.keys, "producers": max_items}
        for name in (*limits, "groups", "firsts", "ends", "blocks"):
            remedy = _SPLIT_REMEDIES.get(op, "name fewer in one call") if name == "keys" else "name fewer in one call"
            _check_maximum(op, name, len(entries.get(name, ())), limits.get(name, max_items), "", remedy)
    if not info.bytes:
        return
    # The done list of the window is counted at its largest size, because it is not known before the call is sent.
    size = len(messages.call_message((1 << 64) - 1, [], op, entries)) + 9 * info.window + 16
    if size > info.bytes:
        details = ErrorDetails(stage="command", field="the call", theirs=f"{size} bytes", ours=f"at most {info.bytes}")
        raise make_error(op, Code.TOO_LARGE, details)


def split_keys(keys: Sequence[str], info: Attached | None) -> list[Sequence[str]]:
    """Split keys into parts that the agent accepts in one call each, in order; one part if all keys fit into one call.

    Example: of 100,000 keys and a limit of 65,536 keys, the first part has 65,536 keys and the second one the rest.
    """
    if info is None or not info.keys:
        return [keys]
    room = max(info.bytes // 2, info.bytes - 9 * info.window - _CALL_OVERHEAD) if info.bytes else 1 << 62
    if len(keys) <= info.keys and (KEY_BYTES + _KEY_OVERHEAD) * len(keys) <= room:
        return [keys]  # Keys of any length fit.
    parts, first, size = [], 0, 0
    for index, key in enumerate(keys):
        key_bytes = _KEY_OVERHEAD + (len(key) if key.isascii() else len(key.encode(errors="replace")))
        if index > first and (index - first == info.keys or size + key_bytes > room):
            parts.append(keys[first:index])
            first, size = index, 0
        size += key_bytes
    parts.append(keys[first:])
    return parts


def check_text(op: str, field: str, value: Any, max_bytes: int = TEXT_BYTES) -> None:
    """Raise if a value is not a text of at most max_bytes bytes."""
    if not isinstance(value, str):
        raise invalid_error(op, field, repr(value)[:60], "a text", "give a text")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError as error:
        raise invalid_error(op, field, ascii(value)[:60], "a text in UTF-8", "remove invalid characters") from error
    _check_maximum(op, field, size, max_bytes, " bytes", "give a shorter one")


def _check_entry(op: str, name: str, value: Any) -> None:
    if name in ("request", "transfer", "engine", "host", "reason", "domain", "tenant"):
        check_text(op, name, value)
    elif name in ("keys", "producers"):
        for index, text in enumerate(value):
            check_text(op, f"{name}[{index}]", text, KEY_BYTES if name == "keys" else TEXT_BYTES)
    elif name == "blocks":
        count = sum(len(group) for group in value)
        _check_maximum(op, name, count, BLOCKS, " in all groups", "register fewer blocks at a time")
    elif name in _FLAGS:
        if not isinstance(value, bool):
            raise invalid_error(op, name, repr(value)[:60], "True or False", "give one of them")
    elif name == "trace":
        if not isinstance(value, bytes) or len(value) != TRACE_BYTES:
            remedy = "give the result of kvferry.traces.parse_traceparent"
            raise invalid_error(op, name, repr(value)[:60], f"{TRACE_BYTES} bytes", remedy)
    elif not isinstance(value, (int, list)) or isinstance(value, bool):
        raise invalid_error(op, name, repr(value)[:60], "a number", "give an int")


def _check_maximum(op: str, field: str, actual: int, maximum: int, unit: str, remedy: str) -> None:
    if actual > maximum:
        details = ErrorDetails(
            stage="command", field=field, theirs=f"{actual}{unit}", ours=f"at most {maximum}{unit}", remedy=remedy
        )
        raise make_error(op, Code.TOO_LARGE, details)
