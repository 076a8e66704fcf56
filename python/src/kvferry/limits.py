"""What the agent takes of a call: it hangs up on more, or refuses it, so a call that does not fit is never sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvferry import messages
from kvferry.codes import Code
from kvferry.errors import Why, error_of, wrong

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvferry.messages import Attached

# Of a text, of a key, and of the blocks of one call (protocol/limits.go).
TEXT_BYTES, KEY_BYTES, BLOCKS = 1024, 512, 65536
# Of words for people, which are cut (effects/why.go).
WORDS_BYTES = 240

# What is said where a call has more keys than the agent takes at once, and has a result that cannot be put together of
# those of several calls. The others are made in parts (parts).
_WHOLE = {
    "put": "put them as several batches, with last for the last one alone: each has an outcome, and holds its pages",
    "get": "get them in several calls: each gives pages that are released together",
    "shared_get": "get them in several calls: each gives pages that are released together",
    "recall": "recall them in several calls: each fills pages from its first on",
    "share": "share them in several calls: each is withdrawn by itself",
    "keep": "keep and fetch them under several requests: what is kept for one is fetched by one call",
    "shared_fetch": "keep and fetch them under several requests: what is kept for one is fetched by one call",
    "begin_prefill": "raise chunk_size, so that a prompt has fewer chunks: the layers of all its chunks go together",
}

# Bytes of a call beside its keys and what the window's done can add, and those of a key beside its text.
_REST, _HEAD = 2048, 5

_FLAGS = frozenset(("last", "layered"))


def fit(op: str, entries: Mapping[str, Any], info: Attached | None) -> None:
    """Raise where the agent would hang up on a call, or refuse it for its size. No info: nothing is known of it yet."""
    for name, value in entries.items():
        _fit_entry(op, name, value)
    if info is None:
        return
    if info.keys:
        most = max(info.keys, info.window)
        bounds = {"keys": info.keys, "producers": most}
        for name in (*bounds, "groups", "firsts", "ends", "blocks"):
            remedy = _WHOLE.get(op, "name fewer in one call") if name == "keys" else "name fewer in one call"
            _at_most(op, name, len(entries.get(name, ())), bounds.get(name, most), "", remedy)
    if not info.bytes:
        return
    # What the window's done can add, as large as numbers get, is counted too: it is not known before.
    size = len(messages.call((1 << 64) - 1, [], op, entries)) + 9 * info.window + 16
    if size > info.bytes:
        why = Why(stage="command", field="the call", theirs=f"{size} bytes", ours=f"at most {info.bytes}")
        raise error_of(op, Code.TOO_LARGE, why)


def parts(keys: Sequence[str], info: Attached | None) -> list[Sequence[str]]:
    """Cut keys into those of calls that an agent takes, in their order: one part where all fit into one call.

    A part has no more keys, and takes no more bytes, than a call may. Of 100,000 keys an agent that takes 65,536
    is asked about 65,536, and then about the rest.
    """
    if info is None or not info.keys:
        return [keys]
    room = max(info.bytes // 2, info.bytes - 9 * info.window - _REST) if info.bytes else 1 << 62
    if len(keys) <= info.keys and (KEY_BYTES + _HEAD) * len(keys) <= room:
        return [keys]  # Whatever they are.
    cut, first, size = [], 0, 0
    for at, key in enumerate(keys):
        takes = _HEAD + (len(key) if key.isascii() else len(key.encode(errors="replace")))
        if at > first and (at - first == info.keys or size + takes > room):
            cut.append(keys[first:at])
            first, size = at, 0
        size += takes
    cut.append(keys[first:])
    return cut


def fit_text(op: str, field: str, value: Any, most: int = TEXT_BYTES) -> None:
    """Raise where a value is no text of at most so many bytes."""
    if not isinstance(value, str):
        raise wrong(op, field, repr(value)[:60], "a text", "name it by a text")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError as error:
        raise wrong(op, field, ascii(value)[:60], "a text in UTF-8", "leave out what is no character") from error
    _at_most(op, field, size, most, " bytes", "give a shorter one")


def _fit_entry(op: str, name: str, value: Any) -> None:
    if name in ("request", "transfer", "engine", "host", "reason"):
        fit_text(op, name, value)
    elif name in ("keys", "producers"):
        for index, text in enumerate(value):
            fit_text(op, f"{name}[{index}]", text, KEY_BYTES if name == "keys" else TEXT_BYTES)
    elif name == "blocks":
        count = sum(len(group) for group in value)
        _at_most(op, name, count, BLOCKS, " in all groups", "register fewer blocks at a time")
    elif name in _FLAGS:
        if not isinstance(value, bool):
            raise wrong(op, name, repr(value)[:60], "True or False", "give one of these")
    elif not isinstance(value, (int, list)) or isinstance(value, bool):
        raise wrong(op, name, repr(value)[:60], "a number", "give an int")


def _at_most(op: str, field: str, given: int, most: int, unit: str, remedy: str) -> None:
    if given > most:
        why = Why(stage="command", field=field, theirs=f"{given}{unit}", ours=f"at most {most}{unit}", remedy=remedy)
        raise error_of(op, Code.TOO_LARGE, why)
