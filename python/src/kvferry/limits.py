"""What the agent takes of a call: it hangs up on more, or refuses it, so a call that does not fit is never sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvferry import messages
from kvferry.codes import Code
from kvferry.errors import Why, error_of, wrong

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvferry.messages import Attached

# Of a text, of a key, and of the blocks of one call (protocol/limits.go).
TEXT_BYTES, KEY_BYTES, BLOCKS = 1024, 512, 65536
# Of words for people, which are cut (effects/why.go).
WORDS_BYTES = 240

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
            _at_most(op, name, len(entries.get(name, ())), bounds.get(name, most), "", "name fewer in one call")
    if not info.bytes:
        return
    # What the window's done can add, as large as numbers get, is counted too: it is not known before.
    size = len(messages.call((1 << 64) - 1, [], op, entries)) + 9 * info.window + 16
    if size > info.bytes:
        why = Why(stage="command", field="the call", theirs=f"{size} bytes", ours=f"at most {info.bytes}")
        raise error_of(op, Code.TOO_LARGE, why)


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
